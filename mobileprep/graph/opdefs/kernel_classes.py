"""Classes and source files of kernels by release."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypedDict

from msgspec import Struct

from mobileprep.errors import UnsupportedError, nearest_hint
from mobileprep.graph.attrs import OpDef
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import NEWEST, RELEASES, TF115, op_def

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


_OP_FILES: Final = {TF115: "op_files-1.15.json", NEWEST: "op_files-2.json"}
_NEEDS: Final = {TF115: "file_needs-1.15.json"}
_MOBILE: Final = {TF115: "tf1.15", NEWEST: "tf2"}
_ELSEWHERE: Final = "makefile/tf_op_files.txt, outside core/kernels"

_RUNTIME_OPS: Final = frozenset({"_ArrayToList", "_ListToArray", "_Recv", "_Send", "NoOp"})
"""Ops whose files contain kernels that the runtime itself needs, such as ``_Arg``."""


class KernelFiles(Struct, frozen=True):
    """The source files that ops need, relative to ``tensorflow/core/kernels/`` and sorted.

    Args:
        kept: required files of the default mobile build: they register an op, or other required
            files call them.
        added: required files that are not in the default mobile build.
        unplaced: ops whose files are unknown.
        needed_by: reasons for each file: names of ops, or of files that call it; empty if the
            callers are unknown.
    """

    kept: tuple[str, ...]
    added: tuple[str, ...]
    unplaced: tuple[str, ...]
    needed_by: Mapping[str, tuple[str, ...]]


def kernel_files(ops: Iterable[str], release: str) -> KernelFiles:
    """Return the source files that ops need in a release.

    If some files of an op are in the default mobile build, its other files are not needed: they
    only contain kernels for types that mobile builds do not support.
    """
    by_op, default = _files_by_op(release), _default_files(release)
    needed = set(ops)
    reasons: dict[str, set[str]] = {}
    for op in needed | _RUNTIME_OPS:
        files = by_op.get(op, frozenset())
        for file in files & default or files:
            reasons.setdefault(file, set()).add(op)
    _add_called(reasons, needed, release)
    return KernelFiles(
        tuple(sorted(reasons.keys() & default)),
        tuple(sorted(reasons.keys() - default)),
        tuple(sorted(needed - by_op.keys())),
        {file: tuple(sorted(names)) for file, names in sorted(reasons.items())},
    )


def _add_called(reasons: dict[str, set[str]], ops: Collection[str], release: str) -> None:
    """Add files that other files call, and files with unknown callers."""
    needs, default = _needs(release), _default_files(release)
    registering = frozenset().union(*_files_by_op(release).values())
    for file in default - registering - needs.keys():
        reasons.setdefault(file, set())
    grows = True
    while grows:
        before = len(reasons)
        for file, users in needs.items():
            callers = {user for user in users if user in reasons or user in ops}
            if callers and (file in default or file in reasons):
                reasons.setdefault(file, set()).update(callers)
        grows = len(reasons) > before


def op_files(op: str, release: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the source files that register an op, and those in the default mobile build.

    Both are empty if the files of an op are unknown.
    """
    files = _files_by_op(release).get(op, frozenset())
    return files, files & _default_files(release)


def default_list(file: str, release: str) -> str:
    """Return the list of the default mobile build that has a kernel file; empty if none has it.

    For 1.15, that is the makefile's list, and for 2.21 a filegroup in Bazel's ``BUILD`` file.
    """
    groups = _json("mobile_files.json")[_MOBILE[release]]
    return next((g for g, files in groups.items() if g != _ELSEWHERE and file in files), "")


def is_kernel_file(name: str, release: str) -> bool:
    """Return whether a release is known to have that file in ``tensorflow/core/kernels/``."""
    return name in _default_files(release) or name in ops_of_files(release)


def ops_of_files(release: str) -> Mapping[str, tuple[str, ...]]:
    """Return the ops whose kernels each source file registers, sorted."""
    ops: dict[str, list[str]] = {}
    for op, files in sorted(_files_by_op(release).items()):
        for file in files:
            ops.setdefault(file, []).append(op)
    return {file: tuple(names) for file, names in ops.items()}


def makefile_sources(ops: Collection[str] = ()) -> tuple[str, ...]:
    """Return the files outside ``core/kernels`` of the makefile build of 1.15, in its order.

    Definitions of contrib's boosted trees, whose ops are not in any table, are not included.
    Gradients of functions are only included if ``SymbolicGradient`` needs them.
    """
    listed: list[str] = _json("mobile_files.json")[_MOBILE[TF115]][_ELSEWHERE]
    with_gradients = "SymbolicGradient" in ops
    return tuple(
        file
        for file in listed
        if not file.startswith("tensorflow/contrib/")
        and (with_gradients or not file.endswith("_grad.cc"))
    )


@lru_cache(maxsize=len(_OP_FILES))
def _files_by_op(release: str) -> Mapping[str, frozenset[str]]:
    name = _OP_FILES.get(release)
    if name is None:
        message = f"no table of the kernel files of TensorFlow {release}"
        hint = nearest_hint(release, _OP_FILES) or f"one of {', '.join(_OP_FILES)}"
        raise UnsupportedError(message, hint)
    return {op: frozenset(files) for op, files in _json(name)["files"].items()}


@lru_cache(maxsize=len(_MOBILE))
def _needs(release: str) -> Mapping[str, frozenset[str]]:
    """Return the callers (files or ops) of files; empty for releases where they are unknown."""
    if release not in _NEEDS:
        return {}
    return {file: frozenset(users) for file, users in _json(_NEEDS[release])["needed_by"].items()}


@lru_cache(maxsize=len(_MOBILE))
def _default_files(release: str) -> frozenset[str]:
    groups = _json("mobile_files.json")[_MOBILE[release]]
    return frozenset(
        file for group, files in groups.items() if group != _ELSEWHERE for file in files
    )


def _json(name: str) -> Any:  # noqa: ANN401 - our own data, of known form
    return json.loads((_DATA / name).read_text(encoding="utf-8"))
