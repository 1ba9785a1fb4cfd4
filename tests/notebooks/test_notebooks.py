"""Every shipped notebook runs from top to bottom, and is stored without outputs."""

from pathlib import Path

import nbformat
import pytest

from kernelevolve.report.build import execute
from kernelevolve.report.exporter import PLOTLY

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
PARAMETERS = {"STEPS": 2, "WORKSPACE": "space", "REPORT": "report.html"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_stored_without_outputs_in_short_cells_without_helpers(path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        assert len(cell.source.splitlines()) <= 25
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
            assert "def " not in cell.source
            assert "class " not in cell.source


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    notebook = nbformat.read(path, 4)
    parameters = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
    parameters.source += "".join(f"\n{name} = {value!r}" for name, value in PARAMETERS.items())
    done = execute(notebook, folder=tmp_path, timeout_s=240)
    outputs = [o for c in done.cells for o in c.get("outputs", ())]
    assert not [o for o in outputs if o.output_type == "error"]
    assert sum(PLOTLY in o.get("data", {}) for o in outputs) == 3
    told = "\n".join(str(o.get("data", {}).get("text/plain", "")) + o.get("text", "") for o in outputs)
    assert f"{PARAMETERS['STEPS']} steps" in told
    assert "duplicate" in told
    assert (tmp_path / "report.html").stat().st_size > 1e6
