"""The frozen nouns that every stage shares. Facts only: what can be derived is a property, nothing here acts.

`to_dict` and `from_dict` turn any of them into plain JSON values and back; the journal stores exactly that.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Status(enum.StrEnum):
    """What became of a candidate. Exactly one per node."""

    CORRECT = "correct"
    """Every leaf of every trial within the rule set's tolerance."""
    WRONG_VALUE = "wrong_value"
    """Right structure, wrong numbers (or NaN where the reference is finite)."""
    WRONG_SHAPE = "wrong_shape"
    """A leaf has another shape than the reference's."""
    WRONG_DTYPE = "wrong_dtype"
    """A leaf has another dtype than the reference's."""
    WRONG_STRUCTURE = "wrong_structure"
    """Not the reference's nesting: a missing output, None, a list for a tensor."""
    MUTATED_INPUT = "mutated_input"
    """An input differs after the call, and the problem does not allow that."""
    DISHONEST = "dishonest"
    """Broke a rule of honesty: a lazy subclass, an alias of an input, a library fallback."""
    SUSPECT = "suspect"
    """Faster than the physical bound, or clocks that disagree: quarantined until confirmed."""
    COMPILE_ERROR = "compile_error"
    """The source did not import or compile."""
    COMPILE_TIMEOUT = "compile_timeout"
    """Import or compilation passed its limit."""
    RUNTIME_ERROR = "runtime_error"
    """The candidate raised an exception while it was built or called."""
    LAUNCH_ERROR = "launch_error"
    """The device refused the launch: too much shared memory, a grid of zero."""
    DEVICE_FAULT = "device_fault"
    """The device faulted; its context cannot be used again."""
    CRASHED = "crashed"
    """The process died: a signal, or an exit without an answer."""
    TIMEOUT = "timeout"
    """A call passed its limit and the process group was killed."""
    OUT_OF_MEMORY = "out_of_memory"
    """The memory limit was hit."""
    DISK_LIMIT = "disk_limit"
    """Too much written to its private folder."""
    RESOURCE_LIMIT = "resource_limit"
    """Too many processes or threads, or some left behind."""
    NO_CODE = "no_code"
    """The writer's reply held no source, or the move could not be applied."""
    TRUNCATED = "truncated"
    """The writer's reply was cut off."""
    REFUSED = "refused"
    """The writer declined."""
    DUPLICATE = "duplicate"
    """The same program as an earlier node, which it names; not measured again."""
    LOST = "lost"
    """The search was killed while this candidate was under way: neither right nor wrong."""
    HARNESS_ERROR = "harness_error"
    """This package's own fault; never the candidate's."""


class _Shown:
    """Draws itself as a card in a notebook and as a line in a terminal; see show.py."""

    def _repr_html_(self) -> str:
        from kernelevolve import show

        return show.html(self)

    def __repr__(self) -> str:
        from kernelevolve import show

        return show.text(self)


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one tensor; `dtype` is torch's name without the prefix ("float32", "int64", "bool")."""

    shape: tuple[int, ...]
    dtype: str
    name: str = ""

    @property
    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n


@dataclasses.dataclass(frozen=True)
class Problem:
    """An operator to be made fast, as checked at load. `source` is the whole file; it is only ever run in a worker."""

    id: str
    """"suite/name", such as "cpu/rms_norm" or "kernelbench/1/23"; stable across machines."""
    source: str
    code_hash: str
    """MD5 of the code without docstrings, comments and white space (KernelBench's identity rule)."""
    suite: str = "file"
    suite_version: str = ""
    path: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    """Tensor inputs of the tuned case, in order; other arguments are left out."""
    outputs: tuple[TensorSpec, ...] = ()
    """Leaves of the reference's output, flattened depth first."""
    parameters: tuple[TensorSpec, ...] = ()
    references: tuple[str, ...] = ()
    """Names of further honest PyTorch forms of the function (the file's REFERENCES)."""
    cases: tuple[str, ...] = ()
    """Names of the input settings in the file's CASES."""
    tolerance: float | None = None
    """The file's TOLERANCE: scales the rule set's own; None when absent."""
    backward: bool = False
    weak: str = ""
    """Why a stub could pass (constant output, insensitive to inputs); empty for a sound problem."""
    bytes_min: int = 0
    """Bytes that any implementation must move: what the output depends on read once, every output written once."""
    flops: int = 0
    """Floating-point operations of the reference as torch counts them (matrix products and convolutions)."""

    @property
    def title(self) -> str:
        """The last part of the id, for headings."""
        return self.id.rsplit("/", 1)[-1]


@dataclasses.dataclass(frozen=True, repr=False)
class Selection(_Shown):
    """Which nodes to expand next, and why. No parents means an independent draft."""

    parents: tuple[int, ...]
    reason: str
    """One sentence, with the numbers that decided."""
    policy: str
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    memory: str = "parent"
    """What the writer may see: "parent" (its trajectory), "siblings", "both", "nothing"."""

    @property
    def is_draft(self) -> bool:
        """Whether this asks for a fresh start."""
        return not self.parents


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Why a kernel takes the time it takes, from its profile."""

    bottleneck: str
    """"memory", "compute", "overhead", "imbalance", "incorrect" or "unknown"."""
    summary: str
    """Two or three sentences with numbers, fit to show to a person or a model."""
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    causes: tuple[str, ...] = ()
    """Tags such as "not_vectorised", "gather", "many_kernels", most likely first; moves name those they address."""


@dataclasses.dataclass(frozen=True, repr=False)
class Context(_Shown):
    """All a writer may know when it writes."""

    selection: Selection
    parents: tuple[Node, ...] = ()
    history: tuple[Node, ...] = ()
    """Nodes that the memory operator admits, oldest first."""
    diagnosis: Diagnosis | None = None
    """Of the first parent."""
    notes: tuple[str, ...] = ()
    """Retrieved knowledge: note ids."""
    hints: tuple[str, ...] = ()
    """The engineer's own words for these parents."""
    seed: int = 0
    """Seeds the writer's private random generator, so that the same choice gives the same proposal."""
    tried: tuple[str, ...] = ()
    """Keys of proposals already made in this study (source hashes or genome keys): do not repeat them."""


@dataclasses.dataclass(frozen=True, repr=False)
class Proposal(_Shown):
    """A candidate as written, before anyone looked whether it works."""

    source: str
    """A Python module with `ModelNew`; empty when `failure` is set."""
    language: str
    """Name of the language plug-in: "pytorch", "cpp", "triton"."""
    operator: str
    rationale: str = ""
    """One sentence: what was changed and why."""
    move: str = ""
    """Name of the move (template) or "draft", "rewrite", "hand"."""
    parents: tuple[int, ...] = ()
    genome: Mapping[str, Any] | None = None
    """The template operator's decisions; None for the other operators."""
    own_kernels: int = 0
    """Kernels of its own that the source launches per call, as the writer counts them."""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    write_s: float = 0.0
    failure: Status | None = None
    """NO_CODE, TRUNCATED or REFUSED when there is nothing to evaluate."""
    failure_detail: str = ""
    selection: Selection | None = None


@dataclasses.dataclass(frozen=True)
class LeafError:
    """Error of one output leaf, worst over trials; relative, norm of the difference over norm of the truth."""

    leaf: int
    trial: str
    """Which trial was worst: its number and input distribution."""
    error: float
    """Of the candidate, against the float64 truth (exact dtypes: number of differing elements)."""
    reference_error: float
    """Of the PyTorch reference, against the same truth."""
    limit: float
    max_abs: float = 0.0
    passed: bool = True


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int = 0

    def verdict(self, floor: float) -> str:
        """"win", "tie" or "loss" of a ratio t_baseline / t_candidate, on a machine with that noise floor.

        A win is a ratio whose interval excludes 1 and which exceeds 1 + `floor`, the least that the machine can tell
        from noise; a loss is the mirror image; anything between is a tie. "not timed" when there is no ratio.
        """
        if not self.value > 0:
            return "not timed"
        if self.low > 1 and self.value > 1 + floor:
            return "win"
        if self.high < 1 and 1 / self.value > 1 + floor:
            return "loss"
        return "tie"


@dataclasses.dataclass(frozen=True)
class Timing:
    """All samples of one side of an interleaved session, in milliseconds, in the order taken."""

    name: str
    """"candidate", "eager", "compile" or a name from REFERENCES."""
    samples_ms: tuple[float, ...]
    rounds: tuple[int, ...]
    """Which round of the session each sample belongs to; rounds pair the sides."""
    inner_repeats: int = 1
    """Calls per sample, when one call is too short for the clock; samples are per call."""
    issue_ms: float = 0.0
    """Median time that the host took to issue a call, where a device runs it; 0 on a processor."""

    @property
    def median_ms(self) -> float:
        """Median over all samples."""
        s = sorted(self.samples_ms)
        k = len(s) // 2
        return s[k] if len(s) % 2 else (s[k - 1] + s[k]) / 2


@dataclasses.dataclass(frozen=True, repr=False)
class Result(_Shown):
    """What evaluation found: one verdict, and the evidence for it."""

    proposal: Proposal
    status: Status
    detail: str = ""
    """What was expected, what came; for a failure the place and the message."""
    rules: str = "strict"
    errors: tuple[LeafError, ...] = ()
    timings: tuple[Timing, ...] = ()
    ratios: Mapping[str, Interval] = dataclasses.field(default_factory=dict)
    """Per baseline: t_baseline / t_candidate, from paired rounds."""
    library_ops: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Operators of PyTorch's library that one call ran, such as "aten.mul", and how often."""
    findings: tuple[str, ...] = ()
    """Remarks that decided nothing: what the reading of the source noticed, what could not be looked at."""
    noise_floor: float = 0.0
    """Smallest ratio minus one that this machine can tell from noise, from an A/A session."""
    stopped: str = ""
    """Why the timing session ended: its interval was "tight", the outcome "settled", or the "time" was spent."""
    audit: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What the session's claims were compared with, in milliseconds per call: "claimed_ms" in the session, "audited_ms"
    of single verified calls, "outside_ms" on the judge's clock; "eager_…" of the baseline where it was asked too."""
    flags: tuple[str, ...] = ()
    """What was not as it should be while it was timed, in words that start with "drift", "throttling", "contention" or
    "launch-bound"."""
    bound_ms: float = 0.0
    """Physical bound on the time, from measured peaks; 0 when unknown."""
    profile: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    stage_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Wall seconds per stage: "start", "build", "check", "time", "profile"."""
    log: str = ""
    """What the candidate printed, head and tail, bounded."""
    platform: str = "cpu"
    isolation: str = "process"
    environment: str = ""
    """Id of the environment record."""
    measured: bool = True
    """False when the times are modelled; the two are never ranked together."""
    confirmations: tuple[Interval, ...] = ()
    """Ratio to the reference in fresh processes, one per re-measurement."""
    confirmed: Mapping[str, Interval] = dataclasses.field(default_factory=dict)
    """Per baseline the ratio over those fresh processes: median of their values, widest of their intervals' ends."""
    duplicate_of: int | None = None

    @property
    def correct(self) -> bool:
        """Whether the candidate may be ranked."""
        return self.status is Status.CORRECT

    @property
    def final(self) -> Mapping[str, Interval]:
        """Per baseline the ratio to report: the confirmed one where there is one, else the search's own."""
        return self.confirmed or self.ratios

    @property
    def reference(self) -> str:
        """Name of the fastest measured baseline: the one that fitness divides by; empty when nothing was timed."""
        return min(self.final, key=lambda name: self.final[name].value, default="")

    @property
    def ratio(self) -> Interval | None:
        """t_reference / t_candidate with its interval, or None when not timed."""
        return self.final[self.reference] if self.final else None

    @property
    def verdict(self) -> str:
        """"win", "tie", "loss" or "not timed" against the fastest baseline; see `Interval.verdict`."""
        return self.ratio.verdict(self.noise_floor) if self.ratio is not None else "not timed"


@dataclasses.dataclass(frozen=True, repr=False)
class Node(_Shown):
    """One vertex of the search graph: an ask and what became of it."""

    number: int
    """1, 2, 3 … in the order recorded; 0 is the problem itself (the PyTorch reference)."""
    result: Result
    fitness: float
    """t_reference / t_candidate; 0 unless correct."""
    time: str
    """When it was recorded, UTC, ISO 8601."""

    @property
    def proposal(self) -> Proposal:
        """The candidate."""
        return self.result.proposal

    @property
    def parents(self) -> tuple[int, ...]:
        """Nodes it came from; empty for a draft."""
        return self.proposal.parents

    @property
    def status(self) -> Status:
        """The verdict."""
        return self.result.status

    @property
    def source(self) -> str:
        """The candidate's module, which runs without this package."""
        return self.proposal.source


def to_dict(value: Any) -> Any:
    """Turn a record into plain JSON values, dropping nothing."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_dict(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_dict(v) for v in value]
    return value


def from_dict(kind: type[T], data: Any) -> T:
    """Rebuild a record from `to_dict`'s answer. Unknown keys are ignored: older readers survive newer fields."""
    return typing.cast(T, _maker(typing.cast(Any, kind))(data))


_Maker = Callable[[Any], Any]


@functools.cache
def _maker(kind: Any) -> _Maker:
    """How a JSON value becomes a `kind`: worked out once per kind, since a study comes back by the million values."""
    make = _make_something(kind)
    if make is None:
        return lambda data: data
    return lambda data: None if data is None else make(data)


def _make_something(kind: Any) -> _Maker | None:
    """The same for a value that is not None; None where the value stays as it is."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _maker(next(a for a in typing.get_args(kind) if a is not type(None)))
    if origin is tuple:
        inner_kind = typing.get_args(kind)[0]
        inner = _maker(inner_kind)
        if inner_kind in (int, str):
            return tuple
        if inner_kind is float:  # samples come by the hundred
            return lambda data: tuple(data) if str not in set(map(type, data)) else tuple(map(inner, data))
        return lambda data: tuple(map(inner, data))
    if origin in (Mapping, dict):
        value = _maker(typing.get_args(kind)[1])
        return lambda data: {k: value(v) for k, v in data.items()}
    if dataclasses.is_dataclass(kind):
        return _make_record(typing.cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if kind is float:
        return lambda data: float(data) if isinstance(data, str) else data  # "nan", "inf": JSON has no such numbers
    return None


def _make_record(cls: type) -> _Maker:
    hints = typing.get_type_hints(cls)
    makers = {f.name: _maker(hints[f.name]) for f in dataclasses.fields(cls)}
    return lambda data: cls(**{name: make(data[name]) for name, make in makers.items() if name in data})
