"""Processes: start, talk to, watch, kill. The only place of this package that starts Python processes.

Problem files, captures, references and candidates never run in the user's own process. Each runs in a fresh
process forked from one server that has torch imported (14 ms instead of 2 s), in a session of its own, with
its output in a bounded log. Whoever dies, the others go on; when the user's process dies, all of them go.

What this is not: a sandbox. It protects against accidents; see `evaluation/isolation/` for walls.
"""

from kernelevolve.workers.channel import Channel, ChannelClosedError
from kernelevolve.workers.pool import Exit, Worker, call, shutdown, start

__all__ = ["Channel", "ChannelClosedError", "Exit", "Worker", "call", "shutdown", "start"]
