"""The project's own rules, walked rather than trusted."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kernelevolve"

STAGES = {
    "problems", "search", "knowledge", "operators", "evaluation", "languages", "platforms", "profiling", "store",
    "views",
}  # fmt: skip
SHARED = {"records", "errors", "settings", "workers", "show", "versions", "__version__"}
# What a stage may import beside itself and the shared parts. Views read what the store and the tree hold.
ALLOWED = {
    "evaluation": {"languages", "platforms"},
    "profiling": {"languages", "platforms"},
    "platforms": {"languages"},
    "views": {"store", "search"},
    "store": {"testing"},  # the crash points
}


def imports(path: Path) -> set[str]:
    """Names of this package's own first-level parts that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "kernelevolve":
                names = [f"kernelevolve.{a.name}" for a in node.names]
            else:
                names = [node.module]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        found |= {n.split(".")[1] for n in names if n.startswith("kernelevolve.")}
    return found


def test_stages_import_records_and_errors_but_not_each_other():
    wrong = []
    for stage in STAGES:
        for path in (PACKAGE / stage).rglob("*.py"):
            extra = imports(path) - SHARED - ALLOWED.get(stage, set()) - {stage}
            wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(extra)]
    assert not wrong


def test_what_shares_a_process_with_candidates_can_reach_little():
    allowed = set(sys.stdlib_module_names) | {"numpy", "torch"}
    for path in (PACKAGE / "evaluation" / "inside").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            else:
                continue
            for module in modules:
                own = module.startswith(
                    (
                        "kernelevolve.evaluation.inside",
                        "kernelevolve.languages",
                        "kernelevolve.platforms",
                        "kernelevolve.workers.channel",
                        "kernelevolve.workers.harden",  # the standard library alone
                    )
                )
                top = module.split(".")[0]
                assert own or top in allowed or module in ("kernelevolve", "kernelevolve.errors"), f"{path}: {module}"


def test_importing_the_package_needs_no_optional_dependency_and_no_torch():
    code = (
        "import sys, kernelevolve; from kernelevolve import Study\n"
        "bad = {'plotly', 'ipywidgets', 'jupyterlab', 'nbconvert', 'anthropic', 'triton', 'torch'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_file_passes_500_lines():
    long = {
        str(p.relative_to(ROOT)): n
        for folder in ("kernelevolve", "tests", "benchmarks")
        for p in (ROOT / folder).rglob("*.py")
        if (n := len(p.read_text().splitlines())) > 500
    }
    assert not long


def dependencies(groups: tuple[str, ...]) -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for group in groups:
        lines += project["optional-dependencies"][group]
    return dict(re.match(r"([A-Za-z0-9_.-]+)\s*(.*)", line).groups() for line in lines)


def test_the_conda_environment_is_the_twin_of_pyproject():
    other_names = {"pytorch": "torch", "python-duckdb": "duckdb"}
    conda = {}
    for line in yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]:
        if isinstance(line, str):
            name, spec = re.match(r"([A-Za-z0-9_.-]+)\s*(.*)", line).groups()
            conda[other_names.get(name, name)] = spec
    for extra in ("pip", "cxx-compiler"):
        del conda[extra]
    python = conda.pop("python")
    assert python == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert conda == dependencies(("lab", "dev"))


def test_every_direct_dependency_of_ci_is_pinned():
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
    assert set(pins) == set(dependencies(("lab", "dev")))
    assert pins["torch"] == "2.13.0"
