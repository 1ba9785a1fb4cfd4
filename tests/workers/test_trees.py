"""Counting and ending what a worker started, and what stays with the user's process."""

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelevolve import workers
from kernelevolve.workers import environment, harden, tree
from tests.workers.test_workers import alive

ROOT = Path(__file__).parents[2]


@pytest.fixture
def branch():
    """A shell with two children, one of which has a child."""
    with subprocess.Popen(["bash", "-c", "sleep 1000 & (sleep 1000; true) & echo $BASHPID; wait"],
                          stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert int(shell.stdout.readline()) == shell.pid
        while len(tree._sift([shell.pid])) < 4:
            time.sleep(0.01)
        yield shell.pid
        for entry in tree._sift([shell.pid]):
            os.kill(entry.pid, 9)


def test_a_tree_is_found_with_its_size(branch):
    found = tree.descendants(branch)
    assert found[0].pid == branch
    assert len(found) == 4
    assert {e.parent for e in found[1:]} <= {e.pid for e in found}
    used = tree.Usage.of(found)
    assert (used.processes, used.threads) == (4, 4)
    assert used.resident_bytes > 2**20


@pytest.mark.skipif(not tree._HAS_CHILDREN, reason="this kernel does not list a thread's children")
def test_both_ways_of_finding_a_tree_find_the_same(branch):
    assert {e.pid for e in tree._walk([branch])} == {e.pid for e in tree._sift([branch])}


def test_ending_a_tree_leaves_nothing(branch):
    pids = [e.pid for e in tree.descendants(branch)]
    assert tree.end(lambda: [e for p in pids if (e := tree.read(p)) is not None], lambda: None)
    assert not any(alive(p) for p in pids)


def test_what_a_worker_uses_is_told_on_request():
    with workers.start("tests.workers.targets:fork_and_thread") as worker:
        worker.channel.recv(30)
        assert worker.usage is None
        deadline = time.monotonic() + 10
        while worker.usage is None and time.monotonic() < deadline:
            worker.poll(usage=True)
        assert worker.usage.processes == 4
        assert worker.usage.threads >= 9
        assert 200 * 2**20 < worker.usage.resident_bytes < 1000 * 2**20
        worker.kill()
        assert worker.left_behind == 3


def test_a_daemon_that_ignores_signals_dies_within_two_seconds():
    worker = workers.start("tests.workers.targets:ignore_signals")
    pid, _ = worker.channel.recv(30)
    begin = time.monotonic()
    worker.kill()
    assert time.monotonic() - begin < 2
    assert not alive(pid)
    assert worker.left_behind == 1


def test_a_process_that_lives_on_in_a_second_thread_is_killed():
    worker = workers.start("tests.workers.targets:leave_only_a_thread")
    pid, _ = worker.channel.recv(30)
    deadline = time.monotonic() + 5
    while tree.read(pid).state != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tree.read(pid).alive
    begin = time.monotonic()
    worker.kill()
    assert time.monotonic() - begin < 2
    assert tree.read(pid) is None


def test_two_hundred_megabytes_of_output_cost_this_process_little():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with workers.start("tests.workers.targets:print_much") as worker:
        worker.channel.recv(120)
        deadline = time.monotonic() + 30
        while worker.log_bytes < 199 * 2**20 and time.monotonic() < deadline:
            time.sleep(0.05)
        log = worker.log()
    assert worker.log_bytes > 199 * 2**20
    assert log.startswith("xxx")
    assert log.endswith("spam\n\ufffd")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


def test_workers_have_nothing_open_but_their_own():
    found = workers.call("tests.workers.targets:tell_files", None, timeout_s=60)
    assert {name.partition(":")[0] for name in found} == {"/dev/null", "pipe", "socket"}
    assert sum(name.startswith("socket") for name in found) == 1


@pytest.mark.parametrize(("name", "passes"), [
    ("PATH", True), ("LC_ALL", True), ("CUDA_VISIBLE_DEVICES", True), ("OMP_NUM_THREADS", True), ("TORCH_LOGS", True),
    ("KERNELEVOLVE_WORKSPACE", True), ("OPENAI_API_KEY", False), ("KERNELEVOLVE_API_KEY", False),
    ("TORCH_TOKEN", False), ("CUDA_password", False), ("AWS_SECRET_ACCESS_KEY", False), ("SSH_AUTH_SOCK", False),
    ("EDITOR", False),
    ("DBUS_SESSION_BUS_ADDRESS", False), ("http_proxy", False)])
def test_variables_pass_by_their_names(name, passes):
    assert environment.allowed(name) is passes
    assert (name in environment.scrubbed({name: "x"})) is passes


def in_a_fresh_process(code: str, **variables: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, text=True, timeout=120,
                          capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_key_of_the_users_is_in_no_environment_of_a_worker():
    told = in_a_fresh_process("from kernelevolve import workers\n"
                              "print(workers.call('tests.workers.targets:tell_environment', None, timeout_s=60))",
                              OPENAI_API_KEY="planted-4713", TRITON_SECRET="planted-4713", TRITON_CACHE_MANAGER="kept")
    assert "planted-4713" not in told
    assert told.count("kept") == (2 if os.getuid() == 0 else 1)


@pytest.mark.parametrize(("switch", "hidden"), [("", True), ("1", False)])
def test_a_hidden_process_does_not_dump_and_works_on(switch, hidden):
    code = """
import ctypes, os, subprocess
from kernelevolve.workers import hide
hide()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
fd = os.memfd_create("x")
os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
assert os.listdir("/proc/self/fd") and open("/proc/self/maps").read() and open("/proc/self/stat").read()
print(subprocess.run(["echo", "works"], capture_output=True, text=True, check=True).stdout)
"""
    said = in_a_fresh_process(code, **{harden.SWITCH: switch}).split()
    assert said == ["0" if hidden else "1", "works"]


def test_servers_outlive_the_thread_that_asked_for_them():
    found = []
    workers.shutdown()
    thread = threading.Thread(target=lambda: found.append(workers.start("tests.workers.targets:wait")))
    thread.start()
    thread.join()
    time.sleep(0.3)
    assert found[0].poll() is None
    found[0].kill()


def test_a_guarded_folder_goes_with_a_killed_process_and_a_released_one_stays(tmp_path):
    for name in ("guarded", "released"):
        (tmp_path / name / "below").mkdir(parents=True)
    in_a_fresh_process(f"""
import os, time
from pathlib import Path
from kernelevolve import workers
for name in ("guarded", "released"):
    workers.guard(Path({str(tmp_path)!r}) / name)
workers.release(Path({str(tmp_path)!r}) / "released")
if os.fork() == 0:  # a copy of the process, with the socket to the server: it must not keep that from noticing
    os.closerange(0, 3)
    time.sleep(15)
os._exit(0)
""")
    deadline = time.monotonic() + 10
    while (tmp_path / "guarded").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not (tmp_path / "guarded").exists()
    assert (tmp_path / "released" / "below").exists()
