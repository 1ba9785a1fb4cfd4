"""A disk that is really full (a small tmpfs): the study pauses, loses nothing, and goes on after space is freed."""

import subprocess
import sys
import textwrap

import pytest

SIZE_MB = 48
PREAMBLE = """
import os
from pathlib import Path
import pytest
from kernelevolve import errors
from kernelevolve.store import Workspace
from kernelevolve.study import Study
from kernelevolve.testing.history import History, check, compare_tables, digest
from kernelevolve.testing.searching import Judge, Writer
from kernelevolve.testing import synthetic

disk = Path(os.environ["SMALL_DISK"])
space, told, ballast = Workspace(disk / "w"), History(Path(os.environ["HISTORY"])), disk / "ballast"
kinds = {"platform": "cpu", "operator": Writer(), "evaluator": Judge()}

def begin():
    return Study(synthetic.problem(), name="s", workspace=space, **kinds)

def resume():
    return Study.resume("s", workspace=space, operator=Writer(), evaluator=Judge())

def fill(leave_bytes):
    # Written, not only reserved; page by page at the end, so that exactly so much is left.
    with ballast.open("ab", buffering=0) as file:
        while (room := os.statvfs(disk).f_bavail * 4096 - leave_bytes) > 0:
            file.write(bytes(min(room, 2**20)))

def step(study):
    node = study.step()
    told.ok(f"node {node.number}", digest(node))

def settle():
    # What every case must come to: nothing lost, and tables like the journal.
    found = check(space, "s", Path(os.environ["HISTORY"]))
    assert found.faults == (), found.faults
    assert compare_tables(space) == []
    return found
"""


def find_way() -> list[str] | None:
    """The command before which a shell may mount a tmpfs of its own, seen by nobody else."""
    for way in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        try:
            done = subprocess.run([*way, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return way
    return None


WAY = find_way()
pytestmark = pytest.mark.skipif(WAY is None, reason="neither root nor user namespaces: no tmpfs can be mounted")


def on_small_disk(tmp_path, code: str) -> None:
    """Run code with a disk of 48 MB of its own."""
    assert WAY is not None
    script = tmp_path / "script.py"
    script.write_text(PREAMBLE + textwrap.dedent(code))
    disk = tmp_path / "disk"
    disk.mkdir()
    shell = f"mount -t tmpfs -o size={SIZE_MB}m none {disk} && exec {sys.executable} {script}"
    done = subprocess.run(
        [*WAY, "env", f"SMALL_DISK={disk}", f"HISTORY={tmp_path / 'history'}", "sh", "-c", shell],
        capture_output=True, text=True, timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_full_at_the_start_no_search_begins_and_the_error_says_what_to_do(tmp_path) -> None:
    on_small_disk(tmp_path, """
    fill(0)
    with pytest.raises(errors.StoreError, match="disk|Free some space|free some space"):
        begin()
    ballast.unlink()
    fill(2 * 2**20)
    with pytest.raises(errors.StoreError, match=r"is full: 2\\.\\d MB are free, and a search wants at least 4 MB"):
        begin()
    ballast.unlink()
    with begin() as study:
        step(study)
    fill(2 * 2**20)
    with pytest.raises(errors.StoreError, match=r"every node acknowledged so far is safe in the journal"):
        resume()
    ballast.unlink()
    with resume() as study:
        step(study)
    assert settle().acknowledged == 2
    """)


@pytest.mark.parametrize("left", [100_000, 60_000])
def test_full_in_the_middle_the_run_ends_with_all_it_acknowledged(tmp_path, left: int) -> None:
    """The same object goes on after space is freed, and so does a fresh one."""
    on_small_disk(tmp_path, f"""
    study = begin()
    for _ in range(3):
        step(study)
    fill({left})
    with pytest.raises(errors.StoreError, match="The disk is full: free some space, then go on with Study.resume"):
        study.run(100_000, progress=lambda node: told.ok(f"node {{node.number}}", digest(node)))
    stopped = len(study.tree)
    assert 3 <= stopped < 100_000
    ballast.unlink()
    step(study)
    study.close()
    assert settle().acknowledged >= 4
    fill({left} // 2)
    with pytest.raises(errors.StoreError):
        resume()
    ballast.unlink()
    with resume() as study:
        step(study)
    found = settle()
    assert found.stored > stopped
    """)


def test_full_while_tables_are_brought_up_to_date_the_search_goes_on_and_they_catch_up(tmp_path) -> None:
    """Import, rebuild and checkpoint, with room for the journal but not for the tables."""
    on_small_disk(tmp_path, """
    study = begin()
    for _ in range(300):
        step(study)
    fill(400_000)
    with pytest.raises(errors.StoreError, match="disk of .* is full .*free some space and ask again. Nothing is lost"):
        space.sync()  # builds
    step(study)
    ballast.unlink()
    space.sync()
    for _ in range(300):
        step(study)
    fill(300_000)
    with pytest.raises(errors.StoreError, match="disk of .* is full .*free some space and ask again. Nothing is lost"):
        space.sync()  # imports
    with pytest.raises(errors.StoreError, match="disk of .* is full .*free some space and ask again. Nothing is lost"):
        space.rebuild()
    step(study)
    ballast.unlink()
    assert space.sql("SELECT count(*) AS n FROM nodes")["n"][0] == 602
    study.close()
    assert not list(disk.glob("w/*.damaged-*")), "a full disk was taken for a damaged file"
    assert settle().acknowledged == 602
    """)
