"""Random nodes of any op, with inputs of random shapes, some of them constants."""

from __future__ import annotations

import random

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrDef, AttrValue, OpDef, TensorShape
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import input_types
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor

NODE = "node"
_PRODUCER = 1482
_SIZES = (1, 2, 3, 4, 6, -1)
_RANKS = (0, 1, 1, 2, 2, 3, 4, 4, 4, 5)
_LIKELY = (DType.FLOAT, DType.INT32, DType.QUINT8, DType.STRING, DType.BOOL, DType.COMPLEX64)
_INDICES = (DType.INT32, DType.INT64)
_WINDOWS = ("strides", "ksize", "ksizes", "rates")
_AXES = ("axis", "batch_dims", "batch_dim")

Ranks = dict[int, int]
"""The required rank of inputs, by index."""


class RandomNodes:
    """Build graphs of one node of an op, named ``NODE``, and its inputs."""

    def __init__(self, definition: OpDef, seed: int) -> None:
        self._definition = definition
        self._random = random.Random(seed)

    def graph(self, ranks: Ranks) -> Graph | None:
        """Another graph, or None if the op is not supported here."""
        attrs = self._attrs()
        if attrs is None:
            return None
        node = Node(NODE, self._definition.name, attrs=attrs)
        types = input_types(node, self._definition)
        if any(t.is_ref for t in types):
            return None
        common = self._shape()
        inputs = [self._input(i, t, ranks, common) for i, t in enumerate(types)]
        refs = tuple(Ref(n.name) for n in inputs)
        node = Node(NODE, node.op, refs, attrs=attrs)
        return Graph([*inputs, node], versions=Versions(_PRODUCER))

    def _shape(self, rank: int | None = None) -> TensorShape:
        if rank is None:
            if self._random.random() < 0.12:
                return None
            rank = self._random.choice(_RANKS)
        return tuple(self._random.choice(_SIZES) for _ in range(rank))

    def _input(self, index: int, dtype: DType, ranks: Ranks, common: TensorShape) -> Node:
        rank = ranks.get(index)
        name = f"input{index}"
        if dtype in _INDICES and self._random.random() < 0.75:
            value = self._indices(rank, 2 if common is None else len(common))
            return constant(name, Tensor.of(value.astype(dtype.numpy)))
        shape = common if rank is None and self._random.random() < 0.5 else self._shape(rank)
        attrs = {"dtype": attr.dtype(dtype), "shape": attr.shape(shape)}
        return Node(name, "Placeholder", attrs=attrs)

    def _indices(self, rank: int | None, count: int) -> Array:
        """A number, some numbers, pairs of numbers, or an order of so many axes."""
        choose = self._random.choice
        rank = choose((0, 1, 1, 2)) if rank is None else rank
        if rank == 0:
            return np.array(choose((0, 1, -1, 2, 3)))
        if rank == 1 and self._random.random() < 0.4:
            return np.array(self._random.sample(range(count), count), dtype=np.int64)
        shape = (choose((1, 2, count, 4)),) if rank == 1 else (count,) + (2,) * (rank - 1)
        low = -1 if rank == 1 else 0
        drawn = [self._random.randint(low, 3) for _ in range(int(np.prod(shape)))]
        return np.array(drawn, dtype=np.int64).reshape(shape)

    def _attrs(self) -> dict[str, AttrValue] | None:
        attrs: dict[str, AttrValue] = {}
        # The layout comes first: windows follow it.
        for declared in sorted(self._definition.attrs, key=lambda a: a.name != "data_format"):
            value = self._attr(declared, attrs) or declared.default
            if value is None:
                return None
            attrs[declared.name] = value
        return attrs

    def _attr(self, declared: AttrDef, attrs: dict[str, AttrValue]) -> AttrValue | None:
        choose, name = self._random.choice, declared.name
        keep = declared.default is not None and self._random.random() < 0.5
        if declared.kind == "type":
            return self._type(declared)
        if keep and name != "data_format":
            return None
        if declared.kind == "bool":
            return attr.boolean(choose((True, False)))
        if declared.kind == "int" and (declared.default is None or name in _AXES):
            return attr.integer(choose((0, 1, -1) if name in _AXES else (1, 2, 3)))
        if declared.kind == "string":
            return self._text(declared)
        if name in _WINDOWS:
            return self._window(attrs)
        if name == "squeeze_dims":
            return attr.integers(*self._random.sample((0, 1, 2, -1), choose((1, 2))))
        if declared.kind == "shape":
            return attr.shape(self._shape())
        if declared.kind == "list(type)":
            return AttrValue("list(type)", (DType.FLOAT,) * choose((1, 2, 3)))
        return None

    def _type(self, declared: AttrDef) -> AttrValue:
        allowed = _LIKELY[:2] if declared.allowed is None else declared.allowed.value
        likely = [t for t in _LIKELY if t in allowed]
        return attr.dtype(likely[0] if likely else allowed[0])

    def _text(self, declared: AttrDef) -> AttrValue | None:
        if declared.name == "padding":
            return attr.string(self._random.choice(("SAME", "VALID")))
        if declared.name == "equation":
            return attr.string(self._random.choice(("ab,bc->ac", "abc,cd->abd", "ab->ba")))
        if declared.allowed is not None:
            return attr.string(self._random.choice(list(declared.allowed.value)))
        return attr.string("x") if declared.default is None else None

    def _window(self, attrs: dict[str, AttrValue]) -> AttrValue:
        size = self._random.choice((1, 2, 3))
        space = (size,) * (3 if "3D" in self._definition.name else 2)
        layout = attrs.get("data_format")
        if layout is not None and layout.value.startswith(b"NC"):
            return attr.integers(1, 1, *space)
        return attr.integers(1, *space, 1)
