"""Pieces of C++ that kernels may use; only the used ones are put into a module.

The functions are branch-free, so that GCC vectorises loops over them under `#pragma omp simd`. No fast-math: NaN
and infinity come out as from torch. Measured errors, over all floats, are in the test of this file: 2 ulp and better.

Methods: arguments are reduced by two-part constants (Cody and Waite, Software Manual for the Elementary Functions,
1980), sine and cosine in double with a fused multiply-add; polynomials are own minimax fits (Lawson's iteration).
sin and cos are accurate for |x| < 1e15.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HEADERS = """\
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <omp.h>
"""

PARTS: Mapping[str, str] = {
    "k_inf": "template <class T> constexpr T k_inf = std::numeric_limits<T>::infinity();",
    "k_nan": "template <class T> constexpr T k_nan = std::numeric_limits<T>::quiet_NaN();",
    "k_lowest": """\
template <class T> constexpr T k_lowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                                               : std::numeric_limits<T>::lowest();""",
    "k_highest": """\
template <class T> constexpr T k_highest = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                                                : std::numeric_limits<T>::max();""",
    "k_bits": """\
static inline int32_t k_bits(float x) { int32_t b; std::memcpy(&b, &x, 4); return b; }
static inline float k_from_bits(int32_t b) { float x; std::memcpy(&x, &b, 4); return x; }""",
    "k_load": """\
static inline float k_load(uint16_t h) { return k_from_bits(int32_t(uint32_t(h) << 16)); }""",
    "k_bf16": """\
static inline uint16_t k_bf16(float x) {  // round to nearest even
    const uint32_t b = uint32_t(k_bits(x));
    return x != x ? uint16_t(0x7fc0) : uint16_t((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}""",
    "k_abs": "template <class T> static inline T k_abs(T x) { return x < 0 ? -x : x; }",
    "k_sign": "template <class T> static inline T k_sign(T x) { return T((x > T(0)) - (x < T(0))); }",
    "k_max": """\
template <class T> static inline T k_max(T a, T b) {  // NaN wins, as in torch; in this form GCC vectorises chains of it
    const T m = a > b ? a : b;
    return a != a ? a : m;
}""",
    "k_min": """\
template <class T> static inline T k_min(T a, T b) {  // NaN wins, as in torch; in this form GCC vectorises chains of it
    const T m = a < b ? a : b;
    return a != a ? a : m;
}""",
    "k_at_least": "template <class T> static inline T k_at_least(T x, T low) { return low > x ? low : x; }  // NaN too",
    "k_at_most": "template <class T> static inline T k_at_most(T x, T top) { return top < x ? top : x; }  // NaN too",
    "k_floordiv": """\
template <class T> static inline T k_floordiv(T a, T b) { return a / b - ((a % b != 0) & ((a < 0) != (b < 0))); }
static inline float k_floordiv(float a, float b) {
    const float r = std::fmod(a, b), q = (a - r) / b;
    return b == 0 ? a / b : std::rint(q) - float((r != 0) & ((r < 0) != (b < 0)));
}
static inline double k_floordiv(double a, double b) {
    const double r = std::fmod(a, b), q = (a - r) / b;
    return b == 0 ? a / b : std::rint(q) - double((r != 0) & ((r < 0) != (b < 0)));
}""",
    "k_mod": """\
template <class T> static inline T k_mod_sign(T r, T b) { return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r; }
template <class T> static inline T k_mod(T a, T b) { return k_mod_sign<T>(a % b, b); }
static inline float k_mod(float a, float b) { return k_mod_sign(std::fmod(a, b), b); }
static inline double k_mod(double a, double b) { return k_mod_sign(std::fmod(a, b), b); }""",
    "k_exp": """\
static inline float k_exp(float x) {  // 2^n * e^r with |r| <= ln(2)/2
    const float c = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    const float t = std::fma(c, 1.44269504f, 12582912.0f), n = t - 12582912.0f;
    const float r = std::fma(n, -1.42860677e-6f, std::fma(n, -0.693145752f, c));
    float p = std::fma(1.3814465e-3f, r, 8.368781e-3f);
    p = std::fma(p, r, 4.1668393e-2f);
    p = std::fma(p, r, 1.666652e-1f);
    p = std::fma(p, r, 4.9999994e-1f);
    p = std::fma(p, r * r, r) + 1.0f;
    const bool low = x < -64.0f;  // the scale in two steps, for results that are subnormal or above 2^127
    const uint32_t exponent = low ? (126u + 64u) << 23 : 126u << 23;
    return p * k_from_bits(int32_t((uint32_t(k_bits(t)) << 23) + exponent)) * (low ? 1.08420217e-19f : 2.0f);
}""",
    "k_exp2": """\
static inline float k_exp2(float x) {
    const float c = x < -151.0f ? -151.0f : x > 129.0f ? 129.0f : x;
    const float t = c + 12582912.0f, r = c - (t - 12582912.0f);
    float p = std::fma(1.535336e-4f, r, 1.3398875e-3f);
    p = std::fma(p, r, 9.618437e-3f);
    p = std::fma(p, r, 5.5503324e-2f);
    p = std::fma(p, r, 2.4022648e-1f);
    p = std::fma(p, r, 6.931472e-1f);
    p = std::fma(p, r, 1.0f);
    const int32_t k = k_bits(t) - 0x4b400000, half = k >> 1;
    return p * k_from_bits((half + 127) << 23) * k_from_bits((k - half + 127) << 23);
}""",
    "k_expm1": """\
static inline float k_expm1(float x) {  // 2^n * (e^r - 1) + (2^n - 1)
    const float c = x < -30.0f ? -30.0f : x > 89.0f ? 89.0f : x;
    const float t = std::fma(c, 1.44269504f, 12582912.0f), n = t - 12582912.0f;
    const float r = std::fma(n, -1.42860677e-6f, std::fma(n, -0.693145752f, c));
    float p = std::fma(1.9913707e-4f, r, 1.3941117e-3f);
    p = std::fma(p, r, 8.333274e-3f);
    p = std::fma(p, r, 4.1666355e-2f);
    p = std::fma(p, r, 1.6666667e-1f);
    p = std::fma(p, r, 0.5f);
    p = std::fma(p, r * r, r);
    const float s = k_from_bits((k_bits(t) - 0x4b400000 + 126) << 23);  // 2^(n-1): 2^128 is no float
    const float y = 2.0f * std::fma(s, p, s - 0.5f);
    return n == 0.0f ? p : x > 88.7228394f ? k_inf<float> : y;
}""",
    "k_log_parts": """\
struct k_log_parts { float n, f; };  // x = 2^n * (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1)
static inline k_log_parts k_split(float x) {
    const bool tiny = x < 1.17549435e-38f;
    const int32_t b = k_bits(tiny ? x * 8388608.0f : x) - 0x3f3504f3;  // bits of sqrt(1/2)
    const int32_t e = b >> 23;
    return {float(e) - (tiny ? 23.0f : 0.0f), k_from_bits((b & 0x007fffff) + 0x3f3504f3) - 1.0f};
}
static inline float k_log_tail(float f) {  // log(1 + f) - f
    float p = std::fma(6.746601e-2f, f, -1.1675641e-1f);
    p = std::fma(p, f, 1.1888175e-1f);
    p = std::fma(p, f, -1.24055915e-1f);
    p = std::fma(p, f, 1.4219551e-1f);
    p = std::fma(p, f, -1.6667996e-1f);
    p = std::fma(p, f, 2.0002119e-1f);
    p = std::fma(p, f, -2.500001e-1f);
    p = std::fma(p, f, 3.3333313e-1f);
    return std::fma(p * f, f * f, -0.5f * f * f);
}
static inline float k_log_edge(float x, float y) {  // y where log is finite
    return x == 0.0f ? -k_inf<float> : x < 0.0f ? k_nan<float> : x + x == x ? x : x != x ? x : y;
}""",
    "k_log": """\
static inline float k_log(float x) {
    const k_log_parts s = k_split(x);
    const float tail = std::fma(s.n, 1.42860677e-6f, k_log_tail(s.f));
    return k_log_edge(x, std::fma(s.n, 0.693145752f, s.f + tail));
}""",
    "k_log2": """\
static inline float k_log2(float x) {  // log2(e) in two parts
    const k_log_parts s = k_split(x);
    const float tail = k_log_tail(s.f);
    const float low = std::fma(s.f + tail, 1.92596303e-8f, tail * 1.44269502f);
    return k_log_edge(x, std::fma(s.f, 1.44269502f, low) + s.n);
}""",
    "k_log10": """\
static inline float k_log10(float x) {  // log10(e) and log10(2) in two parts each
    const k_log_parts s = k_split(x);
    const float tail = k_log_tail(s.f);
    const float low = std::fma(s.n, -1.43209888e-8f, std::fma(s.f + tail, -1.03011224e-8f, tail * 0.434294492f));
    return k_log_edge(x, std::fma(s.n, 0.301030010f, std::fma(s.f, 0.434294492f, low)));
}""",
    "k_log1p": """\
static inline float k_log1p(float x) {  // log(u) + (x - (u - 1)) / u with u = 1 + x rounded
    const float u = 1.0f + x, lost = (x - (u - 1.0f)) / u, y = k_log(u);
    return std::fabs(lost) < 1.0f ? (x == 0.0f ? x : y + lost) : y;
}""",
    "k_sigmoid": "static inline float k_sigmoid(float x) { return 1.0f / (1.0f + k_exp(-x)); }",
    "k_tanh": """\
static inline float k_tanh(float x) {  // x + x^3 * P(x^2) below 5/8, else 1 - 2 / (e^2|x| + 1)
    const float a = std::fabs(x), z = x * x;
    float p = std::fma(2.1429637e-3f, z, -8.177401e-3f);
    p = std::fma(p, z, 2.1700704e-2f);
    p = std::fma(p, z, -5.3946763e-2f);
    p = std::fma(p, z, 1.3333206e-1f);
    p = std::fma(p, z, -3.333333e-1f);
    const float far = std::copysign(1.0f - 2.0f / (k_exp(2.0f * a) + 1.0f), x);
    return a < 0.625f ? std::fma(p * z, x, x) : far;
}""",
    "k_erf": """\
static inline float k_erf(float x) {  // x * P(x^2) below 1; 1 - exp(-Q(|x|)) up to 4, where it is 1
    const float a = std::fabs(x), z = x * x, b = a > 4.0f ? 4.0f : a;
    float p = std::fma(7.854026e-5f, z, -8.010248e-4f);
    p = std::fma(p, z, 5.1883343e-3f);
    p = std::fma(p, z, -2.6853817e-2f);
    p = std::fma(p, z, 1.12835854e-1f);
    p = std::fma(p, z, -3.7612626e-1f);
    p = std::fma(p, z, 1.28379167e-1f);
    float q = std::fma(1.8638009e-4f, b, -2.9476667e-3f);  // -Q
    q = std::fma(q, b, 2.1838097e-2f);
    q = std::fma(q, b, -1.0310682e-1f);
    q = std::fma(q, b, -6.3814473e-1f);
    q = std::fma(q, b, -1.1270893f);
    q = std::fma(q, b, -3.4151258e-4f);
    const float t = std::fma(q, 1.44269504f, 12582912.0f), r = std::fma(t - 12582912.0f, -0.693147182f, q);
    float e = std::fma(8.31248e-3f, r, 4.1890554e-2f);
    e = std::fma(e, r, 1.6667116e-1f);
    e = std::fma(e, r, 4.9999228e-1f);
    e = std::fma(e, r * r, r) + 1.0f;
    const float far = std::copysign(std::fma(-e, k_from_bits((k_bits(t) - 0x4b400000 + 127) << 23), 1.0f), x);
    return a < 1.0f ? std::fma(p, x, x) : far;
}""",
    "k_quadrant": """\
struct k_quadrant { float r; int32_t q; };  // x = q * pi/2 + r, |r| <= pi/4
static inline k_quadrant k_reduce(float x) {
    const double d = double(x), n = std::rint(d * 0.63661977236758134);
    const double r = std::fma(n, -6.123233995736766e-17, std::fma(n, -1.5707963267948966, d));
    return {float(r), int32_t(n - 4.0 * std::floor(n * 0.25))};
}
static inline float k_sin_poly(float r) {
    const float z = r * r;
    float p = std::fma(2.7181218e-6f, z, -1.9839313e-4f);
    p = std::fma(p, z, 8.333329e-3f);
    p = std::fma(p, z, -1.6666667e-1f);
    return std::fma(p * z, r, r);
}
static inline float k_cos_poly(float r) {
    const float z = r * r;
    float p = std::fma(-2.7205755e-7f, z, 2.479946e-5f);
    p = std::fma(p, z, -1.3888883e-3f);
    p = std::fma(p, z, 4.1666668e-2f);
    return std::fma(p, z * z, std::fma(z, -0.5f, 1.0f));
}""",
    "k_sin": """\
static inline float k_sin(float x) {
    const k_quadrant t = k_reduce(x);
    const float y = (t.q & 1) ? k_cos_poly(t.r) : k_sin_poly(t.r);
    return (t.q & 2) ? -y : y;
}""",
    "k_cos": """\
static inline float k_cos(float x) {
    const k_quadrant t = k_reduce(x);
    const float y = (t.q & 1) ? k_sin_poly(t.r) : k_cos_poly(t.r);
    return ((t.q + 1) & 2) ? -y : y;
}""",
}
"""By the name that calls them; in an order in which later ones may use earlier ones."""

_NAMES = {
    **{name: name for name in PARTS},
    "k_from_bits": "k_bits", "k_split": "k_log_parts", "k_log_tail": "k_log_parts", "k_log_edge": "k_log_parts",
    "k_reduce": "k_quadrant", "k_sin_poly": "k_quadrant", "k_cos_poly": "k_quadrant",
}  # fmt: skip


def prelude(code: str, also: Iterable[str] = ()) -> str:
    """Headers and the parts that `code` uses, each with the parts that it uses itself."""
    needed = set(also)
    stack = [code, *(PARTS[name] for name in needed)]
    while stack:
        for word in set(re.findall(r"\bk_\w+", stack.pop())):
            part = _NAMES.get(word)
            if part is not None and part not in needed:
                needed.add(part)
                stack.append(PARTS[part])
    return HEADERS + "\n" + "\n".join(text for name, text in PARTS.items() if name in needed) + "\n"


__all__ = ["HEADERS", "PARTS", "prelude"]
