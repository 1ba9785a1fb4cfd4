"""Limits and budgets of an evaluation, in one frozen record that is stored with every result."""

from __future__ import annotations

import dataclasses

from kernelevolve.errors import SettingError, UnknownNameError

RULE_SETS = ("strict", "kernelbench-v0.1", "kernelbench-main")
"""What correct may mean; `evaluation/rules.py` has them, which only the judge's process needs to import."""


def rule_set(name: str) -> str:
    """The name itself when there is such a rule set; raises UnknownNameError."""
    if name not in RULE_SETS:
        raise UnknownNameError("rule set", name, list(RULE_SETS))
    return name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What one evaluation may use. Times in seconds, sizes in bytes; 0 means "the platform's own choice"."""

    threads: int = 0
    """Threads that PyTorch and OpenMP use on both sides; 0 for every physical core of the affinity mask."""
    trials: int = 5
    """Correctness trials, each with fresh inputs; at least 5, because each input distribution needs one."""
    rounds: int = 12
    """Least number of timing rounds (6 where time_s is short); in each, every side is measured once, in ABBA order.

    12 give a 96 % interval of a median.
    """
    time_s: float = 1.0
    """Most that the rounds of one interleaved timing session may take."""
    tightness: float = 0.01
    """Half-width of the ratio's interval, relative, at which a session ends before its time; 0 for never."""
    baseline_time_s: float = 2.0
    """Time budget of the baselines' own session at start."""
    input_sets: int = 4
    """Input sets that timed calls rotate over (fewer when they would pass `input_bytes`)."""
    input_bytes: int = 2**30
    """Memory that the rotating input sets of one process may use."""
    flush_bytes: int = 128 * 2**20
    """Cap on the buffer written before every sample to empty the caches (twice the last-level cache below it)."""

    build_timeout_s: float = 60.0
    check_timeout_s: float = 60.0
    call_timeout_s: float = 20.0
    """One call of the candidate; never less than 20 times the reference's own."""
    time_timeout_s: float = 120.0
    compile_timeout_s: float = 300.0
    """Start and first call of a baseline, which may include minutes of torch.compile on a cold cache."""
    lock_timeout_s: float = 900.0
    """Longest wait for another process's timing session."""

    memory_bytes: int = 0
    """Memory of a candidate's processes together; 0 for half of the machine's, at least 4 GiB."""
    tasks: int = 0
    """Processes and threads that a candidate may have at a time; 0 for 512 and 8 for each of `threads`."""
    file_bytes: int = 2**30
    """Largest file that a candidate may write."""
    folder_bytes: int = 4 * 2**30
    """All that a candidate may have in its private folder; also the most that it may put in a memory file system."""
    files: int = 50_000
    """Files and folders that a candidate may have in its private folder."""
    output_bytes: int = 64 * 2**20
    """How much a candidate may print before it is ended."""

    baselines: tuple[str, ...] = ("eager", "compile")
    """Baselines beside the problem's own REFERENCES."""
    read_source: bool = True
    """Read a candidate's source for what no honest kernel needs, before it is run; see `evaluation/honesty.py`."""
    isolation: str = "auto"
    """What stands around a candidate's process: "process", "bubblewrap", "container", or "auto" for bubblewrap where it
    works and process elsewhere. A level that is named and not available is an error."""
    keep: bool = False
    """Keep every candidate's private folder for inspection."""

    def __post_init__(self) -> None:
        for name, low in (("trials", 5), ("rounds", 6), ("input_sets", 1), ("time_s", 0.01), ("tightness", 0)):
            value = getattr(self, name)
            if value < low:
                raise SettingError(f"{name}={value!r}: expected at least {low}")
        for field in dataclasses.fields(self):
            if field.name.endswith("_timeout_s") and getattr(self, field.name) <= 0:
                raise SettingError(f"{field.name} must be a positive number of seconds")
        unknown = set(self.baselines) - {"eager", "compile"}
        if unknown or "eager" not in self.baselines:
            raise SettingError(f"baselines={self.baselines!r}: expected ('eager',) or ('eager', 'compile')")
