"""The CPU kernel classes that TensorFlow releases register for nodes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, TypedDict

from msgspec import Struct

from mobileprep.errors import UnsupportedError, nearest_hint
from mobileprep.graph.node import Node
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.opdefs.definitions import RELEASES, op_def

_DATA: Final = Path(__file__).parent / "data"
_LABEL: Final = "_kernel"


class _Constraints(TypedDict, total=False):
    """Rare constraints of a row: a label, and the permitted values of attributes besides types."""

    label: str
    attrs: dict[str, list[str | int | bool]]


class _Registration(_Constraints):
    """A row of the table: a kernel class, and the required type of each type attribute."""

    types: dict[str, str]
    kernel: str


def kernel_class(node: Node, release: str) -> str | None:
    """Return the class of the CPU kernel that runs a node in a release.

    Missing attributes have the defaults of the release's op definition. A ``_kernel`` attribute
    selects the kernels with that label.

    Args:
        release: "1.15" or "2.21".

    Returns:
        The class as in selective registration ("BinaryOp<CPUDevice, functor::add<float>>"), or None
        if the release does not have the op or a kernel for its types.

    Source: ``TryFindKernelClass`` and ``FindKernelDef`` of TensorFlow.
    """
    label = node.attrs.get(_LABEL)
    text = label.value.decode("utf-8", "replace") if label and label.kind == "string" else ""
    rows = _registrations(node.op, text, release)
    definition = op_def(node.op, release)
    if not rows or definition is None:
        return None
    types = _type_attrs(node, definition)
    # Use the most specific row: some ops also have a row for any type.
    fitting = [
        r
        for r in rows
        if all(_fits(types.get(a), t) for a, t in r["types"].items())
        and all(_value(node, definition, a) in v for a, v in r.get("attrs", {}).items())
    ]
    return max(fitting, key=lambda r: len(r["types"]))["kernel"] if fitting else None


def registered_types(op: str, release: str) -> Mapping[str, frozenset[str]]:
    """Return the types of a release's CPU kernels for an op, by type attribute.

    Attributes that no kernel restricts are absent.
    """
    types: dict[str, set[str]] = {}
    for row in _registrations(op, "", release):
        for name, label in row["types"].items():
            types.setdefault(name, set()).add(label)
    return {name: frozenset(labels) for name, labels in types.items()}


def kernel_classes(op: str, release: str) -> frozenset[str]:
    """Return the classes of all CPU kernels without a label that a release has for an op."""
    return frozenset(row["kernel"] for row in _registrations(op, "", release))


class KernelRow(Struct, frozen=True):
    """A registration of a CPU kernel.

    Args:
        kernel: the kernel class.
        types: required type of each type attribute, such as ``{"T": "DT_FLOAT"}``.
        attrs: permitted values of other attributes.
        label: label that a node selects with its ``_kernel`` attribute; usually empty.
    """

    kernel: str
    types: Mapping[str, str]
    attrs: Mapping[str, Sequence[str | int | bool]]
    label: str


def kernel_rows(op: str, release: str) -> tuple[KernelRow, ...]:
    """Return all registrations of CPU kernels of an op in a release."""
    return tuple(
        KernelRow(row["kernel"], row["types"], row.get("attrs", {}), row.get("label", ""))
        for row in _rows(op, release)
    )


def node_types(node: Node, release: str) -> Mapping[str, tuple[str, ...]]:
    """Return the labels of a node's type attributes, with the defaults of the release."""
    definition = op_def(node.op, release)
    return {} if definition is None else _type_attrs(node, definition)


def _fits(types: tuple[str, ...] | None, expected: str) -> bool:
    return types is not None and all(t == expected for t in types)


def _value(node: Node, definition: OpDef, name: str) -> str | int | bool | None:
    """Return a string, int, or bool attribute with its default; None for other kinds."""
    declared = definition.attr(name)
    value = node.attrs.get(name, declared.default if declared is not None else None)
    if value is None or value.kind not in ("string", "int", "bool"):
        return None
    raw: bytes | int | bool = value.value
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw


def _type_attrs(node: Node, definition: OpDef) -> dict[str, tuple[str, ...]]:
    """Return the labels of a node's type attributes with defaults; single types as 1-tuples."""
    types: dict[str, tuple[str, ...]] = {}
    for declared in definition.attrs:
        if declared.kind not in ("type", "list(type)"):
            continue
        value = node.attrs.get(declared.name, declared.default)
        if value is not None and value.kind == "type":
            types[declared.name] = (value.value.label,)
        elif value is not None and value.kind in ("list", "list(type)"):
            types[declared.name] = tuple(t.label for t in value.value)
    return types


@lru_cache(maxsize=4096)
def _registrations(op: str, label: str, release: str) -> tuple[_Registration, ...]:
    return tuple(row for row in _rows(op, release) if row.get("label", "") == label)


def _rows(op: str, release: str) -> list[_Registration]:
    line = _table(release).get(op)
    return [] if line is None else json.loads(line)


@lru_cache(maxsize=len(RELEASES))
def _table(release: str) -> Mapping[str, str]:
    """Return the rows of each op as JSON strings, because parsing all rows would take too long."""
    if release not in RELEASES:
        message = f"no kernel table of TensorFlow {release}"
        hint = nearest_hint(release, RELEASES) or f"one of {', '.join(RELEASES)}"
        raise UnsupportedError(message, hint)
    text = gzip.decompress((_DATA / f"kernels-{release}.tsv.gz").read_bytes()).decode()
    return dict(line.split("\t", 1) for line in text.splitlines())
