"""Flip bytes in a workspace's files, one at a time, and see whether an answer changes.

    python -m kernelevolve.testing.damage WORKSPACE SEED COUNT FILE [FILE]

flips bytes of the last file named (the others are put back with it): those of a DuckDB file's headers, and COUNT at
random. It prints per byte its place, the names of the tables that differ from the journal, and whether the database was
made anew. A process of its own, because a damaged file may kill whoever opens it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelevolve.store import Workspace
from kernelevolve.testing.history import compare_tables

HEADERS = (0, 8, 12, 50, 4096, 4100, 8192, 8200)
"""Checksum, magic bytes and versions of a DuckDB file, then its two headers."""


def flip_each(
    space: Workspace, files: Sequence[Path], *, seed: int, count: int
) -> Iterator[tuple[int, list[str], bool]]:
    """Yields (place, tables that differ, whether the database was made anew) and leaves the files as they were."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    good = {path: path.read_bytes() for path in files}
    content = good[files[-1]]
    places = [p for p in HEADERS if p < len(content)] + [rng.randrange(len(content)) for _ in range(count)]
    for place in places:
        _put_back(good)
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.randrange(8)
        files[-1].write_bytes(damaged)
        differing = compare_tables(space)
        asides = list(space.path.glob("*.damaged-*"))
        yield place, differing, bool(asides)
        for aside in asides:
            aside.unlink()
    _put_back(good)


def _put_back(good: dict[Path, bytes]) -> None:
    for path, content in good.items():
        path.write_bytes(content)


def main() -> None:
    """The command line above."""
    workspace, seed, count, *files = sys.argv[1:]
    for outcome in flip_each(Workspace(workspace), [Path(f) for f in files], seed=int(seed), count=int(count)):
        sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main()
