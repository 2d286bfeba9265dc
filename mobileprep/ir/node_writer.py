"""Nodes to NodeDefs: small ones quickly, byte for byte as protobuf writes them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import CONTENT_FIELD, delimited, field_header
from mobileprep.ir.attrs import REPEATED_KINDS, Attrs, AttrValue
from mobileprep.ir.node import Node
from mobileprep.ir.serde_attrs import attr_to_proto
from mobileprep.ir.serde_tensor import is_large, is_written_raw, tensor_to_proto
from mobileprep.ir.tensor import Tensor

_NAME, _OP, _INPUT, _DEVICE, _ATTR, _DEBUG_INFO, _TYPE = range(1, 8)
_TENSOR: Final = 8
_ONE_BYTE: Final = 0x7F
# Of what differs from node to node no more than this is kept.
_MOST: Final = 1 << 12


class NodeWriter:
    """Writes the nodes of one graph.

    Ops and attributes repeat a lot; their bytes are made once.

    Args:
        number: the number of the field that holds the nodes.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._headers: dict[int, bytes] = {}
        self._ops: dict[str, bytes] = {}
        # By identity, as nodes of a kind often share them; held, so that it stays theirs.
        self._attrs: dict[int, tuple[Attrs, bytes]] = {}
        self._values: dict[Hashable, bytes] = {}
        self._heads: dict[Hashable, bytes] = {}
        self._orders: dict[tuple[str, ...], list[str]] = {}

    def record(self, node: Node) -> bytes | None:
        """A node's field, tag and length included; None where it has content worth a view."""
        tail = self.tail(node)
        if tail is None:
            return None
        op = self._ops.get(node.op)
        if op is None:
            op = self._ops[node.op] = _text(_OP, node.op) if node.op else b""
        pieces = [_text(_NAME, node.name) if node.name else b"", op]
        for ref in node.inputs:
            plain = ref.index == 0 and not ref.explicit and not ref.output
            pieces.append(_text(_INPUT, ref.node if plain else str(ref)))
        pieces.append(tail)
        body = b"".join(pieces)
        size = len(body)
        header = self._headers.get(size)
        if header is None:
            header = self._headers[size] = field_header(self._number, size)
        return header + body

    def tail(self, node: Node) -> bytes | None:
        """What stands behind a node's inputs; None where it has content worth a view."""
        known = self._attrs.get(id(node.attrs))
        attrs = self._attrs_bytes(node.attrs) if known is None else known[1]
        if attrs is None or not (node.device or any(node.debug_info)):
            return attrs
        pieces = [_text(_DEVICE, node.device) if node.device else b"", attrs]
        for number, debug in zip((_DEBUG_INFO, _TYPE), node.debug_info, strict=True):
            pieces.append(delimited(number, debug) if debug else b"")
        return b"".join(pieces)

    def _attrs_bytes(self, attrs: Attrs) -> bytes | None:
        pieces = []
        repeated = True
        for name in self._in_order(tuple(attrs)):
            value = attrs[name]
            if value.kind != "tensor":
                pieces.append(self._entry(name, value))
            elif is_large(value.value):
                return None
            else:
                pieces.append(self._tensor_entry(name, value))
                repeated = False
        written = b"".join(pieces)
        if repeated and len(self._attrs) < _MOST:
            self._attrs[id(attrs)] = attrs, written
        return written

    def _in_order(self, names: tuple[str, ...]) -> list[str]:
        """Attributes in protobuf's deterministic order: a name comes before its own beginnings."""
        order = self._orders.get(names)
        if order is None:
            # No text has this byte, the highest, in UTF-8.
            order = sorted(names, key=lambda name: name.encode() + b"\xff")
            if len(self._orders) < _MOST:
                self._orders[names] = order
        return order

    def _entry(self, name: str, value: AttrValue) -> bytes:
        if value.kind not in REPEATED_KINDS:
            return _entry(name, value)
        key = name, value.kind, value.value
        found = self._values.get(key)
        if found is None:
            found = _entry(name, value)
            if len(self._values) < _MOST:
                self._values[key] = found
        return found

    def _tensor_entry(self, name: str, value: AttrValue) -> bytes:
        tensor: Tensor = value.value
        if not is_written_raw(tensor):
            return _entry(name, value)
        content = tensor.raw()
        if not content:
            return _entry(name, value)
        key = name, tensor.dtype, tensor.shape, len(content)
        head = self._heads.get(key)
        if head is None:
            head = content_attr(name, tensor)[0]
            if len(self._heads) < _MOST:
                self._heads[key] = head
        return b"".join((head, content))


def content_attr(name: str, tensor: Tensor) -> tuple[bytes, memoryview]:
    """The field of a tensor attribute in two pieces, the content at the end.

    All before the content follows from the name, the type, the shape, and the content's length.
    """
    proto = pb.TensorProto()
    tensor_to_proto(tensor, proto, with_content=False)
    content = memoryview(tensor.raw()).cast("B")
    head = proto.SerializeToString(deterministic=True) + field_header(CONTENT_FIELD, len(content))
    for number in (_TENSOR, 2):
        head = field_header(number, len(head) + len(content)) + head
    key = delimited(1, name.encode())
    return field_header(_ATTR, len(key) + len(head) + len(content)) + key + head, content


def _entry(name: str, value: AttrValue) -> bytes:
    proto = pb.NodeDef()
    attr_to_proto(value, proto.attr[name])
    return proto.SerializeToString(deterministic=True)


def _text(number: int, text: str) -> bytes:
    data = text.encode()
    if len(data) > _ONE_BYTE:
        return delimited(number, data)
    return b"%c%c%b" % (number << 3 | 2, len(data), data)
