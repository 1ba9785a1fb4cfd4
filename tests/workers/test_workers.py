import os
import time
from pathlib import Path

import pytest

from kernelevolve import errors, workers
from kernelevolve.workers import Channel, ChannelClosedError


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_function_runs_in_another_process_and_its_answer_comes_back():
    assert workers.call("math:sqrt", 16, timeout_s=60) == 4.0


def test_a_second_start_is_quick_because_torch_is_already_imported():
    workers.call("math:sqrt", 1, timeout_s=60)
    start = time.monotonic()
    workers.call("math:sqrt", 1, timeout_s=60)
    assert time.monotonic() - start < 1.0


def test_an_error_of_the_package_is_raised_here_with_its_own_message():
    with pytest.raises(errors.UnknownNameError, match=r"unknown colour 'red'; known: blue"):
        workers.call("tests.workers.targets:raise_unknown", None, timeout_s=60)


def test_a_dead_worker_is_a_worker_error_that_says_how_it_died():
    with pytest.raises(errors.WorkerError, match="exit code 3"):
        workers.call("os:_exit", 3, timeout_s=60)


def test_a_slow_worker_is_a_worker_error_that_names_the_limit():
    with pytest.raises(errors.WorkerError, match=r"within 0\.3 s"):
        workers.call("time:sleep", 60, timeout_s=0.3)


def test_kill_ends_children_and_daemons_that_left_the_process_group(tmp_path):
    worker = workers.start("tests.workers.targets:leave_a_daemon", cwd=tmp_path)
    pids, _ = worker.channel.recv(30)
    assert all(alive(p) for p in pids)
    worker.kill()
    deadline = time.monotonic() + 2
    while any(alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(p) for p in pids)


def test_endless_output_is_kept_at_head_and_tail_only():
    worker = workers.start("tests.workers.targets:print_without_end")
    deadline = time.monotonic() + 30
    while worker.log_bytes < 1_000_000 and time.monotonic() < deadline:
        time.sleep(0.02)
    worker.kill()
    log = worker.log()
    assert worker.log_bytes >= 1_000_000
    assert len(log) < 3 * 32 * 1024
    assert "left out" in log


def test_a_message_larger_than_the_limit_closes_the_channel_instead_of_filling_memory():
    a, b = Channel.pair()
    a.sock.send((2**40).to_bytes(8, "little"))
    with pytest.raises(ChannelClosedError, match="limit"):
        b.recv(5)


def test_bytes_that_are_no_json_close_the_channel():
    a, b = Channel.pair()
    a.sock.send((3).to_bytes(8, "little") + b"\x80\x04.")
    with pytest.raises(ChannelClosedError, match="not JSON"):
        b.recv(5)


def test_descriptors_travel_beside_the_message():
    a, b = Channel.pair()
    fd = os.memfd_create("x")
    os.write(fd, b"hello")
    a.send({"n": 5}, [fd])
    message, (other,) = b.recv(5)
    assert message == {"n": 5}
    assert os.pread(other, 5, 0) == b"hello"


def test_all_workers_go_when_their_owner_is_killed(tmp_path):
    import signal
    import subprocess
    import sys

    script = "from kernelevolve import workers; w = workers.start('time:sleep'); print(w.pid, flush=True); input()"
    script = script.replace("'time:sleep'", "'tests.workers.targets:wait'")
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    pid = int(owner.stdout.readline())
    assert alive(pid)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 3
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)
