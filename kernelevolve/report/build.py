"""Make a report: fill the notebook, execute it, write one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelevolve import errors
from kernelevolve.report.notebook import build_notebook
from kernelevolve.store.workspace import Workspace
from kernelevolve.views.requirement import require

CELL_TIMEOUT_S = 120


def report(studies: str | Sequence[str], workspace: str | os.PathLike[str] | Workspace | None,
           output: str | os.PathLike[str]) -> Path:
    """Write the report of one study, or of several with an overview, and answer its path.

    Args:
        studies: Names of studies.
        workspace: The workspace or its folder.
        output: ".html" for one self-contained page, ".ipynb" for the executed notebook.

    Raises StudyError for an unknown study, SettingError for another kind of file, MissingDependencyError without the
    `lab` extra, StoreError when the file cannot be written.
    """
    target = Path(output).expanduser().absolute()
    if target.suffix not in (".html", ".ipynb"):
        raise errors.SettingError(f"a report is written as .html or .ipynb; got {target.name!r}")
    space = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    names = [studies] if isinstance(studies, str) else list(studies)
    for name in names:
        space.study(name)  # an unknown one fails here, before a kernel is started
    notebook = execute(build_notebook(names, str(space.path)), folder=space.path)
    if target.suffix == ".ipynb":
        text = require("nbformat").writes(notebook)
    else:
        text, _ = require("kernelevolve.report.exporter").ReportExporter().from_notebook_node(notebook)
    _write(target, text)
    return target


def execute(notebook: Any, *, folder: Path, timeout_s: int = CELL_TIMEOUT_S) -> Any:
    """Run all cells in a fresh kernel of this very Python, in `folder`, each at most `timeout_s`; answers the notebook.

    Raises KernelEvolveError that names the cell which failed.
    """
    nbclient, ipykernel = require("nbclient"), require("ipykernel.kernelspec")
    kernelspec, manager = require("jupyter_client.kernelspec"), require("jupyter_client.manager")

    class ThisPython(kernelspec.KernelSpecManager):  # type: ignore[name-defined, misc]
        """Whatever kernels are registered, the report needs the Python that has this package."""

        def get_kernel_spec(self, kernel_name: str) -> Any:
            return kernelspec.KernelSpec(resource_dir=ipykernel.RESOURCES, **ipykernel.get_kernel_dict())

    client = nbclient.NotebookClient(
        notebook, timeout=timeout_s, store_widget_state=False, extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
        km=manager.AsyncKernelManager(kernel_spec_manager=ThisPython()),
    )
    try:
        return client.execute(cleanup_kc=True)  # the manager is ours, so its kernel would otherwise outlive this
    except nbclient.exceptions.CellExecutionError as error:
        raise errors.KernelEvolveError(f"the report's notebook failed: {error.ename}: {error.evalue}") from error


def _write(target: Path, text: str) -> None:
    """All of it or nothing: a reader never finds half a report."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        part.write_text(text, "utf-8")
        part.replace(target)
    except OSError as error:
        raise errors.StoreError(f"cannot write the report to {target}: {error.strerror or error}") from error
