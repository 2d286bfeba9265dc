"""Fold batch normalizations into the weights of layers in a training or inference graph.

Runtimes quantize the folded weights, so training has to round these, not the weights of the layer.
In training, weights are scaled by the moving variance, which changes slowly, and the layer's output
is corrected by the variance of the batch.

Source: Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference" (2018),
section 3.2.2, and ``fold_batch_norms`` of TensorFlow 1.15's ``tf.contrib.quantize``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.freezing.trace import variable_behind
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS, SUMS
from mobileprep.graph.reachability import dependents
from mobileprep.graph.refs import Ref, control
from mobileprep.transforms.base import refuse
from mobileprep.transforms.insert_fake_quant.layers import LAYERS, weights_of
from mobileprep.transforms.insert_fake_quant.quantizers import NewNodes
from mobileprep.transforms.rewriting.batch_norms import epsilon, is_inference
from mobileprep.transforms.rewriting.layers import layer_kind, layout

_NAME: Final = "insert_fake_quant"
_BATCH_AXES: Final = np.array([0, 1, 2], np.int32)


class FoldedGraph(Struct, frozen=True):
    """A graph after folding.

    Args:
        graph: the graph, with the folded layers in addition to the original ones.
        biases: the folded layer of each sum that adds the offset of a normalization.
        skipped: number of normalizations that are not folded, by reason.
    """

    graph: Graph
    biases: dict[str, str]
    skipped: Counter[str]


class _Norm(Struct, frozen=True):
    """A batch normalization: ``layer * scale + offset``.

    Args:
        output: the normalized tensor.
        scale: one factor for each channel.
        offset: one addend for each channel.
        variance: variance plus epsilon; the scale contains its inverse square root.
        average: the same with the moving variance; None if ``variance`` is it.
    """

    output: Ref
    scale: Ref
    offset: Ref
    variance: Ref
    average: Ref | None


class _Batch(Struct, frozen=True):
    """A layer whose output is normalized, with the BatchToSpaceND of an atrous convolution."""

    layer: Node
    weights: Ref
    to_space: Node | None

    @property
    def output(self) -> Ref:
        return Ref(self.layer.name if self.to_space is None else self.to_space.name)


def fold_norms(graph: Graph, shape_of: Callable[[Ref], TensorShape]) -> FoldedGraph:
    """Fold batch normalizations into the layers before them.

    Raises:
        TransformError: training updates no moving variance of a normalization.
    """
    return _Folding(graph, shape_of).fold()


class _Folding:
    def __init__(self, graph: Graph, shape_of: Callable[[Ref], TensorShape]) -> None:
        self._graph = graph
        self._shape_of = shape_of
        self._new = NewNodes(graph)
        self._skipped: Counter[str] = Counter()
        self._biases: dict[str, str] = {}
        self._moved: dict[Ref, Ref] = {}

    def fold(self) -> FoldedGraph:
        for node in self._graph:
            if node.op in FUSED_BATCH_NORMS:
                self._fold_fused(node)
            elif node.op in SUMS:
                self._fold_unfused(node)
        if not self._moved:
            return FoldedGraph(self._graph, {}, self._skipped)
        nodes = map(self._rewired, (*self._graph, *self._new.nodes))
        return FoldedGraph(self._graph.with_nodes(nodes), self._biases, self._skipped)

    def _rewired(self, node: Node) -> Node:
        inputs = tuple(self._moved.get(ref, ref) for ref in node.inputs)
        return node if inputs == node.inputs else node.with_inputs(inputs)

    def _batch(self, ref: Ref) -> _Batch | None:
        """Return the layer that computes a tensor, directly or through an Identity."""
        node = self._graph[ref.node]
        if node.op == "Identity" and node.data_inputs:
            node = self._graph[node.data_inputs[0].node]
        to_space = node if node.op == "BatchToSpaceND" else None
        if to_space is not None and to_space.data_inputs:
            node = self._graph[to_space.data_inputs[0].node]
        weights = weights_of(self._graph, node) if node.op in LAYERS else None
        return None if weights is None else _Batch(node, weights, to_space)

    def _fold_fused(self, node: Node) -> None:
        if not any(Ref(node.name) in n.inputs for n in self._graph.consumers.get(node.name, ())):
            return
        batch = self._batch(node.data_inputs[0]) if len(node.data_inputs) == 5 else None
        if batch is None:
            self._skipped["a batch normalization does not follow a layer with variables"] += 1
            return
        if layout(node) != "NHWC":
            self._skipped["the channels of a batch normalization come first"] += 1
            return
        scope = self._new.scope(f"{_scope(batch.layer.name)}BatchNorm_Fold")
        gamma, beta, mean, variance = node.data_inputs[1:]
        average: Ref | None = None
        if not is_inference(node):
            mean, variance = self._moments(scope, batch.output)
            average = self._moving_variance(node, Ref(node.name, 2))
        raised = self._raised(f"{scope}/variance", variance, epsilon(node))
        if average is not None:
            average = self._raised(f"{scope}/moving_variance", average, epsilon(node))
        root = self._new.add(f"{scope}/Rsqrt", "Rsqrt", raised)
        scale = self._new.add(f"{scope}/mul", "Mul", gamma, root)
        shift = self._new.add(f"{scope}/mul_1", "Mul", mean, scale)
        offset = self._new.add(f"{scope}/bias", "Sub", beta, shift)
        self._fold(batch, _Norm(Ref(node.name), scale, offset, raised, average), scope)

    def _fold_unfused(self, node: Node) -> None:
        """Fold ``tf.nn.batch_normalization``: ``layer * scale + (beta - mean * scale)``."""
        for product in (self._graph[r.node] for r in node.data_inputs if r.node in self._graph):
            if product.op != "Mul" or len(product.data_inputs) != 2:
                continue
            for tensor, scale in (product.data_inputs, product.data_inputs[::-1]):
                raised = self._raised_variance(scale)
                batch = None if raised is None else self._batch(tensor)
                if raised is None or batch is None or layout(batch.layer) != "NHWC":
                    continue
                offset = next((r for r in node.data_inputs if r.node != product.name), None)
                if offset is None or not self._is_of_channels(batch, scale):
                    continue
                scope = self._new.scope(f"{_scope(batch.layer.name)}BatchNorm_Fold")
                average = self._unfused_average(batch, raised, scope)
                norm = _Norm(Ref(node.name), scale, offset, Ref(raised.name), average)
                self._fold(batch, norm, scope)
                return

    def _is_of_channels(self, batch: _Batch, scale: Ref) -> bool:
        """Return whether a scale has one factor for each output channel of the weights."""
        shape = self._shape_of(scale)
        if not shape or layer_kind(batch.layer).channels[-1] != -1:
            return False
        return all(size == 1 for size in shape[:-1]) and shape[-1] > 0

    def _raised_variance(self, scale: Ref) -> Node | None:
        """Return the sum of variance and epsilon whose inverse square root scales a layer."""
        node = self._graph[scale.node]
        roots = [node, *(self._graph[r.node] for r in node.data_inputs if node.op == "Mul")]
        for root in roots:
            if root.op == "Rsqrt" and root.data_inputs:
                raised = self._graph[root.data_inputs[0].node]
                if raised.op in SUMS and len(raised.data_inputs) == 2:
                    return raised
        return None

    def _unfused_average(self, batch: _Batch, raised: Node, scope: str) -> Ref | None:
        variance, addend = raised.data_inputs
        after = dependents(self._graph, [batch.output.node], through_control=False)
        if variance.node not in after:
            return None
        average = self._moving_variance(raised, variance)
        return self._new.add(f"{scope}/moving_variance", "AddV2", average, addend)

    def _moments(self, scope: str, values: Ref) -> tuple[Ref, Ref]:
        """Add the mean and the variance of each channel.

        FusedBatchNorm outputs both, but without gradients.
        """
        new = self._new
        mean = new.reduction(f"{scope}/mean", "Mean", values, _BATCH_AXES)
        fixed = new.add(f"{scope}/StopGradient", "StopGradient", mean)
        squares = new.add(f"{scope}/SquaredDifference", "SquaredDifference", values, fixed)
        return mean, new.reduction(f"{scope}/variance_of_batch", "Mean", squares, _BATCH_AXES)

    def _raised(self, name: str, variance: Ref, by: float) -> Ref:
        addend = self._new.constant(f"{name}/epsilon", by)
        return self._new.add(f"{name}/add", "AddV2", variance, addend)

    def _moving_variance(self, norm: Node, variance: Ref) -> Ref:
        """Return the variable that training moves towards the variance of the batch."""
        waiting, seen = [variance], {variance}
        while waiting:
            here = waiting.pop()
            for node in self._graph.consumers.get(here.node, ()):
                if here not in node.inputs:
                    continue
                after = Ref(node.name)
                if node.op in ("Identity", "Squeeze", "Mul", "Reshape") and after not in seen:
                    seen.add(after)
                    waiting.append(after)
                if node.op == "Sub" and len(node.data_inputs) == 2:
                    other = node.data_inputs[1 - node.data_inputs.index(here)]
                    if variable_behind(self._graph, other) is not None:
                        return other
        message = f"nothing updates a moving variance of the batch normalization {norm.name!r}"
        hint = "update moving averages in the graph, or set is_training to false"
        raise refuse(_NAME, message, hint)

    def _fold(self, batch: _Batch, norm: _Norm, scope: str) -> None:
        new, layer = self._new, batch.layer
        weights, scale = batch.weights, norm.scale
        prefix = _scope(layer.name)
        correction: Ref | None = None
        if norm.average is not None:
            moving = new.add(f"{scope}/moving_root", "Rsqrt", norm.average)
            root = new.add(f"{scope}/batch_root", "Rsqrt", norm.variance)
            correction = new.add(f"{scope}/correction_scale", "RealDiv", moving, root)
            factor = self._for_weights(f"{scope}/correction_reshape", batch, correction)
            weights = new.add(self._name(f"{prefix}correction_mult"), "Mul", factor, weights)
        factor = self._for_weights(f"{scope}/scale_reshape", batch, scale)
        weights = new.add(self._name(f"{prefix}mul_fold"), "Mul", weights, factor)
        folded = replace(
            layer,
            name=self._name(f"{layer.name}_Fold"),
            inputs=(layer.data_inputs[0], weights, *layer.control_inputs),
        )
        output = new.add_node(folded)
        if batch.to_space is not None:
            to_space = batch.to_space
            inputs = (output, *to_space.inputs[1:])
            copy = replace(to_space, name=self._name(f"{to_space.name}_Fold"), inputs=inputs)
            output = new.add_node(copy)
        if correction is not None:
            back = new.add(f"{scope}/reciprocal", "Reciprocal", correction)
            output = new.add(self._name(f"{prefix}post_conv_mul"), "Mul", back, output)
        result = new.add(self._name(f"{prefix}add_fold"), "AddV2", output, norm.offset)
        self._biases[result.node] = folded.name
        self._moved[norm.output] = result
        self._moved[control(norm.output.node)] = control(result.node)

    def _name(self, base: str) -> str:
        return self._new.scope(base)

    def _for_weights(self, name: str, batch: _Batch, factors: Ref) -> Ref:
        """Reshape one factor for each output channel so that it multiplies the weights."""
        if batch.layer.op != "DepthwiseConv2dNative":
            return factors
        shape = self._shape_of(batch.weights)
        if shape is None or len(shape) != 4 or min(shape[2:]) < 0:
            message = f"the shape of the weights of {batch.layer.name!r} is not known"
            raise refuse(_NAME, message, "give the variable a static shape")
        return self._new.reshape(name, factors, shape[2:])


def _scope(name: str) -> str:
    """Return the scope that a node is in, with its slash."""
    return "".join(name.rpartition("/")[:2])
