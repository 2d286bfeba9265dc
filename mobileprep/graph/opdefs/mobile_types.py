"""The types that the default mobile builds of TensorFlow 1.15 register kernels for.

TensorFlow 2 compiles kernels for all types into its portable libraries.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final, TypedDict

from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import TF115
from mobileprep.graph.opdefs.kernel_classes import kernel_class, node_types, registered_types

_FILE: Final = Path(__file__).parent / "data" / "mobile_types.json"
# Kernels for indices and for quantized types are registered one by one, whatever is compiled.
_INDICES: Final = frozenset({"DT_INT32", "DT_INT64"})
_QUANTIZED: Final = ("DT_QINT", "DT_QUINT")
_TYPICAL: Final = "DT_FLOAT"


class _ElementWise(TypedDict):
    classes: list[str]
    usual: list[str]
    others: dict[str, list[str]]


class _MobileTypes(TypedDict):
    compiled: list[str]
    element_wise: _ElementWise


def type_left_out(node: Node, release: str) -> str:
    """The type for which a mobile build by default has no kernel of a node, or an empty text.

    Args:
        release: of TensorFlow; by default only builds of 1.15 leave types out.

    Returns:
        attribute and type, such as ``T=DT_INT64``.
    """
    kernel = kernel_class(node, release) if release == TF115 else None
    if kernel is None:
        return ""
    registered = registered_types(node.op, release)
    compiled = _compiled(node.op, kernel)
    for name, labels in sorted(node_types(node, release).items()):
        known = registered.get(name, frozenset())
        is_listed = known <= _INDICES or (compiled is None and _TYPICAL not in known)
        for label in labels:
            if is_listed or label not in known or label.startswith(_QUANTIZED):
                continue
            if label not in (compiled or _table()["compiled"]):
                return f"{name}={label}"
    return ""


def _compiled(op: str, kernel: str) -> list[str] | None:
    """The types of an element-wise op's kernels; None for ops of another kind."""
    element_wise = _table()["element_wise"]
    if not kernel.startswith(tuple(element_wise["classes"])):
        return None
    return element_wise["others"].get(op, element_wise["usual"])


@cache
def _table() -> _MobileTypes:
    found: _MobileTypes = json.loads(_FILE.read_text(encoding="utf-8"))
    return found
