"""The nodes that eight-bit graphs are built from, named and spelt as the original tool does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref, control
from mobileprep.ir.tensor import Tensor

FLOAT: Final = attr.dtype(DType.FLOAT)
QUINT8: Final = attr.dtype(DType.QUINT8)
QINT32: Final = attr.dtype(DType.QINT32)
MIN_FIRST: Final = attr.string("MIN_FIRST")

_RESHAPE_DIMS: Final = Tensor.packed(np.array([-1], np.int32))
_REDUCTION_DIMS: Final = Tensor.packed(np.array([0], np.int32))
_KEEP_NO_DIMS: Final = attr.boolean(False)


def port(node: str, index: int) -> Ref:
    """An output of a node with its number spelt out, 0 too."""
    return Ref(node, index, explicit=True)


def ports(node: str) -> tuple[Ref, Ref, Ref]:
    """The value, the minimum and the maximum that a node puts out."""
    return port(node, 0), port(node, 1), port(node, 2)


def scalar(name: str, value: float) -> Node:
    """A float32 constant."""
    return constant(name, Tensor.packed(np.asarray(value, np.float32)))


def quantize(name: str, value: Ref, low: str, high: str, dtype: AttrValue = QUINT8) -> Node:
    """Floats to integers of a range that two nodes give."""
    attrs = {"T": dtype, "mode": MIN_FIRST}
    return Node(name, "QuantizeV2", (value, Ref(low), Ref(high)), attrs=attrs)


def dequantize(name: str, inputs: Iterable[Ref]) -> Node:
    """Eight-bit integers, their minimum and their maximum, to floats."""
    return Node(name, "Dequantize", tuple(inputs), attrs={"T": QUINT8, "mode": MIN_FIRST})


def requantize(name: str, source: str, low: Ref, high: Ref) -> Node:
    """A node's 32-bit integers to eight-bit ones of a range."""
    attrs = {"Tinput": QINT32, "out_type": QUINT8}
    return Node(name, "Requantize", (*ports(source), low, high), attrs=attrs)


def requantization_range(name: str, source: str) -> Node:
    """The range that a node's 32-bit integers take up."""
    return Node(name, "RequantizationRange", ports(source), attrs={"Tinput": QINT32})


def quantized_input(prefix: str, value: Ref, *, tied: bool) -> list[Node]:
    """A float tensor to eight bits of the range that it has when the graph runs.

    Args:
        prefix: what the names of the nodes begin with; the last one is ``PREFIX/quantize``.
        value: the tensor.
        tied: whether the constants have control inputs, which put them into the tensor's loop.
    """
    after = (control(value.node),) if tied else ()
    dims = constant(f"{prefix}/reshape_dims", _RESHAPE_DIMS, inputs=after)
    axes = constant(f"{prefix}/reduction_dims", _REDUCTION_DIMS, inputs=after)
    flat = Node(f"{prefix}/reshape", "Reshape", (value, Ref(dims.name)), attrs={"T": FLOAT})
    attrs = {"T": FLOAT, "keep_dims": _KEEP_NO_DIMS}
    both = (Ref(flat.name), Ref(axes.name))
    low = Node(f"{prefix}/min", "Min", both, attrs=attrs)
    high = Node(f"{prefix}/max", "Max", both, attrs=attrs)
    return [dims, axes, flat, low, high, quantize(f"{prefix}/quantize", value, low.name, high.name)]
