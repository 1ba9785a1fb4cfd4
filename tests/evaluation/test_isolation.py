import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelevolve import errors, workers
from kernelevolve.evaluation import Evaluator, isolation
from kernelevolve.evaluation.candidate import EndedError
from kernelevolve.evaluation.isolation import Enclosure, Isolation, Room, container
from kernelevolve.evaluation.isolation.watch import FolderWatch
from kernelevolve.records import Status
from kernelevolve.settings import Settings
from kernelevolve.workers import harden
from tests.evaluation.enclosed import Enclosed, running
from tests.evaluation.problems import ADD, ADD_NEW, QUICK, problem, proposal

SECRET = "planted-4711"


class Vault(Isolation):
    name = "vault"

    def available(self):
        return False, "no door"

    def open(self, room):
        raise AssertionError("never reached")


@pytest.fixture
def here(tmp_path):
    with Enclosed(tmp_path, "process") as enclosed:
        yield enclosed


def test_an_unknown_level_is_refused():
    with pytest.raises(errors.UnknownNameError, match="process"):
        isolation.get("submarine")


def test_an_unavailable_level_is_refused_and_no_weaker_one_taken(monkeypatch):
    monkeypatch.setitem(isolation.LEVELS, "vault", Vault())
    with pytest.raises(errors.SettingError, match="no door"):
        isolation.get("vault")
    with pytest.raises(errors.SettingError, match="no door"):
        Evaluator(problem(ADD), settings=Settings(isolation="vault"))


def test_auto_takes_bubblewrap_where_it_works_and_process_elsewhere(monkeypatch):
    works, _ = isolation.LEVELS["bubblewrap"].available()
    assert isolation.get("auto").name == ("bubblewrap" if works else "process")
    monkeypatch.setitem(isolation.LEVELS, "bubblewrap", Vault())
    assert isolation.get("auto").name == "process"


def test_the_level_that_auto_took_is_what_results_and_environment_say(tmp_path):
    level = isolation.get("auto").name
    with Evaluator(problem(ADD), settings=dataclasses.replace(QUICK, isolation="auto"), scratch=tmp_path) as e:
        assert e.evaluate(proposal(ADD_NEW)).isolation == level
        assert e.baseline.environment["isolation"] == level


def test_no_variable_of_the_user_reaches_a_worker_but_those_on_the_list(tmp_path):
    code = """
import sys
from pathlib import Path
from tests.evaluation.enclosed import Enclosed
with Enclosed(Path(sys.argv[1]), "process") as e:
    print(e.told("import os; tell = [open('/proc/self/environ').read(), dict(os.environ)]"))
"""
    given = {"OPENAI_API_KEY": SECRET, "TORCH_TOKEN": SECRET, "EDITOR": SECRET, "LC_TIME": "C.UTF-8",
             "TRITON_PRINT_AUTOTUNING": "1"}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env={**os.environ, **given}, text=True,
                          capture_output=True, cwd=Path(__file__).parents[2], timeout=120, check=True)
    assert SECRET not in done.stdout
    assert "'LC_TIME': 'C.UTF-8'" in done.stdout
    assert "'TRITON_PRINT_AUTOTUNING': '1'" in done.stdout


def test_a_candidate_has_no_privilege_that_reaches_other_processes(here):
    held = here.told("tell = [l.split()[1] for l in open('/proc/self/status') if l[:6] in ('CapPrm', 'NoNewP')]")
    assert int(held[0], 16) & ~harden.FILE_CAPABILITIES == 0
    assert held[1] == "1"


def test_a_candidate_cannot_read_the_memory_of_the_server_or_of_its_user(here):
    workers.hide()
    names = [f"/proc/{pid}/{what}" for pid in (os.getpid(), here.server_pid()) for what in ("environ", "mem")]
    refused = here.told(f"""
tell = []
for name in {names}:
    try:
        open(name, "rb").read(1)
    except PermissionError:
        tell.append(name)
""")
    assert refused == names


def test_a_daemon_dies_with_its_candidate_and_is_counted(here):
    candidate = here.start("""
import subprocess, time
subprocess.run(["bash", "-c", "setsid sleep 98761 </dev/null >/dev/null 2>&1 & disown"])
subprocess.Popen(["sleep", "98761"])
time.sleep(0.2)
class ModelNew: pass
""")
    candidate.build()
    assert len(running("98761")) == 2
    candidate.end()
    assert candidate.left_behind == 2
    assert running("98761") == []


def test_processes_that_multiply_are_all_killed(here):
    """Two shells that fork without end, each of their children for a quarter of a second; nothing of it can hurt."""
    candidate = here.start("""
import os, signal, subprocess, time
BOMB = '''
grow() { for i in 1 2 3 4 5 6 7 8; do (exec -a bomb-98762 sleep 0.25) & done; wait; }
trap "" TERM
while :; do grow & sleep 0.01; done
'''
for _ in range(2):
    subprocess.Popen(["setsid", "bash", "-c", BOMB, "bomb-98762"])
time.sleep(1000)
""", tasks=100)
    begin = time.monotonic()
    with pytest.raises(EndedError) as ended:
        candidate.build()
    assert ended.value.verdict.status is Status.RESOURCE_LIMIT
    assert "at most 100" in ended.value.verdict.detail
    assert time.monotonic() - begin < 8
    time.sleep(0.3)
    assert running("bomb-98762") == []


def test_memory_of_all_processes_together_is_limited(here):
    candidate = here.start("""
import os, time
for _ in range(3):
    if os.fork() == 0:
        kept = bytearray(400 * 2**20)
        time.sleep(1000)
time.sleep(1000)
""", memory_bytes=2**30, own_limit=False)
    with pytest.raises(EndedError) as ended:
        candidate.build()
    assert ended.value.verdict.status is Status.OUT_OF_MEMORY


def test_a_folder_that_fills_is_noticed_while_the_candidate_runs(here):
    candidate = here.start("""
import time
for i in range(10**6):
    open(f"../work/{i}", "w").close()
    time.sleep(0.0002)
""", files=500)
    begin = time.monotonic()
    with pytest.raises(EndedError) as ended:
        candidate.build()
    assert ended.value.verdict.status is Status.DISK_LIMIT
    assert "more than 500 files" in ended.value.verdict.detail
    assert time.monotonic() - begin < 8


def test_what_lies_too_deep_for_a_path_is_counted_and_removed(tmp_path):
    code = f"""
import os
os.chdir({str(tmp_path)!r})
os.mkdir("top"); os.chdir("top")
for _ in range(40):
    os.mkdir("d" * 200); os.chdir("d" * 200)
open("file", "wb").write(bytes(2**20))
os.chmod(".", 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    top = tmp_path / "top"
    if os.getuid() == 0:  # others cannot look into the last folder
        assert "bytes" in FolderWatch(top, most_bytes=2**20, most_files=1000).whole()
    assert "files" in FolderWatch(top, most_bytes=2**30, most_files=20).whole()
    assert FolderWatch(top, most_bytes=2**30, most_files=1000).whole() is None
    workers.remove(top)
    assert not top.exists()


@pytest.mark.parametrize("level", ["process", "bubblewrap"])
def test_a_killed_user_leaves_no_folder_and_no_process(tmp_path, level):
    if not isolation.LEVELS[level].available()[0]:
        pytest.skip(isolation.LEVELS[level].available()[1])
    code = f"""
import dataclasses, sys
from pathlib import Path
from kernelevolve.evaluation import Evaluator
from tests.evaluation.problems import ADD, QUICK, problem, proposal
with Evaluator(problem(ADD), settings=dataclasses.replace(QUICK, isolation={level!r}, build_timeout_s=60),
               scratch=Path({str(tmp_path)!r})) as e:
    e.start()
    print("begun", flush=True)
    e.evaluate(proposal("import subprocess; subprocess.run(['sleep', '98763'])"))
"""
    user = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                            cwd=Path(__file__).parents[2])
    assert user.stdout.readline() == "begun\n"
    deadline = time.monotonic() + 30
    while not running("98763") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running("98763")
    assert list(tmp_path.iterdir())
    user.send_signal(signal.SIGKILL)
    user.wait()
    deadline = time.monotonic() + 10
    while (running("98763") or list(tmp_path.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running("98763") == []
    assert list(tmp_path.iterdir()) == []


def test_a_container_gets_no_network_no_writable_system_and_quotas(tmp_path):
    root, meeting = tmp_path / "root", tmp_path / "meeting"
    room = Room(root=root, memory_bytes=2**30, tasks=100, memory_files_bytes=2**20)
    words = container.arguments("docker", room, meeting, ["PATH", "LANG"])
    pairs = set(itertools.pairwise(words))
    assert pairs >= {("--network", "none"), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"),
                     ("--pids-limit", "164"), ("--memory", str(3 * 2**30)), ("--memory-swap", str(3 * 2**30)),
                     ("--volume", f"{root}:{root}:rw"), ("--env", "LANG")}
    assert {"--read-only", "--rm"} <= set(words)
    writable = [b for a, b in pairs if a == "--volume" and not b.endswith(":ro")]
    assert writable == [f"{root}:{root}:rw"]
    assert not any(b.split(":")[0] in ("/", "/etc", "/home", "/root", str(Path.home())) for _, b in pairs)
    assert words[-1] == container.IMAGE


def test_a_container_engine_that_does_not_answer_is_refused_with_what_it_said(tmp_path, monkeypatch):
    (tmp_path / "docker").write_text("#!/bin/sh\necho Cannot connect to the daemon >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(container, "ENGINES", ("docker", "no-such-engine"))
    container.find_engine.cache_clear()
    try:
        with pytest.raises(errors.SettingError, match="Cannot connect to the daemon; no-such-engine is not installed"):
            isolation.get("container")
        with pytest.raises(errors.WorkerError, match="no container engine"):
            isolation.LEVELS["container"].open(Room(root=tmp_path, memory_bytes=1, tasks=1, memory_files_bytes=1))
    finally:
        container.find_engine.cache_clear()


def test_a_level_without_a_server_of_its_own_shares_the_process_wide_one():
    with_nothing = Enclosure()
    with_nothing.await_ready()
    with_nothing.close()
    assert isolation.LEVELS["process"].available() == (True, "")
