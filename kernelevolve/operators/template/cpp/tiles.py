"""The register tile: a block of rows times a few vectors of columns, accumulated in registers.

Explicit vector types rather than `omp simd`: the accumulators of a whole tile stay in registers only when the
compiler sees them as separate vectors. GCC turns `c += a * b` on them into fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelevolve.operators.template.cpp.anchor import indent

BYTES = {"float": 4, "double": 8}


def vector_type(name: str, kind: str, lanes: int) -> str:
    """A vector of `lanes` elements that may lie at any address."""
    size = BYTES[kind]
    return f"typedef {kind} {name}_vec __attribute__((vector_size({lanes * size}), aligned({size}), may_alias));"


def tile_function(
    name: str,
    kind: str,
    *,
    lanes: int,
    vectors: int,
    row_step: int,
    loops: Sequence[tuple[str, str, int, int | str]],
    width: int,
) -> str:
    """`NAME_tile<ROWS>(a, b, c, depth, first)`: c[i][j] (+)= sum of a[i * row_step + …] * b[… + j].

    Args:
        name: Start of the function's name.
        kind: "float" or "double".
        lanes: Elements of a vector.
        vectors: Vectors of columns of the tile.
        row_step: Elements of `a` between rows.
        loops: The summed indices, outermost first: (variable, count as C++ text, step in a, step in b). A text
            for a step in b is the whole term, for steps that are not even.
        width: Elements of `c` between rows.
    """
    a_at = " + ".join([_term("i", row_step), *(_term(v, sa) for v, _, sa, _ in loops)])
    b_at = " + ".join([*(_term(v, sb) for v, _, _, sb in loops), f"j * {lanes}"])
    body = f"""{name}_vec right[{vectors}];
for (int j = 0; j < {vectors}; j++) right[j] = *(const {name}_vec*)(b + {b_at});
#pragma GCC unroll 32
for (int i = 0; i < ROWS; i++) {{
    const {kind} left = a[{a_at}];
    #pragma GCC unroll 8
    for (int j = 0; j < {vectors}; j++) sum[i][j] += left * right[j];
}}"""
    for variable, count, _, _ in reversed(loops):
        body = f"for (int64_t {variable} = 0; {variable} < {count}; {variable}++) {{\n{indent(body)}\n}}"
    return f"""template <int ROWS>
static inline __attribute__((always_inline)) void {name}_tile(
    const {kind}* __restrict a, const {kind}* __restrict b, {kind}* __restrict c, int64_t depth, bool first) {{
    {name}_vec sum[ROWS][{vectors}];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < {vectors}; j++)
            sum[i][j] = first ? {name}_vec{{}} : *({name}_vec*)(c + i * {width} + j * {lanes});
{indent(body)}
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < {vectors}; j++) *({name}_vec*)(c + i * {width} + j * {lanes}) = sum[i][j];
}}"""


def mask_type(name: str, kind: str, lanes: int) -> str:
    """The integers that choose elements of vectors in a shuffle."""
    integer = {"float": "int32_t", "double": "int64_t"}[kind]
    return f"typedef {integer} {name}_mask __attribute__((vector_size({lanes * BYTES[kind]})));"


def _mask(name: str, order: Sequence[int]) -> str:
    return f"{name}_mask{{{', '.join(map(str, order))}}}"


def transpose_function(name: str, *, kind: str, lanes: int) -> str:
    """`NAME_transpose(from, step, to, width)`: a square of `lanes` rows becomes columns, in registers.

    Interleaving the two halves of the rows log2(lanes) times transposes them.
    """
    half = lanes // 2
    low = _mask(name, [k // 2 + (k % 2) * lanes for k in range(lanes)])
    high = _mask(name, [half + k // 2 + (k % 2) * lanes for k in range(lanes)])
    return f"""static inline void {name}_transpose(
    const {kind}* __restrict from, int64_t step, {kind}* __restrict to, int64_t width) {{
    {name}_vec row[{lanes}], mixed[{lanes}];
    for (int i = 0; i < {lanes}; i++) row[i] = *(const {name}_vec*)(from + i * step);
    #pragma GCC unroll 4
    for (int round = 0; round < {lanes.bit_length() - 1}; round++) {{
        #pragma GCC unroll {half}
        for (int i = 0; i < {half}; i++) {{
            mixed[2 * i] = __builtin_shuffle(row[i], row[i + {half}], {low});
            mixed[2 * i + 1] = __builtin_shuffle(row[i], row[i + {half}], {high});
        }}
        #pragma GCC unroll {lanes}
        for (int i = 0; i < {lanes}; i++) row[i] = mixed[i];
    }}
    for (int i = 0; i < {lanes}; i++) *({name}_vec*)(to + i * width) = row[i];
}}"""


def _term(variable: str, step: int | str) -> str:
    if isinstance(step, str):
        return step
    return variable if step == 1 else f"{variable} * {step}"


def dot_function(
    name: str, kind: str, *, lanes: int, columns: int, depth: int, row_step: int, column_step: int, width: int
) -> str:
    """`NAME_tile<ROWS, COLUMNS>(a, b, c)`: dot products of contiguous rows of `a` with contiguous rows of `b`.

    For few rows: nothing is packed, every element of `b` is read once, and the sum of a vector's lanes comes last.
    """
    whole = depth // lanes * lanes
    steps = [lanes >> k for k in range(1, lanes.bit_length())]
    halves = [f"v += __builtin_shuffle(v, {_mask(name, [k ^ by for k in range(lanes)])});" for by in steps]
    rest = f"""
    for (int64_t k = {whole}; k < {depth}; k++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) c[i * {width} + j] += a[i * {row_step} + k] * b[j * {column_step} + k];"""
    return f"""template <int ROWS, int COLUMNS>
static inline __attribute__((always_inline)) void {name}_tile(
    const {kind}* __restrict a, const {kind}* __restrict b, {kind}* __restrict c) {{
    {name}_vec sum[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) sum[i][j] = {name}_vec{{}};
    for (int64_t k = 0; k < {whole}; k += {lanes}) {{
        {name}_vec right[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) right[j] = *(const {name}_vec*)(b + j * {column_step} + k);
        for (int i = 0; i < ROWS; i++) {{
            const {name}_vec left = *(const {name}_vec*)(a + i * {row_step} + k);
            for (int j = 0; j < COLUMNS; j++) sum[i][j] += left * right[j];
        }}
    }}
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {{
            {name}_vec v = sum[i][j];
{indent(halves, 3)}
            c[i * {width} + j] = v[0];
        }}{rest if depth % lanes else ""}
}}"""
