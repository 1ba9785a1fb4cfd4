"""A CUDA device's peaks, measured through PyTorch: copy and read bandwidth, bandwidth out of L2, matrix rates.

Bandwidths count bytes read plus bytes written, as STREAM does (McCalpin 1995), best of several passes. Matrix rates
are of square products of random numbers: on zeros the device draws less power and runs faster than any real data will.
Runs in a worker; see `cuda.py`. About three seconds, most of it clocks rising and libraries loading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

_PASSES = 12
_STREAM_BYTES = 2**30
"""One array of the bandwidth probes; far beyond any last-level cache."""
_GRAPH_CALLS = 40
"""Launches replayed as one graph, so that a small kernel's own launch is not what is measured."""
_SIZE = 8192
"""Side of the matrices on a large device."""


def measure(payload: Mapping[str, Any]) -> dict[str, float]:
    """Peaks in GB/s (1e9 bytes) and GFLOP/s. `payload`: l2_bytes, device_memory_bytes.

    fma_gflops, tf32_gflops, bf16_gflops, fp16_gflops, fp64_gflops are products as PyTorch's library computes them;
    `legitimate` derives what a bound may use.
    """
    size = min(_STREAM_BYTES, payload["device_memory_bytes"] // 16) // 4096 * 4096
    with torch.no_grad():
        found = {
            "copy_gb_s": _copy(size),
            "read_gb_s": _read(size),
            "device_cache_gb_s": _cache(payload["l2_bytes"]),
            **_products(payload["device_memory_bytes"]),
        }
    return found


def legitimate(peaks: Mapping[str, float], facts: Mapping[str, Any]) -> dict[str, float]:
    """The measured peaks with `fp32_gflops`, and a cache bandwidth that nothing can pass.

    A product of fp32 matrices may be computed on the matrix units and still be right: as a sum of at least three
    bf16 products, or, where a rule set is loose enough, in TF32. So no honest kernel is faster than the fastest of
    these, though one of plain fused multiply-adds is far slower. (More accurate schemes take six products, or three in
    TF32: slower, so they are within the bound.)

    What fits L2 moves at most 64 bytes per clock into each multiprocessor. A measurement would be lower, since a kernel
    that touches a few megabytes is over before it is under way, and would call an honest one too fast.
    """
    if not peaks:
        return {}
    found = dict(peaks)
    rates = (peaks.get("fma_gflops", 0.0), peaks.get("tf32_gflops", 0.0), peaks.get("bf16_gflops", 0.0) / 3)
    found["fp32_gflops"] = max(rates)
    ports = 64 * facts.get("multiprocessors", 0) * facts.get("clock_mhz", 0.0) / 1e3
    found["device_cache_bound_gb_s"] = max(ports, peaks.get("device_cache_gb_s", 0.0), peaks.get("copy_gb_s", 0.0))
    return found


def _best_ms(run: Callable[[], Any], passes: int = _PASSES) -> float:
    """Shortest of several passes, by events; two warm-up calls."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    least = float("inf")
    for _ in range(passes):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        stop.record()
        torch.cuda.synchronize()
        least = min(least, start.elapsed_time(stop))
    return least


def _copy(size: int) -> float:
    source = torch.rand(size // 4, device="cuda")
    target = torch.empty_like(source)
    rates = [2 * size / _best_ms(run) / 1e6 for run in
             (lambda: target.copy_(source), lambda: torch.mul(source, 2.0, out=target))]
    return max(rates)


def _read(size: int) -> float:
    source = torch.rand(size // 4, device="cuda")
    return max(size / _best_ms(run) / 1e6 for run in (source.sum, source.amax))


def _cache(l2_bytes: int) -> float:
    """Of a working set that fits a quarter of L2, in one graph of many launches; 0 where graphs do not work."""
    count = max(l2_bytes, 2**20) // 8 // 4 // 1024 * 1024
    source = torch.rand(count, device="cuda")
    target = torch.empty_like(source)
    try:
        torch.mul(source, 2.0, out=target)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_GRAPH_CALLS):
                torch.mul(source, 2.0, out=target)
        return _GRAPH_CALLS * 2 * count * 4 / _best_ms(graph.replay) / 1e6
    except RuntimeError:
        return 0.0


def _products(memory_bytes: int) -> dict[str, float]:
    """FLOP rates of `torch.matmul` per kind of number."""
    n = _SIZE if memory_bytes > 16 * 2**30 else _SIZE // 4
    before = torch.backends.cuda.matmul.allow_tf32
    found = {}
    try:
        for name, dtype, tf32, side in (
            ("fma_gflops", torch.float32, False, n // 2), ("tf32_gflops", torch.float32, True, n),
            ("bf16_gflops", torch.bfloat16, False, n), ("fp16_gflops", torch.float16, False, n),
            ("fp64_gflops", torch.float64, False, n // 2),
        ):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            try:
                a, b = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
                found[name] = 2 * side**3 / _best_ms(lambda a=a, b=b: a @ b, 8) / 1e6  # type: ignore[misc]
            except RuntimeError:  # a kind of number that this device has not
                continue
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return found
