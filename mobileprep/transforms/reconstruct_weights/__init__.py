"""Round weights so that layers with these weights compute the same as before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.ranges import ChannelMethod, channel_steps, float16_steps
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.data_files import feeds_from_file
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.correct_bias import last_uses
from mobileprep.transforms.reconstruct_weights.matrices import LayerMatrices, summed_axes
from mobileprep.transforms.reconstruct_weights.rounding import Moments, RoundingProblem
from mobileprep.transforms.reconstruct_weights.shared import (
    SharedWeights,
    content,
    measured,
    shared_weights,
)
from mobileprep.transforms.rewriting.clipping import range_with_zero
from mobileprep.transforms.rewriting.layers import (
    BiasedLayer,
    data_input,
    replaced,
    shifted,
    with_biases,
)

# Largest number of products in a sum: four matrices of 288 MB.
_MOST_PRODUCTS: Final = 6144
# Rows of a layer's inputs in all samples together, such as positions of a convolution. More do not
# lower the error on other samples.
_ROWS_PER_PRODUCT: Final = 8
_FEWEST_ROWS: Final = 1 << 13
_MOST_ROWS: Final = 1 << 16
_WHOLE_BITS: Final = 8
_SUPPORTED: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "Conv2DBackpropInput"})
# Bytes of outputs that are stored for all runs.
_MOST_STORED: Final = 512 << 20
# Where inputs nearly depend on each other, the damping grows by a factor, several times.
_MORE_DAMPING: Final = 4.0
_MOST_DAMPINGS: Final = 8
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_SHARED: Final = "several layers share the weights"


@transform("reconstruct_weights")
class ReconstructWeights(Transform, frozen=True):
    """Round the weights of layers to the steps of a later quantization, guided by data.

    Layers are processed in the order in which they run. The weights of a layer are first fitted to
    the inputs that it gets from the layers rounded before it, so that it computes the outputs of
    the float network; then they are rounded one after the other, and the remaining ones compensate
    for the error of each. The result is in float, and lies exactly on the steps that the later
    quantization chooses for it. Biases are corrected for the remaining shift of each channel's
    mean.

    Weights of matrix products in loops, or of several products, are rounded last, for the inputs of
    all their runs together, without a fit and without biases.

    Source: Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
    Transformers (2022), with the order by activation, and Li et al., GPTAQ (2025), for the fit to
    the rounded network's inputs.
    """

    summary = (
        "Rounds the weights of each layer so that its outputs change as little as possible on "
        "samples, instead of each weight to the nearest step. Use it before quantization to 8 "
        "or 4 bits."
    )

    data: Annotated[
        str | None,
        Option(
            "A .npz file with an array of samples for each input. Required; in `repair`, the "
            "calibration's data by default.",
            min_length=1,
            format="path",
        ),
    ] = None
    samples: Annotated[
        int, Option("Number of samples, spread evenly over the file.", minimum=1)
    ] = 64
    bits: Annotated[
        int, Option("Number of bits in which the weights will be stored.", minimum=2, maximum=8)
    ] = 8
    granularity: Annotated[
        Literal["tensor", "channel"],
        Option("Whether the weights will have one scale, or one for each output channel."),
    ] = "channel"
    block_size: Annotated[
        int,
        Option(
            "Number of weights of a channel that will share a scale in dense layers and 1x1 "
            "convolutions, as with `block_size` of `int4`; 0 for the scales of `granularity`.",
            minimum=0,
            maximum=256,
        ),
    ] = 0
    symmetric: Annotated[
        bool,
        Option(
            "Whether steps reach equally far to both sides of zero, as in LiteRT. False, with the "
            "granularity tensor, for quantize_weights."
        ),
    ] = True
    damping: Annotated[
        float,
        Option(
            "Share of the mean squared input that is added to each squared input. Larger values "
            "change weights less.",
            minimum=1e-6,
            maximum=1,
        ),
    ] = 0.1
    minimum_size: Annotated[
        int, Option("Weights with fewer elements do not change.", minimum=0)
    ] = 0

    def apply(self, graph: Graph, context: Context) -> Result:
        """Round the weights of all layers that the outputs need."""
        if self.block_size and self.granularity == "tensor":
            message = "blocks and the granularity tensor exclude each other"
            raise refuse(self.transform_name, message, "remove `block_size` or `granularity`")
        if not self.symmetric and self.granularity == "channel":
            message = "only steps of a whole tensor can be asymmetric"
            hint = "add `granularity: tensor`, or remove `symmetric`"
            raise refuse(self.transform_name, message, hint)
        check_inputs(graph, "")
        needed = _needed(graph, context.outputs)

        def is_candidate(layer: Node, weights: Node) -> bool:
            size = weights.attr_tensor("value").size
            return layer.name in needed and size >= max(self.minimum_size, 1)

        biased = with_biases(graph, is_candidate, context.protected)
        # Files store equal constants once, whether or not they are one node.
        users = Counter(content(layer.weights) for layer in biased.layers)
        reasons = {
            layer.layer.name: _reason(layer, users[content(layer.weights)])
            for layer in biased.layers
        }
        layers = [layer for layer in biased.layers if not reasons[layer.layer.name]]
        alone = {layer.weights.name for layer in layers}
        needed = _needed(biased.graph, context.outputs)
        shared = shared_weights(biased.graph, needed, max(self.minimum_size, 1), alone)
        products = {product.name for group in shared for product in group.products}
        skipped = Counter(
            reason for name, reason in reasons.items() if reason and name not in products
        )
        if not layers and not shared:
            return Result(graph, skipped=skipped)
        if self.data is None:
            raise refuse(self.transform_name, "it needs samples", "name a .npz file with `data`")
        runs = feeds_from_file(graph, context.inputs, Path(self.data), self.samples)
        # BLAS's own threads would change the last bits of products.
        with all_processors():
            done = self._reconstructed(biased.graph, layers, runs) if layers else biased.graph
            if shared:
                done = self._with_shared(done, shared, runs, context.outputs)
        return Result(done, len(layers) + len(products), skipped)

    def _reconstructed(
        self, graph: Graph, layers: Sequence[BiasedLayer], runs: Sequence[Mapping[str, Array]]
    ) -> Graph:
        """Return the graph with the rounded weights of all layers.

        Stores outputs of layers while later layers need them, in the float network and in the
        rounded one, so that each part of both runs once.
        """
        names = [layer.layer.name for layer in layers]
        last = last_uses(graph, names)
        now, original = graph, Interpreter(graph)
        count = _affordable(original.run(names, runs[0]), [last[name] for name in names])
        floats = [dict(runs[at]) for at in _spread(len(runs), count)]
        rounded = [dict(feeds) for feeds in floats]
        for at, layer in enumerate(layers):
            name = names[at]
            current = Interpreter(now)
            for feeds in floats:
                (feeds[name],) = original.run([name], feeds)
            weights = self._rounded(layer, floats, rounded, current)
            now = replaced(now, {weights.name: weights})
            current = Interpreter(now)
            shift = np.zeros(layer.channels)
            for feeds, others in zip(floats, rounded, strict=True):
                (others[name],) = current.run([name], others)
                shift += _means(feeds[name], layer) - _means(others[name], layer)
            bias = shifted(layer.bias, shift / len(floats))
            now = replaced(now, {bias.name: bias})
            for feeds in (*floats, *rounded):
                for done in [n for n in feeds if last.get(n, len(names)) <= at]:
                    del feeds[done]
        return now

    def _rounded(
        self,
        layer: BiasedLayer,
        floats: Sequence[Mapping[str, Array]],
        rounded: Sequence[Mapping[str, Array]],
        current: Interpreter,
    ) -> Node:
        """Return the rounded weights of a layer.

        Args:
            floats: the layer's output, and others, in the float network, for each run.
            rounded: outputs of the layers before it in the rounded network.
            current: runs the rounded network.
        """
        old, node = layer.weights, layer.layer
        matrices, moments = _measured(layer, floats, rounded, current)
        values = self._values(node, matrices, moments)
        return constant(old.name, Tensor.packed(values), old.device, old.inputs)

    def _with_shared(
        self,
        graph: Graph,
        shared: Sequence[SharedWeights],
        runs: Sequence[Mapping[str, Array]],
        outputs: Sequence[str],
    ) -> Graph:
        """Return the graph with rounded weights of products that run several times."""
        new = {}
        for group, result in zip(shared, measured(graph, shared, runs, outputs), strict=True):
            if result is not None:
                tensor = Tensor.packed(self._values(group.products[0], *result))
                for old in group.constants:
                    new[old.name] = constant(old.name, tensor, old.device, old.inputs)
        return replaced(graph, new)

    def _values(self, node: Node, matrices: LayerMatrices, moments: Moments) -> Array:
        """Return the rounded weights of a layer; float32 of their shape."""
        problem, products = self._problem(node, moments)
        fitted = matrices.weights + problem.solution(products)
        steps, ends = self._steps(matrices, fitted)
        units = steps if steps.shape[1] > 1 else None
        levels = problem.levels(fitted / steps, *ends, units)
        return matrices.restored(levels * steps + 0.0).astype(np.float32)

    def _problem(self, node: Node, moments: Moments) -> tuple[RoundingProblem, Array]:
        """Return the problem of a layer, with more damping if its inputs depend on each other."""
        squares, products = moments.damped(self.damping)
        diagonal = np.einsum("gii->gi", squares)
        more = self.damping * diagonal.mean(axis=1, keepdims=True)
        for _ in range(_MOST_DAMPINGS):
            try:
                return RoundingProblem(squares), products
            except np.linalg.LinAlgError as error:
                if not np.isfinite(squares).all():
                    message = f"the inputs of {node.name!r} are not finite"
                    hint = "check the samples, and the outputs of the layers before it"
                    raise refuse(self.transform_name, message, hint) from error
                diagonal += more
                more *= _MORE_DAMPING
        return RoundingProblem(squares), products

    def _steps(self, matrices: LayerMatrices, values: Array) -> tuple[Array, tuple[float, float]]:
        """Return the steps of weights, and the lowest and highest weight in steps.

        Returns:
            Steps of shape ``[groups, 1, outputs of a group]``, or ``[1, 1, 1]``, or with blocks
            ``[1, products, outputs]``; the ends of the range.
        """
        if not self.symmetric:
            low, high = range_with_zero(values)
            step = (high - low) / ((1 << self.bits) - 1) or 1.0
            return np.full((1, 1, 1), step), (low / step, high / step)
        most = (1 << (self.bits - 1)) - 1
        method: ChannelMethod = "min_max" if self.bits == _WHOLE_BITS else "mse"
        if self.block_size and matrices.has_blocks(self.block_size):
            blocks = values.reshape(-1, self.block_size, values.shape[2]).astype(np.float32)
            sizes = float16_steps(channel_steps(blocks, (-3, -1), method, most))
            by_product = np.repeat(sizes.astype(np.float64), self.block_size, axis=1)
            return by_product.reshape(values.shape), (-most, most)
        weights = matrices.restored(values).astype(np.float32)
        axes = matrices.axes if self.granularity == "channel" else ()
        steps = channel_steps(weights, axes, method, most).astype(np.float64)
        return matrices.grouped(np.broadcast_to(steps, weights.shape))[:, :1], (-most, most)


def _needed(graph: Graph, outputs: Sequence[str]) -> Collection[str]:
    """Return the names of the nodes that the outputs need; all without outputs."""
    ends = [parse_ref(name).node for name in outputs]
    return reachable(graph, [e for e in ends if e in graph]) if ends else graph.by_name


def _reason(layer: BiasedLayer, users: int) -> str:
    """Return why the weights of a layer cannot be reconstructed; empty if they can."""
    node = layer.layer
    shape = layer.weights.attr_tensor("value").shape
    if node.op not in _SUPPORTED or node.attr_bool("transpose_a", False):
        return f"the weights of {node.op} are not supported"
    if math.prod(shape[axis] for axis in summed_axes(node, shape)) > _MOST_PRODUCTS:
        return f"a sum has more than {_MOST_PRODUCTS} products"
    return _SHARED if users > 1 else ""


def _measured(
    layer: BiasedLayer,
    floats: Sequence[Mapping[str, Array]],
    rounded: Sequence[Mapping[str, Array]],
    current: Interpreter,
) -> tuple[LayerMatrices, Moments]:
    """Return a layer as matrices, and the moments of its inputs in the rounded network."""
    node = layer.layer
    source = str(node.data_inputs[data_input(node)])
    (value,) = current.run([source], rounded[0])
    matrices = LayerMatrices(node, layer.weights.attr_tensor("value").array(), value)
    moments = Moments(matrices.weights)
    rows = min(max(_ROWS_PER_PRODUCT * matrices.weights.shape[1], _FEWEST_ROWS), _MOST_ROWS)
    for number, (feeds, others) in enumerate(zip(floats, rounded, strict=True)):
        (value,) = current.run([source], others)
        output = feeds[node.name]
        chosen = _scattered(matrices.rows(output), -(-rows // len(floats)), number)
        inputs = matrices.input_rows(value, output, chosen)
        moments.add(inputs, matrices.output_rows(output, chosen))
    return matrices, moments


def _affordable(outputs: Sequence[Array], last: Sequence[int]) -> int:
    """Return the number of runs whose stored outputs fit into the memory for them.

    Args:
        outputs: the output of each layer in one run.
        last: the index of the last layer that needs each output.
    """
    largest = max(
        sum(output.nbytes for before, output in enumerate(outputs[: at + 1]) if last[before] >= at)
        for at in range(len(outputs))
    )
    return max(_MOST_STORED // max(2 * largest, 1), 1)


def _spread(length: int, count: int) -> NDArray[np.int64]:
    """Return up to ``count`` indices, evenly spread over a length."""
    return np.arange(length) if length <= count else np.arange(count) * length // count


def _scattered(length: int, count: int, number: int) -> NDArray[np.int64]:
    """Return up to ``count`` indices, spread over a length without a period.

    Args:
        number: of the run; each has other indices.
    """
    if length <= count:
        return np.arange(length)
    turns = np.arange(number * count, (number + 1) * count) * _GOLDEN
    indices: NDArray[np.int64] = ((turns - np.floor(turns)) * length).astype(np.int64)
    return indices


def _means(output: Array, layer: BiasedLayer) -> Array:
    """Return the mean of each output channel; float64 [channels]."""
    rows = np.moveaxis(output, layer.axis, -1).reshape(-1, layer.channels)
    means: Array = rows.mean(axis=0, dtype=np.float64)
    return means
