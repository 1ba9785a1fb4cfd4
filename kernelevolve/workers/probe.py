"""Tries a candidate's namespaces inside a sandbox: `python -m kernelevolve.workers.probe FOLDER HIDDEN...`.

Writes FOLDER/written from within and exits with 0, or says what failed and exits with 1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from kernelevolve.workers import harden, namespaces


def main(folder: str, *hidden: str) -> None:
    """Make the namespaces once."""
    def work() -> NoReturn:
        code = 1
        try:
            if [p.name for p in Path(folder).parent.iterdir()] == [Path(folder).name] and os.getpid() == 2:
                (Path(folder) / "written").touch()
                code = 0
        finally:
            os._exit(code)

    harden.adopt_orphans()  # the keeper's parent ends at once
    try:
        keeper, report = namespaces.open_worker(namespaces.Walls(hidden, folder), work)
    except namespaces.WallsError as error:
        sys.exit(str(error))
    os.waitpid(keeper, 0)
    if os.read(report, 4) != bytes(4):
        sys.exit("a process in namespaces of its own does not see what it should")


if __name__ == "__main__":
    main(*sys.argv[1:])
