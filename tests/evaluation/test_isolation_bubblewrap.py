"""What a candidate can do at level bubblewrap, tried by candidates in a real sandbox."""

import dataclasses
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kernelevolve import workers
from kernelevolve.errors import WorkerError
from kernelevolve.evaluation import Evaluator, isolation
from kernelevolve.evaluation.candidate import EndedError
from kernelevolve.records import Problem, Proposal, Status
from kernelevolve.testing import villains
from tests.evaluation.enclosed import MEMORY_FILES_BYTES, Enclosed, running
from tests.evaluation.problems import QUICK

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")

SECRET = "planted-4712"
REFUSED = """
import os
def refused(act):
    try:
        act()
    except OSError as error:
        return error.strerror
    return "done"
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    assert isolation.LEVELS["bubblewrap"].available() == (True, "")
    os.environ["ANTHROPIC_API_KEY"] = os.environ["TORCH_SECRET"] = SECRET
    workers.shutdown()  # so that the server of plain workers is one that had the key before its eyes, too
    try:
        with Enclosed(tmp_path_factory.mktemp("root"), "bubblewrap") as enclosed:
            yield enclosed
    finally:
        del os.environ["ANTHROPIC_API_KEY"], os.environ["TORCH_SECRET"]


def test_the_network_is_out_of_reach_and_so_is_this_machine(box):
    with socket.create_server(("127.0.0.1", 0)) as server:
        answers = box.told(f"""{REFUSED}
import socket
def reach(address):
    with socket.socket() as s:
        s.settimeout(3)
        s.connect(address)
tell = [refused(lambda: reach(("1.1.1.1", 80))), refused(lambda: reach(("127.0.0.1", {server.getsockname()[1]})))]
""")
    assert answers == ["Network is unreachable", "Network is unreachable"]


def test_home_and_the_rest_of_etc_are_absent(box):
    home = Path.home()
    seen = box.told(f"""
import os
home = {str(home)!r}
tell = [os.path.exists("/etc/passwd"), os.listdir("/etc"), os.path.exists(home) and os.listdir(home)]
""")
    assert seen[0] is False
    assert set(seen[1]) <= {"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"}
    # A home that holds Python itself, or the candidates' folder, shows the way there, and nothing else.
    python = [p for p in (sys.prefix, sys.base_prefix, *sys.path, box.root) if Path(p).is_relative_to(home)]
    assert set(seen[2] or []) <= {Path(p).relative_to(home).parts[0] for p in python if Path(p) != home}


def test_it_sees_itself_alone(box):
    me, others, files, keeper = box.told(f"""{REFUSED}
paths = [f"/proc/self/fd/{{n}}" for n in os.listdir("/proc/self/fd")]
files = [os.readlink(p) for p in paths if os.path.lexists(p)]  # the one that listed them is gone
tell = [os.getpid(), [n for n in os.listdir("/proc") if n.isdigit()], files, refused(lambda: open("/proc/1/mem"))]
""")
    assert me == 2
    assert set(others) <= {"1", "2"}
    assert keeper in ("No such file or directory", "Operation not permitted", "Permission denied")
    assert {f.partition(":")[0] for f in files} == {"/dev/null", "pipe", "socket"}


def test_it_cannot_signal_anybody(box):
    answers = box.told(f"""{REFUSED}
import signal
os.kill(1, signal.SIGKILL)  # the kernel drops it: process 1 cannot be killed from inside
tell = [refused(lambda: os.kill(pid, signal.SIGKILL)) for pid in ({os.getpid()}, {box.server_pid()})]
""")
    assert answers == ["No such process"] * 2


def test_it_cannot_read_another_candidates_folder(box):
    other = box.start("class ModelNew: pass")
    (other.folder / "secret").write_text("x")
    mine, theirs = box.told(f"""{REFUSED}
tell = [os.listdir({str(box.root)!r}), refused(lambda: open({str(other.folder / "secret")!r}))]
""")
    assert len(mine) == 1
    assert mine[0] != other.folder.name
    assert theirs == "No such file or directory"


def test_keys_of_the_user_are_in_no_environment_that_it_can_read(box):
    environments = box.told("""
import os
tell = []
for name in os.listdir("/proc"):
    try:
        tell.append(open(f"/proc/{name}/environ").read())
    except OSError:
        pass
""")
    assert any("PYTHONPATH" in text for text in environments)
    assert not any(SECRET in text for text in environments)


def test_nothing_outside_its_folder_can_be_written(box, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("alive")
    package = Path(workers.__file__)
    paths = [canary, package, package.parent / "new.py", Path(sys.prefix) / "new", *map(Path, (
        "/new", "/usr/new", "/etc/new", "/dev/new", "/proc/sys/kernel/core_pattern", "/proc/self/comm"))]
    answers = box.told(f"""{REFUSED}
tell = [refused(lambda: open(p, "r+" if os.path.isfile(p) else "w")) for p in {list(map(str, paths))}]
tell.append(refused(lambda: open("../work/mine", "w")))
""")
    assert answers[-1] == "done"
    assert set(answers[:-1]) <= {"Read-only file system", "No such file or directory", "Permission denied"}
    assert canary.read_text() == "alive"
    assert not (package.parent / "new.py").exists()


def test_tmp_and_shared_memory_are_its_own_and_end_at_their_size(box):
    fill = f"""{REFUSED}
def fill(folder):
    with open(folder + "/file", "wb") as file:
        for _ in range(64):
            file.write(bytes(2**20))
tell = []
for folder in ("/tmp", "/dev/shm"):
    s = os.statvfs(folder)
    tell += [os.path.exists(folder + "/file"), s.f_blocks * s.f_bsize, refused(lambda: fill(folder))]
"""
    for _ in range(2):  # the second finds nothing of the first's
        assert box.told(fill) == [False, MEMORY_FILES_BYTES, "No space left on device"] * 2


def test_it_has_no_privilege_and_gets_none(box):
    answers = box.told(f"""{REFUSED}
import ctypes, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    return "done" if getattr(libc, name)(*arguments) == 0 else os.strerror(ctypes.get_errno())
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
tell = [[status[k].strip() for k in ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs")],
        subprocess.run(["unshare", "--user", "true"], capture_output=True, text=True).stderr,
        call("umount2", b"/tmp", 2), call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        call("setns", os.open("/proc/self/ns/mnt", os.O_RDONLY), 0)]
""")
    none = "0" * 16
    assert answers[0] == [none, none, none, "1"]
    assert "No space left on device" in answers[1]  # room for no user namespace, in which it would have privileges
    assert answers[2:] == ["Operation not permitted"] * 3


def test_a_daemon_dies_with_its_candidate_and_is_counted(box):
    candidate = box.start("""
import subprocess, time
subprocess.run(["bash", "-c", "setsid sleep 98764 </dev/null >/dev/null 2>&1 & disown"])
subprocess.Popen(["sleep", "98764"])
time.sleep(0.2)
class ModelNew: pass
""")
    candidate.build()
    assert len(running("98764")) == 2
    candidate.end()
    assert candidate.left_behind == 2
    assert running("98764") == []


def test_a_daemon_dies_when_the_candidate_ends_by_itself(box):
    candidate = box.start("""
import os, subprocess, time
subprocess.run(["bash", "-c", "setsid sleep 98765 </dev/null >/dev/null 2>&1 & disown"])
time.sleep(0.2)
os._exit(7)
""")
    with pytest.raises(EndedError) as ended:
        candidate.build()
    assert "exit code 7" in ended.value.verdict.detail
    assert running("98765") == []


@pytest.mark.parametrize(("act", "told"), [
    ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"), ("os.abort()", "SIGABRT"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL")])
def test_the_signal_that_ended_it_is_told(box, act, told):
    candidate = box.start(f"import os, signal\n{act}")
    with pytest.raises(EndedError) as ended:
        candidate.build()
    assert ended.value.verdict.status is Status.CRASHED
    assert told in ended.value.verdict.detail


def test_processes_that_wait_are_counted_and_all_killed(box):
    candidate = box.start("""
import subprocess, time
for _ in range(100):
    subprocess.Popen(["setsid", "sleep", "98766"])
time.sleep(1000)
""", tasks=80)
    begin = time.monotonic()
    with pytest.raises(EndedError) as ended:
        candidate.build()
    assert ended.value.verdict.status is Status.RESOURCE_LIMIT
    assert time.monotonic() - begin < 8
    assert running("98766") == []


def test_its_process_is_found_from_outside(box):
    candidate = box.start("class ModelNew: pass")
    candidate.build()
    status = Path(f"/proc/{candidate.worker.pid}/status").read_text()
    assert "\t2\n" in next(line + "\n" for line in status.splitlines() if line.startswith("NSpid"))


def test_a_sandbox_that_died_is_replaced(box):
    server = box.enclosure.server.get()
    server.process.kill()
    server.process.wait()
    assert box.told("tell = 1") == 1


def test_rooms_without_a_place_of_their_own_share_a_sandbox_and_do_not_see_each_other():
    level = isolation.get("bubblewrap")
    with Enclosed(Path(tempfile.mkdtemp(dir=level.shared_folder())), "bubblewrap") as a:
        with Enclosed(Path(tempfile.mkdtemp(dir=level.shared_folder())), "bubblewrap") as b:
            assert a.enclosure.server is b.enclosure.server
            seen = b.told(f"""
import os
tell = [os.listdir({str(level.shared_folder())!r}), os.path.exists({str(a.root)!r})]
""")
        assert seen == [[b.root.name], False]
        assert a.told("tell = 1") == 1


def test_namespaces_that_cannot_be_made_are_an_error_that_says_why(box):
    with pytest.raises(WorkerError, match="No such file"):
        box.enclosure.start("time:sleep", folder=box.root / "absent", env={}, cwd=box.root, limits={})


def test_a_built_kernel_is_correct_and_neither_problem_nor_judge_can_be_seen(tmp_path):
    record = Problem(id="test/softmax", source=villains.problem_source(), code_hash="0")
    look = f"""
import os
import torch
FOUND = [os.path.join(b, f) for b, _, files in os.walk({str(tmp_path)!r}) for f in files if f == "problem.py"]
class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        raise LookupError(f"saw {{FOUND}} and {{os.listdir({str(tmp_path)!r})}}")
"""
    settings = dataclasses.replace(QUICK, isolation="bubblewrap")
    with Evaluator(record, settings=settings, scratch=tmp_path) as evaluator:
        good = evaluator.evaluate(Proposal(source=villains.good_source(), language="", operator="hand"))
        assert good.status is Status.CORRECT, good.detail
        assert good.isolation == "bubblewrap"
        assert list(tmp_path.rglob("problem.py"))
        seen = evaluator.evaluate(Proposal(source=look, language="", operator="hand"))
        assert f"saw [] and {[evaluator._root.name]}" in seen.detail
    assert list(tmp_path.iterdir()) == []


def test_a_shared_folder_that_went_with_a_shutdown_is_made_anew():
    level = isolation.get("bubblewrap")
    before = level.shared_folder()
    workers.shutdown()
    deadline = time.monotonic() + 10
    while before.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with Enclosed(Path(tempfile.mkdtemp(dir=level.shared_folder())), "bubblewrap") as a:
        assert a.told("tell = 1") == 1
