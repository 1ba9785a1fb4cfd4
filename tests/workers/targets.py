"""What the workers of these tests run."""

import os
import subprocess
import time

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
