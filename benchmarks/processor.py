"""Describe the processor and BLAS library, which determine the speed of matrix products."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import threadpoolctl

# Vector instruction sets that matrix products use, narrowest first.
_WIDTHS = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "amx_tile", "asimd", "sve")
_CORETYPE = "OPENBLAS_CORETYPE"


def described() -> list[str]:
    """Return lines that describe the processor, its vector instructions, and numpy's BLAS."""
    model, flags = _cpuinfo()
    widths = " ".join(w for w in _WIDTHS if w in flags) or "not told by this system"
    lines = [
        f"processor: {model}, {len(_usable())} of {os.cpu_count()} cores; {widths}",
        f"numpy {np.__version__}",
    ]
    for library in threadpoolctl.threadpool_info():
        if library["user_api"] == "blas":
            name = f"{library['internal_api']} {library['version']}"
            kernels = library.get("architecture", "not told")
            lines.append(f"{name}, kernels for {kernels}, {library['num_threads']} threads")
    if _CORETYPE in os.environ:
        lines.append(f"{_CORETYPE}={os.environ[_CORETYPE]} decides which kernels OpenBLAS takes")
    return lines


def without_coretype() -> dict[str, str] | None:
    """Return the environment without a kernel selection for OpenBLAS; None if there is none."""
    if _CORETYPE not in os.environ:
        return None
    return {name: value for name, value in os.environ.items() if name != _CORETYPE}


def _usable() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _cpuinfo() -> tuple[str, frozenset[str]]:
    """Return the processor's model name and flags from ``/proc/cpuinfo``."""
    file = Path("/proc/cpuinfo")
    if not file.exists():
        return platform.processor() or platform.machine(), frozenset()
    fields = dict(
        (part.strip() for part in line.split(":", 1))
        for line in reversed(file.read_text().splitlines())
        if ":" in line
    )
    flags = fields.get("flags", fields.get("Features", ""))
    return fields.get("model name", platform.machine()), frozenset(flags.split())
