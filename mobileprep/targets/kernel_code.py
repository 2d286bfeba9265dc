"""About how much code the kernels are that a header registers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from mobileprep.graph.opdefs.definitions import TF115
from mobileprep.graph.opdefs.kernel_classes import kernel_classes
from mobileprep.graph.opdefs.source_files import ops_of_files
from mobileprep.targets.op_lists import OpKernel

KERNEL_CODE_BASIS: Final = "the code of each source file in the x86-64 wheel of TensorFlow 1.15"
"""What an estimate rests on."""

_SIZES: Final = Path(__file__).parents[1] / "graph" / "opdefs" / "data" / "kernel_code-1.15.json"


def kernel_bytes(ops: Iterable[OpKernel], release: str) -> int | None:
    """About how many bytes of code kernels are; None for a release without a table.

    Of each source file as much counts as the share of its kernels that are registered: templates
    of types that are not registered are not compiled.
    """
    if release != TF115:
        return None
    used = Counter(pair.op for pair in set(ops) if pair.kernel is not None)
    total = 0.0
    for file, size in _sizes().items():
        names = _ops_of_files().get(file, ())
        count = sum(used[op] for op in names)
        if count:
            there = sum(len(kernel_classes(op, TF115)) for op in names)
            total += size * min(1.0, count / max(1, there))
    return round(total)


@lru_cache(maxsize=1)
def _ops_of_files() -> Mapping[str, tuple[str, ...]]:
    return ops_of_files(TF115)


@lru_cache(maxsize=1)
def _sizes() -> dict[str, int]:
    sizes: dict[str, int] = json.loads(_SIZES.read_text(encoding="utf-8"))["bytes"]
    return sizes
