"""What the machine code consists of: instruction mix, vector widths, and what sits in the innermost loops.

Method: every instruction of `objdump -d` falls into exactly one class, so the mix sums to the total. How often a loop
runs cannot be read from code, so counts are of code, not of work; what decides is read from the innermost loops,
where a vectorised loop's scalar remainder stands beside it.

Approximations, on purpose:
  spills     moves of a vector register to or from the stack inside a loop. A small array on the stack that is
             addressed directly looks the same.
  gathers    vector gather instructions, and scalar loads whose index was itself loaded in the same loop.
  recurrence a register whose value after a pass of the loop depends, through floating-point arithmetic, on its value
             before: a pass cannot be quicker than that chain's latency. Chains through memory are not followed.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable
from typing import Any

from kernelevolve.profiling import disassembly
from kernelevolve.profiling.base import ContentCache, Profiler, Subject, missing
from kernelevolve.profiling.command import run
from kernelevolve.profiling.disassembly import Function, Instruction, Loop

MAX_LIBRARY_BYTES = 500_000
"""A candidate's library is some 20 kB. Far larger ones are not worth the time that a profile may cost."""
MAX_FUNCTIONS = 40
TIMEOUT_S = 3.0

CLASSES = (
    "vector_fp", "scalar_fp", "fma", "div_sqrt", "gather", "load", "store", "vector_integer", "vector_move",
    "tile", "call_libm", "call_libmvec", "call_openmp", "call_other", "branch", "integer", "other",
)  # fmt: skip
FLOATING = ("vector_fp", "scalar_fp", "fma", "div_sqrt")

_TYPE = r"(ps|pd|ss|sd|ph|sh|pbf16|nepbf16)"
_FMA = re.compile(rf"^v?f(?:n|c|nc)?m(?:add|sub|addsub|subadd|addc|ulc)\w*?{_TYPE}$|^vdpbf16(ps)$")
_DIV_SQRT = re.compile(rf"^v?(?:div|sqrt){_TYPE}$")
_ARITHMETIC = re.compile(
    rf"^v?(?:add|sub|mul|max|min|rcp\w*|rsqrt\w*|round|rndscale|scalef|getexp|getmant|reduce|range|fixupimm|dp"
    rf"|hadd|hsub|addsub|cmp\w*|u?comi){_TYPE}$"
)
_X87 = re.compile(r"^f(?:add|sub|mul|div|sqrt|i?ld|i?st)\w*$")
_GATHER = re.compile(r"^v(?:p?gather|p?scatter)\w+$")
_MOVE = re.compile(r"^(?:v?mov\w*|v?lddqu|v?p?broadcast\w+|k?mov[bwdq]|v?p?(?:extract|compress|expand)\w*|pop|push)$")
_LIBM = re.compile(
    r"^(?:__)?(?:exp|exp2|expm1|exp10|log|log2|log10|log1p|pow|sin|cos|tan|sincos|asin|acos|atan|atan2|sinh|cosh|tanh"
    r"|asinh|acosh|atanh|erf|erfc|cbrt|hypot|fmod|remainder|sqrt|floor|ceil|round|trunc|rint|nearbyint|l?lround"
    r"|l?lrint|fma|fmax|fmin|ldexp|frexp|scalbn|tgamma|lgamma)[fl]?(?:_finite)?$"
)
_OPENMP = re.compile(r"^(?:GOMP_|omp_|__kmpc_)")
_XOR = re.compile(r"^v?p?xor")
_REGISTER = re.compile(r"\b(?:[xyz]mm\d+)\b")
_GENERAL = re.compile(r"\b(?:r(?:[a-d]x|[sd]i|[sb]p|\d+)[dwb]?|e(?:[a-d]x|[sd]i|[sb]p)|[a-d][xlh]|[sd]il?|[sb]pl?)\b")


def classify(instruction: Instruction, function: str = "") -> str:
    """The one class of an instruction; `function` is where it stands, so that a tail call is told from a jump."""
    opcode = instruction.opcode
    if opcode == "call" or (opcode == "jmp" and instruction.symbol not in ("", function)):
        return _classify_call(instruction.symbol)
    if opcode.startswith("j") or opcode in ("ret", "loop"):
        return "branch"
    if _FMA.match(opcode):
        return "fma"
    if _DIV_SQRT.match(opcode):
        return "div_sqrt"
    if match := _ARITHMETIC.match(opcode):
        return "scalar_fp" if match.group(1) in ("ss", "sd", "sh") else "vector_fp"
    if _GATHER.match(opcode):
        return "gather"
    if opcode.startswith("nop") or opcode in ("endbr64", "leave", "hlt", "ud2", "vzeroupper", "(bad)", "xchg"):
        return "other"
    if _X87.match(opcode):
        return "scalar_fp"
    if _MOVE.match(opcode):
        if instruction.writes_memory or opcode == "push":
            return "store"
        if instruction.reads_memory or opcode == "pop":
            return "load"
    if opcode.startswith(("tdp", "tile", "ldtile", "sttile")):
        return "tile"
    if opcode.startswith(("vp", "p")) and instruction.width:
        return "vector_integer"
    if instruction.width or opcode.startswith("k"):
        return "vector_move"
    return "integer" if re.match(r"^[a-z]", opcode) else "other"


def _classify_call(symbol: str) -> str:
    if symbol.startswith("_ZGV"):
        return "call_libmvec"
    if _OPENMP.match(symbol):
        return "call_openmp"
    return "call_libm" if _LIBM.match(symbol) else "call_other"


def summarise(functions: Iterable[Function]) -> dict[str, Any]:
    """The static part of a profile, from parsed functions: totals, and one entry per source function."""
    groups: dict[str, list[Function]] = {}
    for function in functions:
        groups.setdefault(function.parent, []).append(function)
    entries = {name: _summarise_group(members) for name, members in groups.items()}
    kept = sorted(entries, key=lambda name: -entries[name]["instructions"])[:MAX_FUNCTIONS]
    mix = collections.Counter[str]()
    for entry in entries.values():
        mix.update(entry["mix"])
    return {
        "instructions": sum(mix.values()),
        "code_bytes": sum(entry["code_bytes"] for entry in entries.values()),
        "mix": {name: mix[name] for name in CLASSES},
        "functions": {name: entries[name] for name in kept},
        "functions_left_out": len(entries) - len(kept),
    }


def _summarise_group(members: list[Function]) -> dict[str, Any]:
    mix, by_width, calls = (collections.Counter[str]() for _ in range(3))
    for member in members:
        looping = {instruction.address for loop in member.loops for instruction in loop.body}
        for instruction in member.instructions:
            kind = classify(instruction, member.name)
            mix[kind] += 1
            if kind in FLOATING:
                by_width[_fp_width(instruction)] += 1
            if kind in ("call_libm", "call_libmvec") and instruction.address in looping:
                calls[instruction.symbol] += 1
    floating = sum(by_width.values())
    loops = [_summarise_loop(loop, member) for member in members for loop in member.innermost]
    openmp = {i.symbol for m in members for i in m.instructions if classify(i, m.name) == "call_openmp"}
    return {
        "instructions": sum(mix.values()),
        "code_bytes": sum(member.code_bytes for member in members),
        "mix": {name: mix[name] for name in CLASSES},
        "fp_by_width": dict(by_width),
        "vector_fp_share": 1 - by_width["scalar"] / floating if floating else None,
        "widest_bits": max((i.width for m in members for i in m.instructions), default=0),
        "parallel": any(s.startswith(("GOMP_parallel", "__kmpc_fork")) for s in openmp),
        "math_calls": dict(calls),
        "loops": [loop for loop in loops if loop["instructions"] > 1],
    }


def _fp_width(instruction: Instruction) -> str:
    opcode = instruction.opcode
    scalar = opcode.endswith(("ss", "sd", "sh")) or not instruction.width
    return "scalar" if scalar else str(instruction.width)


def _summarise_loop(loop: Loop, function: Function) -> dict[str, Any]:
    body = loop.body
    kinds = collections.Counter(classify(i, function.name) for i in body)
    widths = [_fp_width(i) for i in body if classify(i, function.name) in FLOATING]
    framed = any(i.opcode == "mov" and i.operands == ("rbp", "rsp") for i in function.instructions)
    stack = re.compile(r"^(?:rsp|rbp)\b" if framed else r"^rsp\b")
    return {
        "instructions": len(body),
        "fp": len(widths),
        "fp_bits": max((int(w) for w in widths if w != "scalar"), default=0),
        "bits": max((i.width for i in body if not _fp_scalar(i)), default=0),
        "div_sqrt": kinds["div_sqrt"],
        "integer_div": sum(i.opcode in ("div", "idiv") for i in body),
        "gathers": kinds["gather"] + _indexed_loads(body),
        "calls": sum(kinds[k] for k in CLASSES if k.startswith("call_")),
        "spills": sum(bool(_MOVE.match(i.opcode) and i.width and stack.match(i.memory)) for i in body),
        **_chains(body, function.name),
    }


def _fp_scalar(instruction: Instruction) -> bool:
    """Scalars live in xmm registers too: only packed work tells a width."""
    return instruction.opcode.endswith(("ss", "sd", "sh", "si", "sidl"))


def _indexed_loads(body: tuple[Instruction, ...]) -> int:
    """Loads through a scaled index that was loaded in the same pass of the loop: `x[k[i]]` without vector gathers."""
    loaded, count = set[str](), 0
    for instruction in body:
        index = re.search(r"(\w+)\*[1248]", instruction.memory)
        count += bool(index and _wide(index.group(1)) in loaded and instruction.opcode != "lea")
        if instruction.operands and _GENERAL.fullmatch(instruction.operands[0]):
            register = _wide(instruction.operands[0])
            from_array = instruction.opcode.startswith("mov") and instruction.reads_memory
            from_lane = instruction.opcode in ("vmovd", "vmovq", "vpextrd", "vpextrq")
            if from_lane or (from_array and not instruction.memory.startswith(("rsp", "rbp", "rip"))):
                loaded.add(register)
            elif instruction.opcode not in ("cdqe", "movsxd", "cmp", "test"):
                loaded.discard(register)
    return count


def _wide(register: str) -> str:
    """The 64-bit name of a general register: eax, ax and al are parts of rax."""
    if match := re.match(r"^r(\d+)[dwb]?$", register):
        return f"r{match.group(1)}"
    return "r" + register.lstrip("re").removesuffix("l") if len(register) > 2 else "r" + register[0] + "x"


def _chains(body: tuple[Instruction, ...], function: str) -> dict[str, int]:
    """Loop-carried chains of floating-point arithmetic: registers whose value after a pass depends on that before it.

    Follows every register through one pass in the order of the code. `recurrences` counts such registers,
    `chain_length` is the longest chain in arithmetic instructions, `chain_bits` its vector width (0: scalar).
    """
    carried: dict[str, dict[str, int]] = {}
    bits: dict[str, int] = {}
    for instruction in body:
        names = [[match.group()[3:] for match in _REGISTER.finditer(operand)] for operand in instruction.operands]
        if not names or not names[0] or instruction.writes_memory:
            continue
        target, sources = names[0][0], {name for operand in names[1:] for name in operand}
        kind = classify(instruction, function)
        if kind == "fma" or (not instruction.opcode.startswith("v") and kind in FLOATING):
            sources.add(target)
        if _XOR.match(instruction.opcode) and sources == {target}:
            sources = set()  # the idiom for zero
        depths: dict[str, int] = {}
        for name in sources:
            for origin, depth in carried.get(name, {name: 0}).items():
                depths[origin] = max(depths.get(origin, 0), depth + (kind in FLOATING))
        carried[target] = depths
        if kind in FLOATING:
            width = _fp_width(instruction)
            bits[target] = 0 if width == "scalar" else int(width)
    lengths = {name: depths[name] for name, depths in carried.items() if depths.get(name, 0) > 0}
    longest = max(lengths, key=lambda name: lengths[name], default="")
    return {
        "recurrences": len(lengths),
        "chain_length": lengths.get(longest, 0),
        "chain_bits": bits.get(longest, 0),
    }


class Static(Profiler):
    """Machine code of kernel.so, by objdump."""

    name = "static"
    _cache: ContentCache[dict[str, Any]] = ContentCache()

    def applies(self, subject: Subject) -> bool:
        """C++ candidates only."""
        return subject.result.proposal.language == "cpp"

    def measure(self, subject: Subject) -> dict[str, Any]:
        """Keys as in `summarise`. Raises MissingDependencyError without objdump."""
        library = subject.find("kernel.so") or subject.find("*.so")
        if library is None:
            return missing("no kernel.so in the build folder")
        if library.stat().st_size > MAX_LIBRARY_BYTES:
            return missing(f"kernel.so has {library.stat().st_size} bytes; at most {MAX_LIBRARY_BYTES} are read")

        def disassemble() -> dict[str, Any]:
            command = ["objdump", "-d", "-M", "intel", "--insn-width=15", str(library)]
            answer = run(command, library.parent, timeout_s=TIMEOUT_S)
            if answer.code is None:
                return missing(f"objdump took longer than {TIMEOUT_S:g} s")
            if answer.code != 0:
                return missing(f"objdump cannot read kernel.so: {answer.stderr.strip()[:200]}")
            if "elf64-x86-64" not in answer.stdout:
                return missing("instruction classes are known for x86-64 only")
            return summarise(disassembly.parse(answer.stdout))

        return self._cache.get((library.read_bytes(),), disassemble)
