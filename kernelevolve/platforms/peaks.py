"""A processor's peaks, measured: copy and read bandwidth of memory, bandwidth of one core's cache, fused multiply-adds.

The copy follows STREAM (McCalpin 1995): bytes read plus bytes written, best of several passes over arrays
that exceed the last-level cache four times. It is done with ordinary and with non-temporal stores, because
ordinary ones read the destination first, which STREAM does not count. Runs in a worker: see `cpu.py`.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CPP = r"""
#include <cstdint>
#include <cstring>
#include <cstdlib>
#include <chrono>
#include <omp.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static volatile float sink;
static volatile float factor = 0.999f, addend = 0.001f;  // unknown to the optimiser

template <class F> static double best(int passes, F f) {
    double least = 1e30;
    for (int i = 0; i < passes; ++i) { double t = now(); f(); t = now() - t; if (t < least) least = t; }
    return least;
}

// 16 independent accumulators of one vector each hide the add's latency.
static float sum(const float* x, long n) {
    float lane[256] = {0};
    long i = 0;
    for (; i + 256 <= n; i += 256)
        for (int k = 0; k < 256; ++k) lane[k] += x[i + k];
    float total = 0;
    for (int k = 0; k < 256; ++k) total += lane[k];
    return total;
}

extern "C" double copy_gb_s(long n, int threads, int passes, int streaming) {
    float* a = (float*)aligned_alloc(64, n * 4);
    float* b = (float*)aligned_alloc(64, n * 4);
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n; ++i) { a[i] = 1; b[i] = 2; }
    double t = best(passes, [&] {
        #pragma omp parallel num_threads(threads)
        {
            long part = n / omp_get_num_threads() / 64 * 64, from = part * omp_get_thread_num();
#if defined(__SSE2__)
            if (streaming) {
                for (long i = from; i < from + part; i += 4) _mm_stream_ps(b + i, _mm_load_ps(a + i));
                _mm_sfence();
            } else
#endif
            for (long i = from; i < from + part; ++i) b[i] = a[i];
            asm volatile("" : : "r"(b) : "memory");
        }
    });
    sink = b[n / 2];
    free(a); free(b);
    return 8.0 * n / t / 1e9;
}

extern "C" double read_gb_s(long n, int threads, int passes) {
    float* a = (float*)aligned_alloc(64, n * 4);
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n; ++i) a[i] = 1;
    double t = best(passes, [&] {
        float total = 0;
        #pragma omp parallel num_threads(threads) reduction(+ : total)
        {
            long part = n / omp_get_num_threads() / 64 * 64;
            total += sum(a + part * omp_get_thread_num(), part);
        }
        sink = total;
    });
    free(a);
    return 4.0 * n / t / 1e9;
}

// Copy within one core's cache, read plus written bytes.
extern "C" double cache_gb_s(long n, int passes) {
    float* a = (float*)aligned_alloc(64, n * 4);
    float* b = (float*)aligned_alloc(64, n * 4);
    for (long i = 0; i < n; ++i) { a[i] = 1; b[i] = 2; }
    long repeats = 4000000 / n + 1;
    double t = best(passes, [&] {
        for (long r = 0; r < repeats; ++r) {
            for (long i = 0; i < n; ++i) b[i] = a[i];
            asm volatile("" : : "r"(b) : "memory");
        }
    });
    free(a); free(b);
    return 8.0 * n * repeats / t / 1e9;
}

// 160 independent fused multiply-adds per step: ten vectors of 16 lanes, more than latency times ports.
extern "C" double fp32_gflops(int threads, int passes) {
    const long steps = 1 << 21;
    double t = best(passes, [&] {
        #pragma omp parallel num_threads(threads)
        {
            typedef float V __attribute__((vector_size(64)));
            V v[10];
            for (int k = 0; k < 10; ++k) v[k] = V{} + (0.5f + k);
            V m = V{} + factor, c = V{} + addend;
            for (long s = 0; s < steps; ++s)
                for (int k = 0; k < 10; ++k) v[k] = v[k] * m + c;
            float total = 0;
            for (int k = 0; k < 10; ++k) total += v[k][0] + v[k][7];
            #pragma omp critical
            sink = total;
        }
    });
    return 2.0 * 160 * steps * threads / t / 1e9;
}
"""


def measure(payload: Mapping[str, Any]) -> dict[str, float]:
    """Build the probes and run them; about two seconds. `payload`: compiler, threads, l1_bytes, l2_bytes, l3_bytes."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "peaks.cpp", Path(folder) / "peaks.so"
        source.write_text(_CPP)
        flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run([payload["compiler"], *flags, str(source), "-o", str(library)], check=True, timeout=60)
        probes = ctypes.CDLL(str(library))
    for name in ("copy_gb_s", "read_gb_s", "cache_gb_s", "fp32_gflops"):
        getattr(probes, name).restype = ctypes.c_double
    threads = payload["threads"]
    # Four times the last-level cache, as STREAM asks, within what a small machine has.
    n = min(max(4 * payload["l3_bytes"], 64 * 2**20), 2**29) // 4 // 4096 * 4096
    long = ctypes.c_long
    copies = [probes.copy_gb_s(long(n), threads, 6, streaming) for streaming in (0, 1)]
    in_l2 = max(payload["l2_bytes"], 2**18) // 4 // 8 // 64 * 64
    in_l1 = max(payload["l1_bytes"], 2**14) // 4 // 4 // 64 * 64
    return {
        "copy_gb_s": max(copies),
        "read_gb_s": probes.read_gb_s(long(n), threads, 6),
        "cache_gb_s": max(probes.cache_gb_s(long(in_l2), 8), probes.cache_gb_s(long(in_l1), 8)),
        "fp32_gflops": probes.fp32_gflops(threads, 8),
    }

