"""Makes ``mobileprep/ops/data/kernel_modules.json``: the ops whose kernels each module holds.

python tools/make_kernel_index.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mobileprep.ops.context import (
    context_kernel_names,
    find_context_kernel,
)
from mobileprep.ops.kernel import find_kernel, kernel_names
from mobileprep.ops.kernel_modules import INDEX


def render() -> str:
    """The whole index, as JSON with one line an op."""
    kernels = {op: find_kernel(op) for op in kernel_names()}
    kernels |= {op: find_context_kernel(op) for op in context_kernel_names()}
    modules: dict[str, list[str]] = {}
    for op in sorted(kernels):
        modules.setdefault(kernels[op].__module__.rpartition(".")[2], []).append(op)
    return json.dumps(modules, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    INDEX.write_text(render(), encoding="utf-8")
