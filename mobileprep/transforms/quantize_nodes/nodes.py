"""The nodes that eight-bit graphs are built from, named and spelt as the original tool does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref, control
from mobileprep.graph.tensor import Array, Tensor

FLOAT: Final = attr.dtype(DType.FLOAT)


QUINT8: Final = attr.dtype(DType.QUINT8)


QINT32: Final = attr.dtype(DType.QINT32)


MIN_FIRST: Final = attr.string("MIN_FIRST")


_WITH_ZERO: Final = "_with_zero"


# A number stands behind it where the name was taken.
_HOLDS_ZERO: Final = re.compile(rf"{_WITH_ZERO}(_[0-9]+)?\Z")


# Large graphs get many of each, which share their attributes.
_RESHAPE_DIMS: Final = constant("", Tensor.packed(np.array([-1], np.int32))).attrs


_REDUCTION_DIMS: Final = constant("", Tensor.packed(np.array([0], np.int32))).attrs


_ZERO: Final = constant("", Tensor.packed(np.float32(0))).attrs


_OF_FLOATS: Final = {"T": FLOAT}


_REDUCTION: Final = {"T": FLOAT, "keep_dims": attr.boolean(False)}


CONVERSION: Final[Mapping[str, AttrValue]] = {"T": QUINT8, "mode": MIN_FIRST}


_REQUANTIZATION: Final = {"Tinput": QINT32, "out_type": QUINT8}


_MEASUREMENT: Final = {"Tinput": QINT32}


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
    attrs = CONVERSION if dtype is QUINT8 else {"T": dtype, "mode": MIN_FIRST}
    return Node(name, "QuantizeV2", (value, Ref(low), Ref(high)), attrs=attrs)


def dequantize(name: str, inputs: Iterable[Ref]) -> Node:
    """Eight-bit integers, their minimum and their maximum, to floats."""
    return Node(name, "Dequantize", tuple(inputs), attrs=CONVERSION)


def requantize(name: str, source: str, low: Ref, high: Ref) -> Node:
    """A node's 32-bit integers to eight-bit ones of a range."""
    return Node(name, "Requantize", (*ports(source), low, high), attrs=_REQUANTIZATION)


def requantization_range(name: str, source: str) -> Node:
    """The range that a node's 32-bit integers take up."""
    return Node(name, "RequantizationRange", ports(source), attrs=_MEASUREMENT)


def quantized_input(
    names: FreshNames, prefix: str, value: Ref, *, tied: bool, with_zero: bool = False
) -> list[Node]:
    """A float tensor to eight bits of the range that it has when the graph runs.

    Args:
        tied: whether the constants have control inputs, which put them into the tensor's loop.
    """
    after = (control(value.node),) if tied else ()
    dims = Node(names.name(f"{prefix}/reshape_dims"), "Const", after, attrs=_RESHAPE_DIMS)
    axes = Node(names.name(f"{prefix}/reduction_dims"), "Const", after, attrs=_REDUCTION_DIMS)
    flat_inputs = (value, Ref(dims.name))
    flat = Node(names.name(f"{prefix}/reshape"), "Reshape", flat_inputs, attrs=_OF_FLOATS)
    both = (Ref(flat.name), Ref(axes.name))
    low = Node(names.name(f"{prefix}/min"), "Min", both, attrs=_REDUCTION)
    high = Node(names.name(f"{prefix}/max"), "Max", both, attrs=_REDUCTION)
    nodes = [dims, axes, flat, low, high]
    if with_zero:
        nodes += held_by_zero(names, prefix, Ref(low.name), Ref(high.name))
        low, high = nodes[-2:]
    return [*nodes, quantize(names.name(f"{prefix}/quantize"), value, low.name, high.name)]


def held_by_zero(names: FreshNames, prefix: str, low: Ref, high: Ref) -> list[Node]:
    """A measured range made to hold zero, as that of an empty tensor does not."""
    zero = Node(names.name(f"{prefix}/zero"), "Const", (control(low.node),), attrs=_ZERO)
    ends = (("min", "Minimum", low), ("max", "Maximum", high))
    held = [
        Node(
            names.name(f"{prefix}/{end}{_WITH_ZERO}"),
            kind,
            (ref, Ref(zero.name)),
            attrs=_OF_FLOATS,
        )
        for end, kind, ref in ends
    ]
    return [zero, *held]


def holds_zero(name: str) -> bool:
    """Whether a node is named as those that make a measured range hold zero."""
    return _HOLDS_ZERO.search(name) is not None


LEVELS = 256


class EvenSteps(Struct, frozen=True):
    """What the integers 0 to 255 stand for: ``(integer - zero) * size``.

    Args:
        size: the distance between two of the floats, above zero.
        zero: the integer that stands for 0.0, from 0 to 255.
    """

    size: float
    zero: int

    @classmethod
    def over(cls, low: float, high: float) -> EvenSteps:
        """The 256 steps over a range, which is made to hold zero, and moved so that zero is one.

        Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
        Integer-Arithmetic-Only Inference" (2018), section 3.
        """
        low, high = min(low, 0.0), max(high, 0.0)
        size = (high - low) / (LEVELS - 1)
        # Of nothing but zeros, any steps will do.
        return cls(size, round(-low / size)) if size > np.finfo(np.float32).tiny else cls(1.0, 0)

    @property
    def low(self) -> float:
        """What 0 stands for."""
        return -self.zero * self.size

    @property
    def high(self) -> float:
        """What 255 stands for."""
        return (LEVELS - 1 - self.zero) * self.size

    def nearest(self, values: Array, lowest: int = 0, highest: int = LEVELS - 1) -> Array:
        """The nearest integer for each float, uint8; beyond both ends, the ends."""
        levels = np.rint(values / np.float32(self.size)) + np.float32(self.zero)
        found: Array = np.clip(levels, lowest, highest).astype(np.uint8)
        return found
