"""Processes: start, talk to, watch, kill. The only place of this package that starts Python processes.

Problem files, captures, references and candidates never run in the user's own process. Each runs in a fresh
process forked from a server that has torch imported (14 ms instead of 2 s), in a session of its own, with
its output in a bounded log. Whoever dies, the others go on; when the user's process dies, all of them go.

What a plain worker is not: a sandbox. It protects against accidents; see `evaluation/isolation/` for walls.
"""

from kernelevolve.workers.channel import Channel, ChannelClosedError
from kernelevolve.workers.connection import Connection
from kernelevolve.workers.environment import scrubbed
from kernelevolve.workers.folders import remove
from kernelevolve.workers.harden import hide
from kernelevolve.workers.pool import call, guard, release, shutdown, start
from kernelevolve.workers.worker import Exit, Worker

__all__ = [
    "Channel", "ChannelClosedError", "Connection", "Exit", "Worker", "call", "guard", "hide", "release", "remove",
    "scrubbed", "shutdown", "start",
]
