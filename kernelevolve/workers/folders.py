"""Removing a folder that foreign code has filled: nested without end, unreadable, still being written to."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

_PATIENCE_S = 2.0


def remove(path: Path) -> None:
    """Remove `path` with all that is below it. Never raises; symbolic links are not followed."""
    deadline = time.monotonic() + _PATIENCE_S
    while path.exists() and not path.is_symlink():
        # Python's own cannot descend a thousand levels, nor into a folder without permissions.
        with contextlib.suppress(RecursionError, OSError):
            shutil.rmtree(path)
            return
        for command in (["chmod", "-R", "u+rwX", "--", str(path)], ["rm", "-rf", "--one-file-system", "--", str(path)]):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, timeout=60, check=False)
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
