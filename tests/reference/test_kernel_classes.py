"""Kernel classes against the original library's own look-up, for every op and common types."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.node import Node
from mobileprep.ops.kernel_classes import kernel_class
from mobileprep.ops.opdefs import OLDEST, op_def, op_names

pytestmark = pytest.mark.reference

TYPES = [DType.FLOAT, DType.DOUBLE, DType.INT32, DType.INT64, DType.UINT8, DType.INT8]
TYPES += [DType.STRING, DType.BOOL, DType.HALF, DType.QUINT8, DType.COMPLEX64, DType.RESOURCE]


def _nodes() -> Iterator[Node]:
    for op in op_names(OLDEST):
        for dtype in TYPES:
            for defaults in (True, False):
                yield Node("n", op, attrs=dict(_types(op, dtype, defaults)))


def _types(op: str, dtype: DType, defaults: bool) -> Iterator[tuple[str, AttrValue]]:
    """All type attributes set to one type; those with a default left out where asked for."""
    definition = op_def(op, OLDEST)
    assert definition is not None
    for declared in definition.attrs:
        if declared.default is not None and defaults:
            continue
        if declared.kind == "type":
            yield declared.name, attr.dtype(dtype)
        elif declared.kind == "list(type)":
            yield declared.name, AttrValue("list(type)", (dtype,))


def _serialized(node: Node) -> bytes:
    proto = pb.NodeDef(name=node.name, op=node.op)
    for name, value in node.attrs.items():
        if value.kind == "type":
            proto.attr[name].type = value.value
        else:
            proto.attr[name].list.type.extend(value.value)
    data: bytes = proto.SerializeToString()
    return len(data).to_bytes(4, "little") + data


def test_every_op_has_the_class_that_the_original_library_finds(original: Path) -> None:
    nodes = list(_nodes())
    done = subprocess.run(
        [original / "find_kernel_class"],
        input=b"".join(map(_serialized, nodes)),
        capture_output=True,
        timeout=300,
        check=True,
    )
    theirs = done.stdout.decode().splitlines()
    wrong = [
        f"{n.op} {[str(v.value) for v in n.attrs.values()]}: {ours} here, {there or None} there"
        for n, there in zip(nodes, theirs, strict=True)
        if (ours := kernel_class(n, OLDEST)) != (there or None)
    ]
    assert wrong == []
