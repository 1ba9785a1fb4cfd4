"""Ctrl-C in a long run: the first one ends it after the work under way, the second one at once."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType

logger = logging.getLogger(__name__)


class Wish:
    """Whether the user wants to stop; true in a condition once they pressed Ctrl-C."""

    def __init__(self) -> None:
        self.stop = False

    def __bool__(self) -> bool:
        return self.stop


@contextlib.contextmanager
def graceful() -> Iterator[Wish]:
    """Within this block the first SIGINT only sets the wish; the second raises KeyboardInterrupt as usual.

    Outside the main thread signals cannot be caught (and do not arrive): the wish stays false there.
    """
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return

    def note(number: int, frame: FrameType | None) -> None:
        if wish:
            raise KeyboardInterrupt
        wish.stop = True
        logger.warning("stopping after the candidate under way; interrupt again to drop it and stop now")

    before = signal.signal(signal.SIGINT, note)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)
