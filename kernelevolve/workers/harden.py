"""What a process can give up or hide about itself: privileges, its memory, its rank before the out-of-memory killer."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

SWITCH = "KERNELEVOLVE_DUMPABLE"
"""Set to 1, processes of this package stay open to debuggers and profilers of the same user (py-spy, gdb, perf)."""

_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS, _CAP_AMBIENT = 1, 4, 24, 36, 38, 47
_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
FILE_CAPABILITIES = 0b1111
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER: what root needs to use files of other users."""
_FIRST_VICTIM = 800  # of 1000

ulong = ctypes.c_ulong
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def hide() -> None:
    """Close this process's memory and environment to other processes of its user, unless the switch says otherwise."""
    if os.environ.get(SWITCH) != "1":
        set_dumpable(False)


def set_dumpable(yes: bool) -> None:
    """Whether others of this user may read this process (/proc/PID/mem, environ, ptrace) and whether it dumps core."""
    libc.prctl(_SET_DUMPABLE, int(yes), 0, 0, 0)


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """Be sent a signal when the thread that started this process ends."""
    libc.prctl(_PDEATHSIG, int(how), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)


def first_to_go() -> None:
    """When memory runs out, the kernel is to end this process and its children before all others."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_FIRST_VICTIM))


def drop_privileges(keep: int = 0) -> None:
    """Give up every capability but those in the mask `keep`, and that any program started later has more.

    Raises OSError when the kernel refuses.
    """
    for number in range(64):  # an ordinary user may not, and need not: it has none to pass on
        if not keep >> number & 1:
            libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; low words, then high words
    check(libc.capget(header, held), "capget")
    permitted = held[1] & keep
    wanted = (ctypes.c_uint32 * 6)(permitted, permitted, 0, 0, 0, 0)
    check(libc.capset(header, wanted), "capset")
    check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def check(answer: int, what: str) -> None:
    """Raise OSError when a call of the C library failed."""
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
