"""Find features of a node that a TensorFlow release does not support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from msgspec import Struct

from mobileprep.graph.attrs import AttrDef, AttrValue, OpDef
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS
from mobileprep.graph.opdefs.definitions import NEWEST, TF115, op_def
from mobileprep.graph.opdefs.kernel_classes import kernel_class

GRAPH_VERSIONS: Final = {TF115: 134, NEWEST: 2474}
"""``TF_GRAPH_DEF_VERSION`` by release; graphs with a larger ``min_consumer`` are rejected."""

_CHANNELS_LAST: Final = frozenset({"NHWC", "NDHWC"})
# CPU kernels are registered by type only, and reject these attributes at run time. The depthwise
# kernel of 1.15 does not reject dilations, but ignores them.
_ONLY_CHANNELS_LAST: Final = frozenset(
    {
        *("AvgPool", "AvgPool3D", "MaxPool", "MaxPool3D", "MaxPoolV2"),
        *("Conv2D", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropInputV2"),
        *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput"),
        *("DepthToSpace", "SpaceToDepth"),
    }
)
_DEPTHWISE: Final = frozenset({"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput"})
_UNDILATED: Final = _DEPTHWISE | {"Conv2DBackpropInput", "Conv3D", "Conv3DBackpropInputV2"}

GapKind = Literal["op", "default attribute", "attribute", "value", "removed", "kernel"]

# Attributes for gradients or variable names, which inference kernels do not read.
_IDLE: Final = {
    **dict.fromkeys(("MatMul",), frozenset({"grad_a", "grad_b"})),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2"), frozenset({"grad_x", "grad_y"})),
    "VarHandleOp": frozenset({"debug_name", "allowed_devices"}),
}
WITHOUT_KERNEL: Final = frozenset({"AccumulateNV2"})
"""Ops that the runtime replaces before they run."""


class ReleaseGap(Struct, frozen=True, order=True):
    """A feature of a node that a release does not support.

    Args:
        kind: the op; an attribute with or without the newer release's default; the value of an
            attribute; the op for graphs of that version; or a CPU kernel for the types.
        what: the attribute, the value, or the types, as text; empty for the op.
    """

    kind: GapKind
    what: str = ""


def has_kernel(node: Node, release: str) -> bool:
    """Return whether a release runs a node on the CPU, or replaces it before it runs."""
    return node.op in WITHOUT_KERNEL or kernel_class(node, release) is not None


def type_text(node: Node) -> str:
    """Format the type attributes: ``T=int32, Tidx=int64``."""
    named = [f"{n}={v.value.short}" for n, v in sorted(node.attrs.items()) if v.kind == "type"]
    return ", ".join(named) or "its attributes"


def spare_attributes(node: Node, release: str) -> frozenset[str]:
    """Return the attributes that a release does not know and that do not affect the node."""
    definition = op_def(node.op, release)
    if definition is None:
        return frozenset()
    idle = _IDLE.get(node.op, frozenset())
    defaults = {a.name: a.default for a in getattr(op_def(node.op), "attrs", ())}
    return frozenset(
        name
        for name in _unknown(node, definition)
        if name in idle or _same(defaults.get(name), node.attrs[name])
    )


def release_gaps(node: Node, release: str, producer: int = 0) -> Iterator[ReleaseGap]:
    """Yield everything that a release does not support about a node that calls no function.

    Args:
        node: the node.
        release: "1.15" or "2.21".
        producer: graph version of the producer.

    Source: ``ValidateNodeDef``, ``CheckOpDeprecation``, and ``FindKernelDef`` of TensorFlow, and
    the constructors and ``Compute`` of its CPU kernels.
    """
    definition = op_def(node.op, release)
    if definition is None:
        yield ReleaseGap("op")
        return
    spare = spare_attributes(node, release)
    unknown = _unknown(node, definition)
    newer = [f"{name}={_shown(node.attrs[name])}" for name in unknown if name not in spare]
    values = [
        f"{a.name}={_shown(node.attrs[a.name])}"
        for a in definition.attrs
        if a.name in node.attrs and not _is_allowed(node.attrs[a.name], a)
    ]
    yield from (ReleaseGap("default attribute", name) for name in unknown if name in spare)
    yield from (ReleaseGap("attribute", text) for text in newer)
    yield from (ReleaseGap("value", text) for text in values)
    if 0 < definition.deprecated_at <= producer:
        yield ReleaseGap("removed", f"graph version {definition.deprecated_at}")
    if not values and not has_kernel(node, release):
        yield ReleaseGap("kernel", type_text(node))
    yield from (ReleaseGap("kernel", text) for text in _refused(node, release))


def _refused(node: Node, release: str) -> Iterator[str]:
    """Yield the attributes that a CPU kernel rejects or ignores."""
    layout = node.attr_str("data_format", "NHWC")
    if layout not in _CHANNELS_LAST and (
        node.op in _ONLY_CHANNELS_LAST or (node.op in FUSED_BATCH_NORMS and release == TF115)
    ):
        yield f"data_format={layout}"
    if node.op in _UNDILATED and set(node.attr_ints("dilations", ())) - {1}:
        yield f"dilations={_shown(node.attrs['dilations'])}"
    strides = node.attr_ints("strides", ()) if node.op in _DEPTHWISE else ()
    sides = strides[1:3] if layout in _CHANNELS_LAST else strides[2:4]
    if len(set(sides)) > 1:
        yield f"strides={_shown(node.attrs['strides'])}"


def _unknown(node: Node, definition: OpDef) -> list[str]:
    names = {a.name for a in definition.attrs}
    return [name for name in node.attrs if not name.startswith("_") and name not in names]


def _same(default: AttrValue | None, value: AttrValue) -> bool:
    if default is None:
        return False
    if default.kind.startswith("list") and value.kind.startswith("list"):
        return tuple(default.value or ()) == tuple(value.value or ())
    return default == value


def _is_allowed(value: AttrValue, declared: AttrDef) -> bool:
    if declared.allowed is None:
        return True
    allowed = declared.allowed.value
    values = value.value if value.kind.startswith("list") else (value.value,)
    return all(one in allowed for one in values or ())


def _shown(value: AttrValue) -> str:
    if value.kind.startswith("list"):
        return f"[{', '.join(_plain(one) for one in value.value or ())}]"
    return _plain(value.value)


def _plain(value: Any) -> str:  # noqa: ANN401 - whatever an attribute holds
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(getattr(value, "short", value))
