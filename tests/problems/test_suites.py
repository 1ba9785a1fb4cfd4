"""Where problems come from: the shipped suite, folders, a KernelBench checkout, other packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernelevolve.problems as problems
from kernelevolve import errors
from kernelevolve.problems.suites import FolderSuite, KernelBenchSuite
from tests.problems.test_load import write, write_forward

DIAGONAL = {
    "main": "return x[:, :1] * x  # not torch.diag(x[:, 0]) @ x",
    "v0.1": "return torch.diag(x[:, 0]) @ x",
}


def write_checkout(root: Path, *, draw: str = "rand", diagonal: str = "main") -> Path:
    """A made-up checkout in KernelBench's layout: level folders, numbered files, other things between them."""
    for level, number, name, body in [
        (1, 1, "Twice", "return x * 2"), (1, 12, "Diagonal", DIAGONAL[diagonal]),
        (1, 2, "Standard_product_", "return x @ x.t()"), (2, 1, "Chain.with.dots", "return (x + 1).relu()"),
        (10, 3, "Late", "return x - 3"),
    ]:
        folder = root / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True, exist_ok=True)
        path = write_forward(folder, body, inputs=f"torch.{draw}(4, 6)")
        path.rename(folder / f"{number}_{name}.py")
    (root / "KernelBench" / "level1" / "__init__.py").write_text("")
    (root / "KernelBench" / "level1" / "notes.md").write_text("")
    return root


def test_the_suites_are_listed_by_name() -> None:
    assert {"cpu", "kernelbench"} <= set(problems.suites())


def test_an_unknown_suite_names_the_known_ones() -> None:
    with pytest.raises(errors.UnknownNameError, match=r"known: .*cpu.*kernelbench"):
        problems.load("no_such_suite/softmax")


def test_a_name_without_a_suite_says_what_was_expected() -> None:
    with pytest.raises(errors.ProblemError, match="expected SUITE/NAME"):
        problems.load("softmax")


def test_a_misspelt_problem_names_the_closest() -> None:
    with pytest.raises(errors.ProblemError, match="did you mean rms_norm"):
        problems.load("cpu/rmsnorm")


def test_a_folder_is_a_suite(tmp_path: Path) -> None:
    write_forward(tmp_path, "return x * 2").rename(tmp_path / "twice.py")
    write(tmp_path, "raise RuntimeError('never imported')", "_private.py")
    assert FolderSuite(tmp_path, name="mine").ids() == ["mine/twice"]
    problem = problems.load(f"folder:{tmp_path}/twice")
    assert (problem.id, problem.suite) == (f"{tmp_path.name}/twice", tmp_path.name)


def test_an_absent_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ProblemError, match="is no folder"):
        problems.load(f"folder:{tmp_path}/absent/x")


def test_listing_a_suite_imports_nothing(tmp_path: Path) -> None:
    write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert FolderSuite(tmp_path).ids() == [f"{tmp_path.name}/problem"]
    assert not (tmp_path / "ran").exists()


def test_an_entry_point_adds_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write_forward(files, "return x * 2").rename(files / "twice.py")
    write(tmp_path, f"""
        from pathlib import Path
        from kernelevolve.problems.suites import FolderSuite

        def make():
            return FolderSuite(Path({str(files)!r}), name="extra")
    """, "a_package_with_a_suite.py")
    info = tmp_path / "a_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernelevolve.suites]\nextra = a_package_with_a_suite:make\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "extra" in problems.suites()
    assert problems.suite("extra") == ["extra/twice"]
    assert problems.load("extra/twice").id == "extra/twice"
    sys.modules.pop("a_package_with_a_suite", None)


def test_kernelbench_without_a_checkout_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    with pytest.raises(errors.SettingError, match="set KERNELBENCH_ROOT"):
        problems.load("kernelbench/1/23")


@pytest.mark.parametrize("make", [True, False])
def test_kernelbench_root_without_levels_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: bool) -> None:
    root = tmp_path / "empty"
    if make:
        root.mkdir()
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    with pytest.raises(errors.SettingError, match=f"KERNELBENCH_ROOT is {root}: expected a KernelBench checkout"):
        problems.suite("kernelbench")


def test_kernelbench_problems_are_named_by_level_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(write_checkout(tmp_path)))
    assert problems.suite("kernelbench") == [f"kernelbench/{n}" for n in ("1/1", "1/2", "1/12", "2/1", "10/3")]
    problem = problems.load("kernelbench/1/2")
    assert (problem.id, problem.suite, problem.suite_version) == ("kernelbench/1/2", "kernelbench", "main")
    assert problem.path.endswith("KernelBench/level1/2_Standard_product_.py")
    with pytest.raises(errors.ProblemError, match="has no problem '1/77' among its 5"):
        problems.load("kernelbench/1/77")


def test_a_kernelbench_checkout_may_be_named_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    root = write_checkout(tmp_path)
    assert problems.load(f"kernelbench:{root}/2/1").id == "kernelbench/2/1"
    assert problems.load(f"kernelbench:{root}/KernelBench/2/1").id == "kernelbench/2/1"


@pytest.mark.parametrize(("draw", "diagonal", "edition"), [
    ("rand", "main", "main"), ("rand", "v0.1", "v0.1"), ("randn", "v0.1", "v0"),
])
def test_the_edition_of_kernelbench_is_recognised(tmp_path: Path, draw: str, diagonal: str, edition: str) -> None:
    assert KernelBenchSuite(write_checkout(tmp_path, draw=draw, diagonal=diagonal)).version() == edition


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_a_checkout_is_part_of_the_version(tmp_path: Path) -> None:
    root = write_checkout(tmp_path)
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "files"], check=True)
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert KernelBenchSuite(root).version() == f"main@{head.strip()}"
