"""Selection of layers to quantize by rules, with reasons for the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from msgspec import Struct, convert, field
from msgspec.structs import replace

from mobileprep.errors import MobileprepError, UnsupportedError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.frames import Branches
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, SWITCHES
from mobileprep.graph.reachability import closure, conditional_nodes, execution_order
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.ops.numerics.ranges import ChannelMethod
from mobileprep.ops.numerics.regular_expressions import compiled
from mobileprep.transforms.base import refuse
from mobileprep.transforms.quantize_nodes.eightbit_ops import (
    EIGHTBIT_OPS,
    WouldRun,
    reason_to_stay_float,
)
from mobileprep.transforms.quantize_nodes.ranges import FAKE_QUANTS, TrainedSteps, trained_steps
from mobileprep.transforms.quantize_nodes.weights import (
    Granularity,
    QuantizedWeights,
    WeightSettings,
    on_channel_steps,
    on_steps,
    quantize_weights,
)
from mobileprep.transforms.rewriting.layers import LAYERS, layer_kind, output_channels

Mode: TypeAlias = Literal["nodes", "int8", "int16x8", "weights", "float"]

_KEYS: Final = (
    *("mode", "bits", "granularity", "method", "percentile", "block_size", "ops", "nodes"),
)
_CHOICES: Final = {
    "mode": ("nodes", "weights", "float"),
    "granularity": get_args(Granularity),
    "method": get_args(ChannelMethod),
    "bits": ("2", "3", "4", "5", "6", "7", "8"),
    "block_size": ("32", "64", "128", "256"),
}
_LEAST_PERCENTILE: Final = 50
_MOST_PERCENTILE: Final = 100
_HINT: Final = "write it as 'mode=float ops=Conv2D,MatMul nodes=REGEX', blanks between"
# Ops with an 8-bit form. For other ops, a rule without a mode only stores the weights in 8 bits.
_EIGHTBIT: Final = frozenset({"Conv2D", "MatMul"})
_USUAL: Final = WeightSettings()


class Settings(Struct, frozen=True):
    """Quantization settings of a layer.

    Args:
        mode: ``nodes`` computes in 8 bits, ``weights`` only stores the weights in 8 bits, and
            ``float`` does neither. For LiteRT, ``nodes`` computes in the integers of the program,
            and ``int8`` and ``int16x8`` in these.
        weights: how its weights are quantized.
    """

    mode: Mode
    weights: WeightSettings = field(default_factory=WeightSettings)


class _LayerRule(Struct, frozen=True):
    """Settings for some nodes.

    Args:
        nodes: a regular expression to search for in node names.
        ops: matching ops, or empty for all.
        mode: see ``Settings``; None if it depends on the op.
        weights: the fields of ``WeightSettings`` that the rule sets.
    """

    nodes: str
    ops: tuple[str, ...]
    mode: Mode | None
    weights: Mapping[str, Any]

    def weight_settings(self, usual: WeightSettings) -> WeightSettings:
        """Return how to quantize weights, with ``usual`` for fields that the rule does not set."""
        if "granularity" in self.weights and "block_size" not in self.weights:
            usual = replace(usual, block_size=0)
        return replace(usual, **self.weights)

    def fits(self, node: Node) -> bool:
        """Return whether the rule applies to a node."""
        if self.ops and node.op not in self.ops:
            return False
        return not self.nodes or compiled(self.nodes.encode()).is_in(node.name.encode())


class Rules:
    """Rules in the order of their definition; the last one that matches a node applies.

    Args:
        transform: the name of the transform, for errors.
        texts: one rule per string: ``key=value`` words separated by spaces.
        eightbit: ops that compute in 8 bits with a rule that does not set a mode.
        modes: modes that rules may set in addition to those of ``quantize_nodes``.

    Raises:
        TransformError: a rule is invalid.
    """

    def __init__(
        self,
        transform: str,
        texts: Sequence[str],
        eightbit: frozenset[str] = _EIGHTBIT,
        modes: tuple[Mode, ...] = (),
    ) -> None:
        self._transform = transform
        self._eightbit = eightbit
        self._rules = [_parsed(transform, text, modes) for text in texts]

    def settings(self, node: Node, usual: WeightSettings = _USUAL) -> Settings:
        """Return the settings of a layer, with ``usual`` for its weights without a rule."""
        fitting = [rule for rule in self._rules if self._fits(rule, node)]
        if not fitting:
            return Settings("nodes", usual)
        # A rule that only sets details implies that the layer is quantized.
        mode = fitting[-1].mode or ("nodes" if node.op in self._eightbit else "weights")
        return Settings(mode, fitting[-1].weight_settings(usual))

    def decide(self, node: Node) -> bool:
        """Return whether any rule applies to a node."""
        return any(self._fits(rule, node) for rule in self._rules)

    def _fits(self, rule: _LayerRule, node: Node) -> bool:
        try:
            return rule.fits(node)
        except UnsupportedError as error:
            raise refuse(self._transform, error.message, error.hint) from error


def _parsed(transform: str, text: str, modes: tuple[Mode, ...]) -> _LayerRule:
    options: dict[str, Any] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if key not in _KEYS or not (equals and value) or key in options:
            message = f"the rule {text!r} has the word {word!r}, which is not understood"
            raise refuse(transform, message, nearest_hint(key, _KEYS) or _HINT)
        allowed = _CHOICES.get(key, (value,))
        if key == "mode":
            allowed = (*allowed, *modes)
        if value not in allowed:
            message = f"the rule {text!r} gives {key} the value {value!r}"
            raise refuse(transform, message, f"one of {', '.join(allowed)}")
        options[key] = value
    if not options.keys() - {"nodes", "ops"}:
        raise refuse(transform, f"the rule {text!r} has no effect", _HINT)
    _check_expression(transform, options.get("nodes", ""))
    if "percentile" in options:
        options["percentile"] = _percentile(transform, text, options)
    ops = tuple(filter(None, options.get("ops", "").split(",")))
    read = convert(options, WeightSettings, strict=False)
    fields = WeightSettings.__struct_fields__
    weights = {key: getattr(read, key) for key in fields if key in options}
    return _LayerRule(options.get("nodes", ""), ops, options.get("mode"), weights)


def _percentile(transform: str, text: str, options: Mapping[str, str]) -> float:
    try:
        value = float(options["percentile"])
    except ValueError:
        value = math.nan
    if not _LEAST_PERCENTILE <= value <= _MOST_PERCENTILE:
        message = f"the rule {text!r} gives percentile the value {options['percentile']!r}"
        raise refuse(transform, message, "a number from 50 to 100")
    if options.get("method") != "percentile":
        message = f"the rule {text!r} gives percentile without its method"
        raise refuse(transform, message, "write method=percentile as well")
    return value


def _check_expression(transform: str, nodes: str) -> None:
    try:
        compiled(nodes.encode())
    except (ValueError, UnsupportedError) as error:
        raise refuse(transform, str(error), "fix the regular expression of the rule") from error


_NO_CONSTANT: Final = "its weights are not constant"
_GATES: Final = ENTERS | SWITCHES
_LONGEST: Final = 32
_EIGHT_BITS: Final = 8


class Weights(Struct, frozen=True):
    """Weights of a layer.

    Args:
        name: name of the constant.
        value: values at the layer's input.
        gated: whether they pass through a loop's Enter or a branch's Switch.
        trained: learned quantization steps of the weights.
    """

    name: str
    value: Array
    gated: bool = False
    trained: TrainedSteps | None = None

    def quantized(self, layer: Node, settings: WeightSettings) -> QuantizedWeights:
        """Return the weights in 8 bits; learned steps take precedence over the settings."""
        axes = layer_kind(layer).channels
        learnt = self.trained
        if learnt is not None and settings.bits == _EIGHT_BITS:
            if learnt.steps is not None:
                return on_steps(self.value, learnt.steps, learnt.lowest, learnt.highest)
            channels = output_channels(layer, Tensor.of(self.value))
            if axes[-1] == -1 and learnt.is_even and learnt.sizes.size == channels:
                return on_channel_steps(self.value, axes, learnt.sizes)
        return quantize_weights(self.value, axes, settings)


def layer_weights(graph: Graph, layer: Node) -> Weights | str:
    """Return the weights of a layer, or the reason why they cannot be quantized."""
    if len(layer.data_inputs) < 2:
        return _NO_CONSTANT
    path = _path(graph, layer.data_inputs[1])
    if path is None:
        return _NO_CONSTANT
    learnt = next((n for n in path if n.op in FAKE_QUANTS), None)
    trained = None if learnt is None else trained_steps(graph, Ref(learnt.name))
    if isinstance(trained, str):
        return trained
    value = _value(graph, path)
    if value is None or value.dtype is not DType.FLOAT:
        return _NO_CONSTANT
    array = value.array()
    if output_channels(layer, value) is None or not array.size:
        return "its weights have the wrong shape"
    if not np.isfinite(array).all():
        return "its weights hold infinity or NaN"
    name = learnt.name if learnt is not None else path[-1].name
    return Weights(name, array, any(n.op in _GATES for n in path), trained)


def _path(graph: Graph, ref: Ref) -> list[Node] | None:
    """Return the nodes from a tensor back to its constant, or None."""
    path: list[Node] = []
    while len(path) < _LONGEST:
        node = graph.get(ref.node)
        if node is None or (ref.index and node.op not in SWITCHES):
            return None
        path.append(node)
        if node.op == "Const":
            return path
        if node.op not in IDENTITIES | _GATES | FAKE_QUANTS | {"Dequantize"}:
            return None
        if not node.data_inputs:
            return None
        ref = node.data_inputs[0]
    return None


def _value(graph: Graph, path: list[Node]) -> Tensor | None:
    """Evaluate a path from its last node, the constant, to its first."""
    value = path[-1].attr_tensor("value")
    for node in reversed(path[:-1]):
        if node.op in IDENTITIES or node.op in _GATES:
            continue
        others = [_path(graph, r) for r in node.data_inputs[1:]]
        if any(o is None or any(n.op == "Dequantize" for n in o) for o in others):
            return None
        ends = [o[-1].attr_tensor("value") for o in others if o]
        try:
            (value,) = evaluate_node(node, [value, *ends])
        except MobileprepError:
            return None
    return value


BY_RULE: Final = "a rule leaves it float"
_NO_KERNEL: Final = {
    "DepthwiseConv2dNative": (
        "TensorFlow has no kernel of its own for eight-bit depthwise convolutions"
    ),
}
# This many products of two 8-bit numbers always fit in a 32-bit sum.
_MOST_PRODUCTS: Final = (1 << 31) // (255 * 255)


class Layer(Struct, frozen=True):
    """A layer to quantize.

    Args:
        node: the layer.
        weights: its weights.
        settings: how to quantize it.
        is_worth_storing: whether its weights are stored in 8 bits if it cannot compute in 8 bits.
        why_float: the reason why it cannot compute in 8 bits as requested, or an empty string.
    """

    node: Node
    weights: Weights
    settings: Settings
    is_worth_storing: bool = False
    why_float: str = ""

    @property
    def computes(self) -> bool:
        """Whether it computes in 8 bits; otherwise, only its weights are stored in 8 bits."""
        return self.settings.mode == "nodes" and not self.why_float


class LayerChoice(Struct, frozen=True):
    """Layers to quantize by name, and counts of layers that stay float by reason."""

    layers: Mapping[str, Layer]
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def computing(self) -> frozenset[str]:
        """Names of the layers that compute in 8 bits."""
        return frozenset(name for name, layer in self.layers.items() if layer.computes)


def choose_layers(
    graph: Graph,
    rules: Rules,
    ignored: frozenset[str],
    *,
    trained: bool,
    store_rest: bool = True,
) -> LayerChoice:
    """Choose the layers to quantize.

    Args:
        trained: whether ranges come from training, so that a layer whose input was trained with
            more bits stays float.
        store_rest: whether layers that cannot compute in 8 bits store their weights in 8 bits if
            that reduces the file size.
    """
    conditions, runs = _Conditions(graph), WouldRun(graph)
    skipped: Counter[str] = Counter()
    candidates: dict[str, Layer] = {}
    for node in graph:
        if node.op not in LAYERS or node.op in ignored:
            continue
        layer = _layer_or_reason(
            graph, node, rules.settings(node), conditions, runs, trained=trained
        )
        if isinstance(layer, Layer):
            candidates[node.name] = layer
        else:
            skipped[layer] += 1
    layers: dict[str, Layer] = {}
    for name, layer in candidates.items():
        worth = store_rest and is_worth_storing(graph, layer.node, layer.weights, candidates)
        if layer.why_float:
            skipped[stored_though(layer.why_float) if worth else layer.why_float] += 1
        if worth or not layer.why_float:
            layers[name] = replace(layer, is_worth_storing=worth)
    return LayerChoice(layers, skipped)


def stored_though(reason: str) -> str:
    """Return the reason for a layer that only has its weights in 8 bits."""
    return f"{reason}; its weights are stored in 8 bits"


def _layer_or_reason(
    graph: Graph,
    node: Node,
    settings: Settings,
    conditions: _Conditions,
    runs: WouldRun,
    *,
    trained: bool,
) -> Layer | str:
    if settings.mode == "float":
        return BY_RULE
    if settings.weights.block_size:
        name, problem = "quantize_nodes", f"a rule sets block_size for {node.name!r}"
        raise refuse(name, problem, "remove block_size, which only LiteRT supports")
    if node.attr_dtype("T", DType.FLOAT) is not DType.FLOAT:
        return "it is not a float32 op"
    reason = ""
    if settings.mode == "nodes":
        reason = _reason_not_to_compute(node, runs)
        learnt = trained_steps(graph, node.data_inputs[0]) if trained and node.data_inputs else None
        if isinstance(learnt, str):
            return reason or learnt
    weights = layer_weights(graph, node)
    if isinstance(weights, str):
        return reason or weights
    if settings.mode == "nodes" and not reason:
        reason = _reason_of_sums(node, weights)
    if weights.gated and not conditions.hold_for(node):
        return reason or "its weights come through a branch that its input does not"
    return Layer(node, weights, settings, why_float=reason)


def _reason_not_to_compute(node: Node, runs: WouldRun) -> str:
    if node.op not in EIGHTBIT_OPS:
        return _NO_KERNEL.get(node.op, "its op has no 8-bit form")
    return reason_to_stay_float(node) or runs.reason_not(node)


def _reason_of_sums(node: Node, weights: Weights) -> str:
    channels = weights.value.shape[-2 if node.attr_bool("transpose_b", False) else -1]
    products = weights.value.size // max(channels, 1)
    return "its sums may not fit 32 bits" if products > _MOST_PRODUCTS else ""


class _Conditions:
    """Conditions under which inputs of layers are available."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _branches(self) -> Branches:
        branches = Branches(lambda _: None)
        for node in execution_order(self._graph):
            branches.add(node)
        return branches

    @cached_property
    def _conditional(self) -> frozenset[str]:
        return conditional_nodes(self._graph)

    def hold_for(self, layer: Node) -> bool:
        """Return whether a layer's first input is available only when its second one is."""
        values, weights = layer.data_inputs[:2]
        if values.node not in self._conditional:
            return False
        return self._branches.of(weights) <= self._branches.of(values)


# The default minimum_size of quantize_weights.
_LEAST_STORED: Final = 1024
# Approximate file size of the nodes that decode weights.
_DECODING_BYTES: Final = 512
_PASSING: Final = IDENTITIES | ENTERS | SWITCHES


def is_worth_storing(
    graph: Graph, layer: Node, weights: Weights, quantized: Collection[str]
) -> bool:
    """Return whether storing weights in 8 bits reduces the file size.

    Args:
        quantized: the names of all layers with 8-bit weights; other consumers of the same weights
            require the float weights.
    """
    size = weights.value.size
    channels = output_channels(layer, Tensor.of(weights.value)) or 0
    saved = 3 * size - 4 * channels
    if size < _LEAST_STORED or saved < _DECODING_BYTES:
        return False
    stored = graph[weights.name]
    if stored.op == "Const" and stored.attr_tensor("value").dtype is not DType.FLOAT:
        return False  # already in 8 bits

    def passed(name: str) -> Iterator[str]:
        return (n.name for n in graph.consumers.get(name, ()) if n.op in _PASSING)

    passing = closure([stored.name], passed)
    users = {n.name for name in passing for n in graph.consumers.get(name, ())}
    return users - passing <= set(quantized)
