"""Insert fake quantization into a training graph, so that a network learns its ranges."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from mobileprep.core.declare import Option
from mobileprep.freezing.trace import variables_of
from mobileprep.freezing.training import is_gradient
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import without_newly_unused
from mobileprep.graph.verify import check_inputs
from mobileprep.ops.shape_inference import shapes_if_valid
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.insert_fake_quant.layers import Places
from mobileprep.transforms.insert_fake_quant.norms import fold_norms
from mobileprep.transforms.insert_fake_quant.quantizers import Quantizers, RangeSettings
from mobileprep.transforms.rewriting.constants import lazy_shapes

_APPLYING: Final = re.compile(r"(Resource)?(Sparse)?Apply[A-Z].*\Z")


@transform("insert_fake_quant")
class InsertFakeQuant(Transform, frozen=True):
    """Insert fake quantization of weights and activations with ranges that training determines.

    Nodes are placed where ``tf.contrib.quantize`` of TensorFlow 1.15 places them, and variables
    have its names. Batch normalizations are folded into the weights first. Gradients must not have
    been added yet, because they have to include the rounding.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference" (2018), section 3.
    """

    summary = (
        "Inserts fake quantization of weights and activations into a graph with variables, before "
        "it is trained."
    )

    mode: Annotated[
        Literal["training", "eval"],
        Option(
            "training: ranges are variables that training determines. eval: ranges are read from "
            "these variables, for the inference graph that is frozen."
        ),
    ] = "training"
    ranges: Annotated[
        Literal["averaged", "learned"],
        Option(
            "averaged: ranges of activations are moving averages over batches, and ranges of "
            "weights are their minimum and maximum. learned: all ranges are trained by gradients."
        ),
    ] = "averaged"
    weight_bits: Annotated[int, Option("Number of bits of weights.", minimum=2, maximum=8)] = 8
    activation_bits: Annotated[
        int, Option("Number of bits of activations.", minimum=2, maximum=8)
    ] = 8
    granularity: Annotated[
        Literal["tensor", "channel"],
        Option(
            "tensor: the weights of a layer have one range. channel: each output channel of a "
            "convolution or matrix product has its own; depthwise convolutions keep one."
        ),
    ] = "tensor"
    symmetric: Annotated[
        bool, Option("Whether averaged ranges extend equally far below and above zero.")
    ] = False
    quant_delay: Annotated[
        int, Option("Number of training steps before values are rounded.", minimum=0)
    ] = 0
    ema_decay: Annotated[
        float, Option("Decay of the moving averages of ranges.", minimum=0, maximum=1)
    ] = 0.999
    scope: Annotated[str, Option("Only insert nodes in this name scope.")] = ""

    def apply(self, graph: Graph, context: Context) -> Result:
        """Insert fake quantization after all tensors that a runtime quantizes."""
        check_inputs(graph, self.transform_name)
        self._check_is_untrained(graph)
        folded = fold_norms(graph, lazy_shapes(lambda: shapes_if_valid(graph)))
        shape_of = lazy_shapes(lambda: shapes_if_valid(folded.graph))
        places = Places(folded.graph, folded.biases, self.scope).find()
        if not places:
            return Result(graph, skipped=folded.skipped)
        quantizers = Quantizers(folded.graph, self._settings, shape_of)
        moved = {place.tensor: quantizers.add(place) for place in places}

        def rewired(node: Node) -> Node:
            inputs = tuple(moved.get(ref, ref) for ref in node.inputs)
            return node if inputs == node.inputs else node.with_inputs(inputs)

        nodes = [*map(rewired, folded.graph), *quantizers.nodes]
        after = without_newly_unused(graph, graph.with_nodes(nodes), context.protected)
        return Result(after, len(places), folded.skipped)

    @property
    def _settings(self) -> RangeSettings:
        return RangeSettings(
            is_training=self.mode == "training",
            is_learned=self.ranges == "learned",
            weight_bits=self.weight_bits,
            activation_bits=self.activation_bits,
            is_per_channel=self.granularity == "channel",
            is_symmetric=self.symmetric,
            delay=self.quant_delay,
            decay=self.ema_decay,
        )

    def _check_is_untrained(self, graph: Graph) -> None:
        if not variables_of(graph):
            message = "the graph has no variables, so training cannot determine ranges"
            hint = "transform the graph that is trained, before it is frozen"
            raise refuse(self.transform_name, message, hint)
        gradient = next((n for n in graph if is_gradient(n) or _APPLYING.match(n.op)), None)
        if gradient is not None:
            message = f"the graph has gradients already, such as node {gradient.name!r}"
            hint = "save the graph before the optimizer adds them, and add the optimizer afterwards"
            raise refuse(self.transform_name, message, hint)
