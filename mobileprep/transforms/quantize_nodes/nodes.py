"""Nodes of 8-bit graphs, with the names and attributes that the original tool uses."""

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


# A number is appended if the name already exists.
_HOLDS_ZERO: Final = re.compile(rf"{_WITH_ZERO}(_[0-9]+)?\Z")


# Large graphs have many of each, which share their attributes.
_RESHAPE_DIMS: Final = constant("", Tensor.packed(np.array([-1], np.int32))).attrs


_REDUCTION_DIMS: Final = constant("", Tensor.packed(np.array([0], np.int32))).attrs


_ZERO: Final = constant("", Tensor.packed(np.float32(0))).attrs


_OF_FLOATS: Final = {"T": FLOAT}


_REDUCTION: Final = {"T": FLOAT, "keep_dims": attr.boolean(False)}


CONVERSION: Final[Mapping[str, AttrValue]] = {"T": QUINT8, "mode": MIN_FIRST}


_REQUANTIZATION: Final = {"Tinput": QINT32, "out_type": QUINT8}


_MEASUREMENT: Final = {"Tinput": QINT32}


def port(node: str, index: int) -> Ref:
    """Return an output of a node with an explicit number, including 0."""
    return Ref(node, index, explicit=True)


def ports(node: str) -> tuple[Ref, Ref, Ref]:
    """Return the value, the minimum, and the maximum outputs of a node."""
    return port(node, 0), port(node, 1), port(node, 2)


def scalar(name: str, value: float) -> Node:
    """Create a float32 constant."""
    return constant(name, Tensor.packed(np.asarray(value, np.float32)))


def quantize(name: str, value: Ref, low: str, high: str, dtype: AttrValue = QUINT8) -> Node:
    """Create a node that quantizes floats with a range from two nodes."""
    attrs = CONVERSION if dtype is QUINT8 else {"T": dtype, "mode": MIN_FIRST}
    return Node(name, "QuantizeV2", (value, Ref(low), Ref(high)), attrs=attrs)


def dequantize(name: str, inputs: Iterable[Ref]) -> Node:
    """Create a node that converts 8-bit integers, their minimum, and their maximum to floats."""
    return Node(name, "Dequantize", tuple(inputs), attrs=CONVERSION)


def requantize(name: str, source: str, low: Ref, high: Ref) -> Node:
    """Create a node that converts another node's 32-bit integers to 8 bits with a given range."""
    return Node(name, "Requantize", (*ports(source), low, high), attrs=_REQUANTIZATION)


def requantization_range(name: str, source: str) -> Node:
    """Create a node that measures the range of another node's 32-bit integers."""
    return Node(name, "RequantizationRange", ports(source), attrs=_MEASUREMENT)


def quantized_input(
    names: FreshNames, prefix: str, value: Ref, *, tied: bool, with_zero: bool = False
) -> list[Node]:
    """Create nodes that quantize a float tensor to 8 bits with its range at run time.

    Args:
        names: generator of new names.
        prefix: prefix of the new names.
        value: the tensor.
        tied: whether the constants have control inputs, which place them in the tensor's loop.
        with_zero: whether to extend the range to contain zero.
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
    """Create nodes that extend a measured range to contain zero, for example for empty tensors."""
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
    """Return whether a node has the name of one that extends a measured range to zero."""
    return _HOLDS_ZERO.search(name) is not None


LEVELS = 256


class EvenSteps(Struct, frozen=True):
    """Floats that the integers 0 to 255 represent: ``(integer - zero) * size``.

    Args:
        size: the distance between adjacent floats, above zero.
        zero: the integer that represents 0.0, from 0 to 255.
    """

    size: float
    zero: int

    @classmethod
    def over(cls, low: float, high: float) -> EvenSteps:
        """Create 256 steps over a range, extended and shifted so that zero is one of them.

        Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
        Integer-Arithmetic-Only Inference" (2018), section 3.
        """
        low, high = min(low, 0.0), max(high, 0.0)
        size = (high - low) / (LEVELS - 1)
        # If all values are zero, any steps work.
        return cls(size, round(-low / size)) if size > np.finfo(np.float32).tiny else cls(1.0, 0)

    @property
    def low(self) -> float:
        """The float that 0 represents."""
        return -self.zero * self.size

    @property
    def high(self) -> float:
        """The float that 255 represents."""
        return (LEVELS - 1 - self.zero) * self.size

    def nearest(self, values: Array, lowest: int = 0, highest: int = LEVELS - 1) -> Array:
        """Return the nearest integer of each float as uint8, clipped to the given ends."""
        levels = np.rint(values / np.float32(self.size)) + np.float32(self.zero)
        codes: Array = np.clip(levels, lowest, highest).astype(np.uint8)
        return codes
