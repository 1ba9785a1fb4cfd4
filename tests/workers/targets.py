"""What the workers of these tests run."""

import os
import subprocess
import time
from pathlib import Path

from kernelevolve import errors
from kernelevolve.workers import Channel


def raise_unknown(_: object) -> None:
    raise errors.UnknownNameError("colour", "red", ["blue"])


def leave_a_daemon(channel: Channel) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    shell = subprocess.run(
        ["bash", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, check=True
    )
    time.sleep(0.1)
    channel.send([child.pid, int(shell.stdout), os.getpid()])
    time.sleep(1000)


def print_without_end(_: Channel) -> None:
    while True:
        os.write(1, b"spam\n" * 1000)


def wait(_: Channel) -> None:
    time.sleep(1000)


def print_much(channel: Channel) -> None:
    """Print 200 MB, half of it in lines of a few bytes, then say so."""
    for _ in range(100):
        os.write(1, b"x" * 2**20)
    for _ in range(100 * 2**20 // 4096):
        os.write(1, b"spam\n\xff" * 682)
    channel.send("done")
    time.sleep(1000)


def fork_and_thread(channel: Channel) -> None:
    """Three child processes, five threads and 200 MB more than it began with."""
    import threading

    for _ in range(3):
        subprocess.Popen(["sleep", "1000"])
    for _ in range(5):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    kept = b"x" * (200 * 2**20)
    channel.send(len(kept))
    time.sleep(1000)


def ignore_signals(channel: Channel) -> None:
    import signal

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    channel.send(os.getpid())
    while True:
        time.sleep(0.001)


def leave_only_a_thread(channel: Channel) -> None:
    """End the first thread by the system call: the process lives on in another, and looks like a zombie."""
    import ctypes
    import platform
    import threading

    threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()
    channel.send(os.getpid())
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)


def tell_environment(_: object) -> dict[str, object]:
    try:
        start = Path("/proc/self/environ").read_text()
    except PermissionError:  # it is hidden, even from an ordinary user's own process
        start = ""
    return {"at start": start, "now": dict(os.environ)}


def tell_files(_: object) -> list[str]:
    found = []
    for path in list(Path("/proc/self/fd").iterdir()):
        if path.is_symlink():  # the one that listed them is gone
            found.append(str(path.readlink()))
    return found
