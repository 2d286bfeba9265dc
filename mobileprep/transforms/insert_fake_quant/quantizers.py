"""Nodes that fake quantize a tensor: variables for its range, their updates, and the rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.meta_graph import TRAINABLE
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.insert_fake_quant.layers import Place
from mobileprep.transforms.rewriting.layers import layer_kind

# Range before training. Activations start at zero, because most follow Relu or Relu6.
_INITIAL: Final = 6.0
_STEP: Final = "fake_quantization_step"
_ALL: Final = np.array([0], np.int32)
_LOCKED: Final = {"use_locking": attr.boolean(False)}
_INT64: Final = attr.dtype(DType.INT64)


class RangeSettings(Struct, frozen=True):
    """How ranges are determined; the options of the transform."""

    is_training: bool
    is_learned: bool
    weight_bits: int
    activation_bits: int
    is_per_channel: bool
    is_symmetric: bool
    delay: int
    decay: float


class Quantizers:
    """Fake quantization of the tensors of a graph.

    Args:
        graph: the graph.
        settings: how ranges are determined.
        shape_of: returns the shape of a tensor.
    """

    def __init__(
        self, graph: Graph, settings: RangeSettings, shape_of: Callable[[Ref], TensorShape]
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._shape_of = shape_of
        self._new = NewNodes(graph)
        self._is_active: Ref | None = None

    @property
    def nodes(self) -> list[Node]:
        """The new nodes."""
        return self._new.nodes

    def add(self, place: Place) -> Ref:
        """Fake quantize a tensor, and return the rounded tensor."""
        new, settings = self._new, self._settings
        prefix = new.scope(place.prefix)
        is_weights = place.kind == "weights"
        channels = self._channels(place)
        trainable = settings.is_training and settings.is_learned
        dims = () if channels is None else (channels,)
        low = np.full(dims, 0 if place.kind == "activation" else -_INITIAL, np.float32)
        high = np.full(dims, _INITIAL, np.float32)
        variables = (
            new.variable(f"{prefix}/min", low, trainable=trainable),
            new.variable(f"{prefix}/max", high, trainable=trainable),
        )
        limits = tuple(Ref(f"{v.node}/read") for v in variables)
        if settings.is_training and not settings.is_learned:
            limits = self._updated(prefix, place, variables, channels)
        bits = settings.weight_bits if is_weights else settings.activation_bits
        op = "FakeQuantWithMinMaxVars" + ("" if channels is None else "PerChannel")
        attrs = {"num_bits": attr.integer(bits), "narrow_range": attr.boolean(is_weights)}
        rounded = Node(f"{prefix}/{op}", op, (place.tensor, *limits), attrs=attrs)
        result = new.add_node(rounded)
        if not (settings.is_training and settings.delay):
            return result
        return new.add(f"{prefix}/delayed_quant", "Select", self._active(), result, place.tensor)

    def _channels(self, place: Place) -> int | None:
        """Return the number of ranges of weights, or None for one range of the tensor."""
        if not self._settings.is_per_channel or place.kind != "weights":
            return None
        if layer_kind(self._graph[place.layer]).channels != (-1,):
            return None
        shape = self._shape_of(place.tensor)
        return None if not shape or shape[-1] < 0 else shape[-1]

    def _updated(
        self, prefix: str, place: Place, variables: tuple[Ref, Ref], channels: int | None
    ) -> tuple[Ref, ...]:
        """Add the range of the current values, with zero, and return the updated variables."""
        new = self._new
        width = -1 if channels is None else channels
        # In one dimension, or with one column for each channel, whatever the rank is.
        shape = (-1,) if channels is None else (-1, width)
        values = new.reshape(f"{prefix}/values", place.tensor, shape)
        low = new.reduction(f"{prefix}/BatchMin", "Min", values, _ALL)
        high = new.reduction(f"{prefix}/BatchMax", "Max", values, _ALL)
        if self._settings.is_symmetric:
            bits = self._settings.activation_bits
            # Without the narrow range, there is one more step below zero than above.
            ratio = 1.0 if place.kind == "weights" else (2**bits - 2) / 2**bits
            below = self._scaled(f"{prefix}/negative_max", high, -1 / ratio)
            above = self._scaled(f"{prefix}/negative_min", low, -ratio)
        else:
            below = above = new.constant(f"{prefix}/zero", 0.0)
        low = new.add(f"{prefix}/Minimum", "Minimum", low, below)
        high = new.add(f"{prefix}/Maximum", "Maximum", high, above)
        update = self._assigned if place.kind == "weights" else self._averaged
        return tuple(
            update(f"{prefix}/Assign{limit}", variable, value)
            for limit, variable, value in zip(("Min", "Max"), variables, (low, high), strict=True)
        )

    def _scaled(self, name: str, value: Ref, factor: float) -> Ref:
        return self._new.add(name, "Mul", value, self._new.constant(f"{name}/factor", factor))

    def _assigned(self, name: str, variable: Ref, value: Ref) -> Ref:
        flags = {"validate_shape": attr.boolean(True), "use_locking": attr.boolean(True)}
        return self._new.add(f"{name}Last", "Assign", variable, value, **flags)

    def _averaged(self, name: str, variable: Ref, value: Ref) -> Ref:
        """Move a variable towards a value.

        The average is divided by the sum of its weights, so that the initial value of the variable
        has no influence.

        Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2014), section 3.
        """
        new, name = self._new, f"{name}Ema"
        rate = 1.0 - self._settings.decay
        # These names have the scope twice, as in the checkpoints of TensorFlow 1.15.
        scope = f"{variable.node.rpartition('/')[0]}/{variable.node}"
        biased = new.variable(f"{scope}/biased", np.zeros((), np.float32))
        steps = new.variable(f"{scope}/local_step", np.zeros((), np.float32))
        gap = new.add(f"{name}/sub", "Sub", Ref(f"{biased.node}/read"), value)
        change = self._scaled(f"{name}/mul", gap, rate)
        moved = new.add(f"{name}/AssignSub", "AssignSub", biased, change, **_LOCKED)
        one = new.constant(f"{name}/one", 1.0)
        counted = new.add(f"{name}/AssignAdd", "AssignAdd", steps, one, **_LOCKED)
        power = new.add(
            f"{name}/Pow",
            "Pow",
            new.constant(f"{name}/decay", 1.0 - float(np.float32(rate))),
            counted,
        )
        weight = new.add(f"{name}/sub_2", "Sub", one, power)
        unbiased = new.add(f"{name}/truediv", "RealDiv", moved, weight)
        flags = {"validate_shape": attr.boolean(True), "use_locking": attr.boolean(True)}
        return new.add(name, "Assign", variable, unbiased, **flags)

    def _active(self) -> Ref:
        """Return whether enough steps have run to round values."""
        if self._is_active is None:
            new = self._new
            step = new.variable(new.scope(_STEP), np.array(0, np.int64))
            one = new.constant(f"{step.node}/AssignAdd/value", np.array(1, np.int64))
            counted = new.add(f"{step.node}/AssignAdd", "AssignAdd", step, one, T=_INT64, **_LOCKED)
            delay = new.constant(f"{step.node}/delay", np.array(self._settings.delay, np.int64))
            self._is_active = new.add(
                f"{step.node}/GreaterEqual", "GreaterEqual", counted, delay, T=_INT64
            )
        return self._is_active


FLOAT: Final = attr.dtype(DType.FLOAT)
_INT32: Final = attr.dtype(DType.INT32)


class NewNodes:
    """Nodes that are added to a graph, with unique names.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self._names = FreshNames(name for node in graph for name in _scopes(node.name))

    def scope(self, base: str) -> str:
        """Return a prefix that no other node has."""
        return self._names.name(base)

    def add(self, name: str, op: str, *inputs: Ref, **attrs: AttrValue) -> Ref:
        """Add a node on float32 tensors, and return its output."""
        return self.add_node(Node(name, op, inputs, attrs={"T": FLOAT, **attrs}))

    def add_node(self, node: Node) -> Ref:
        """Add a node, and return its first output."""
        self.nodes.append(node)
        return Ref(node.name)

    def constant(self, name: str, value: Array | float) -> Ref:
        """Add a constant; floats become float32."""
        array = value if isinstance(value, np.ndarray) else np.asarray(value, np.float32)
        return self.add_node(constant(name, Tensor.packed(array)))

    def reduction(self, name: str, op: str, values: Ref, axes: Array) -> Ref:
        """Add a reduction over axes that are not kept."""
        axes_ref = self.constant(f"{name}/axes", axes)
        return self.add(name, op, values, axes_ref, Tidx=_INT32, keep_dims=attr.boolean(False))

    def reshape(self, name: str, values: Ref, shape: tuple[int, ...]) -> Ref:
        """Add a Reshape."""
        shape_ref = self.constant(f"{name}/shape", np.array(shape, np.int32))
        return self.add(name, "Reshape", values, shape_ref, Tshape=_INT32)

    def variable(self, name: str, initial: Array, *, trainable: bool = False) -> Ref:
        """Add a variable with an initializer and a read, and return the variable.

        The names of the nodes are those that ``tf.get_variable`` gives them.
        """
        value = self.constant(f"{name}/Initializer/Const", initial)
        dtype = self.nodes[-1].attribute("dtype")
        attrs = {
            "dtype": dtype,
            "shape": attr.shape(initial.shape),
            "container": attr.string(""),
            "shared_name": attr.string(""),
        }
        if trainable:
            attrs[TRAINABLE] = attr.boolean(True)
        variable = self.add_node(Node(name, "VariableV2", attrs=attrs))
        near = {"T": dtype, "_class": AttrValue("list(string)", (f"loc:@{name}".encode(),))}
        flags = {"validate_shape": attr.boolean(True), "use_locking": attr.boolean(True)}
        self.add_node(Node(f"{name}/Assign", "Assign", (variable, value), attrs=near | flags))
        self.add_node(Node(f"{name}/read", "Identity", (variable,), attrs=near))
        return variable


def _scopes(name: str) -> Iterator[str]:
    """Yield a name and the scopes that it is in."""
    while name:
        yield name
        name = name.rpartition("/")[0]
