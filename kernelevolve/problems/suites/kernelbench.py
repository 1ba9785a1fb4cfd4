"""KernelBench from a local checkout. Its files are not part of this package and are never copied into it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kernelevolve import errors
from kernelevolve.problems.suites.base import Suite, commit

VARIABLE = "KERNELBENCH_ROOT"
_FILE = re.compile(r"(\d+)_.*\.py")


class KernelBenchSuite(Suite):
    """KernelBench's problems as "LEVEL/ID", from files `level{L}/{id}_{Name}.py`.

    Args:
        root: The checkout, or the folder in it that holds `level1` and so on; the variable
            KERNELBENCH_ROOT by default. Raises SettingError when there is neither.
    """

    name = "kernelbench"

    def __init__(self, root: Path | None = None) -> None:
        given = root or os.environ.get(VARIABLE)
        if not given:
            raise errors.SettingError(
                f"the KernelBench suite needs a local checkout: set {VARIABLE} to its folder "
                "(git clone https://github.com/ScalingIntelligence/KernelBench), or name it in the problem: "
                "kernelbench:PATH/LEVEL/ID"
            )
        top = Path(given).expanduser()
        for folder in (top, top / "KernelBench"):
            if any(folder.glob("level*/")):
                self.root = folder
                break
        else:
            source = "" if root else f"{VARIABLE} is "
            raise errors.SettingError(
                f"{source}{top}: expected a KernelBench checkout with level1/, level2/ … in it or in its folder "
                f"KernelBench/, found {'neither' if top.is_dir() else 'no such folder'}"
            )

    def paths(self) -> dict[str, Path]:
        """"LEVEL/ID" to file, by level, then by number."""
        found: dict[tuple[int, int], Path] = {}
        for folder in self.root.glob("level*/"):
            level = folder.name.removeprefix("level")
            if level.isdigit():
                for path in folder.glob("*.py"):
                    if match := _FILE.fullmatch(path.name):
                        found[int(level), int(match[1])] = path
        return {f"{level}/{number}": found[level, number] for level, number in sorted(found)}

    def version(self) -> str:
        """The edition read off the files ("v0", "v0.1", "main") and the commit, such as "main@423217d".

        Editions differ in sizes, inputs and tolerance, so that results of two of them do not compare:
        v0 draws normal inputs, v0.1 uniform ones; main broadcasts the diagonal product of 1/12.
        """
        return "@".join(part for part in (self._edition(), commit(self.root)) if part)

    def _edition(self) -> str:
        texts = [next(iter(self.root.glob(f"level1/{n}_*.py")), None) for n in (1, 12)]
        if texts[0] is None or texts[1] is None:
            return ""
        first, diagonal = (p.read_text(errors="replace") for p in texts if p)
        if "torch.randn" in first:
            return "v0"
        return "v0.1" if re.search(r"return torch\.diag\(", diagonal) else "main"
