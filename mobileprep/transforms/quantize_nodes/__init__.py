"""Replace float ops with 8-bit ops, and insert conversions between the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.formats.range_file import read_range_file
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import loop_nodes
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.rewrite import Renames, rename_inputs
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.duplicates import MergeDuplicateNodes
from mobileprep.transforms.quantize_nodes import nodes as make
from mobileprep.transforms.quantize_nodes.eightbit_ops import (
    choose,
    convert,
    eightbit_nodes,
    hoist,
    may_be_empty,
    merge_adjacent_requantizes,
    remove_redundant_quantizations,
    takes_one_twice,
)
from mobileprep.transforms.quantize_nodes.layer_choice import Rules as Rules
from mobileprep.transforms.quantize_nodes.layer_choice import Settings as Settings
from mobileprep.transforms.quantize_nodes.layer_choice import choose_layers
from mobileprep.transforms.quantize_nodes.layers import PADS, quantize_layers
from mobileprep.transforms.quantize_nodes.layers import ranged_tensors as ranged_tensors
from mobileprep.transforms.quantize_nodes.ranges import TensorRanges
from mobileprep.transforms.quantize_nodes.weights import WeightSettings as WeightSettings

Ranges: TypeAlias = Literal["dynamic", "observed", "trained"]

Release: TypeAlias = Literal["1.15", "2.21"]

_HINT: Final = "give a range that begins at or below zero and ends above its beginning"


@transform("quantize_nodes")
class QuantizeNodes(Transform, frozen=True):
    """Replace ops that have an 8-bit form; the graph's outputs stay float.

    Source: ``quantize_nodes`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Replaces float ops with 8-bit ops, and converts values where they meet float ops."
    of_graph_transform_tool = True

    input_min: Annotated[
        float | None,
        Option("Minimum of the floats that 8-bit placeholders represent; needs input_max."),
    ] = None
    input_max: Annotated[float | None, Option("The end of that range.")] = None
    fallback_min: Annotated[
        float | None,
        Option(
            "Minimum of every 32-bit result; needs fallback_max. By default, ranges are "
            "measured at run time."
        ),
    ] = None
    fallback_max: Annotated[float | None, Option("The end of that range.")] = None
    ignore_op: Annotated[
        tuple[str, ...],
        Option("Op that stays float; repeat it for several."),
    ] = ()
    ranges: Annotated[
        Ranges | None,
        Option(
            "Source of input ranges: `dynamic`, measured in each run; `observed`, from "
            "range_file; `trained`, from fake quantization nodes. Layers then have quantized "
            "constant weights, and their 32-bit results become floats before bias and activation."
            " Without ranges and range_file, the original's form."
        ),
    ] = None
    range_file: Annotated[
        str | None,
        Option(
            "Range file of the float graph from `calibrate`. Missing ranges are measured when the"
            " graph runs.",
            min_length=1,
            format="path",
        ),
    ] = None
    rule: Annotated[
        tuple[str, ...],
        Option(
            "With ranges or range_file, exceptions for some layers: "
            "`mode=nodes|weights|float bits=2..8 granularity=tensor|channel "
            "method=min_max|percentile|entropy|mse percentile=50..100 ops=OP,OP "
            "nodes=REGEX`, each part of which is optional. Of several that fit a layer, the last "
            "one counts. Repeated for several."
        ),
    ] = ()
    store_rest: Annotated[
        bool,
        Option(
            "With ranges or range_file: store the weights of layers that cannot compute in 8 bits"
            " in 8 bits if that saves space, from 1,024 elements. A rule `mode=float` excludes a "
            "layer."
        ),
    ] = True

    tensorflow: Annotated[
        Release,
        Option(
            "With ranges or range_file: oldest TensorFlow that must run the graph. With `2.21`, "
            "Pad and MirrorPad compute in 8 bits between 8-bit layers; 1.15 has no kernels for "
            "that."
        ),
    ] = "1.15"

    def apply(self, graph: Graph, context: Context) -> Result:
        """Quantize the nodes; float nodes and conversions that become unused are kept."""
        if self.ranges is not None or self.range_file is not None:
            return self._with_eightbit_layers(graph, context)
        if self.rule:
            message = "rules need to know where ranges come from"
            raise refuse(self.transform_name, message, 'give ranges="dynamic", say')
        borrow, protected = not context.tf115, context.protected
        fallback = self._fallback()
        now = self._with_eightbit_placeholders(graph)
        now = hoist(now, protected, borrow=borrow)
        converted = convert(now, protected, borrow=borrow)
        choice = choose(converted.graph, self.ignore_op, all_possible=context.tf115)
        matched = converted.matched + len(choice.nodes)
        skipped = Counter(converted.skipped) + choice.skipped
        if not matched and now is graph and not context.tf115:
            return Result(graph, skipped=skipped)
        now = self._with_eightbit_ops(converted.graph, choice.nodes, fallback, context)
        now = merge_adjacent_requantizes(now, protected, borrow=borrow)
        now = MergeDuplicateNodes().apply(now, context).graph
        now = remove_redundant_quantizations(now, protected)
        return Result(now, matched, skipped)

    def _with_eightbit_layers(self, graph: Graph, context: Context) -> Result:
        if self._range("fallback_min", "fallback_max") is not None:
            message = "a fallback range needs the original form"
            raise refuse(self.transform_name, message, "leave ranges and range_file out")
        if self.ranges == "observed" and self.range_file is None:
            message = "observed ranges need a range file"
            raise refuse(self.transform_name, message, 'give range_file="ranges.yaml"')
        file = None if self.range_file is None else read_range_file(Path(self.range_file))
        trained = self.ranges == "trained"
        rules = Rules(self.transform_name, self.rule)
        now = self._with_eightbit_placeholders(graph)
        choice = choose_layers(
            now, rules, frozenset(self.ignore_op), trained=trained, store_rest=self.store_rest
        )
        ranges = TensorRanges(now, file, trained=trained)
        warn, carrying = self.ranges != "dynamic", () if self.tensorflow == "1.15" else PADS
        return quantize_layers(now, choice, ranges, context, warn=warn, carrying=carrying)

    def _with_eightbit_ops(
        self,
        graph: Graph,
        chosen: Mapping[str, Node],
        fallback: tuple[float, float] | None,
        context: Context,
    ) -> Graph:
        # In a loop, constants must be tied to their consumers by control inputs. The original ties
        # them everywhere, which prevents merging them.
        tied = None if context.tf115 else loop_nodes(graph)
        empty = frozenset() if context.tf115 else may_be_empty(graph)
        names = FreshNames(graph.by_name)
        nodes: list[Node] = []
        for node in graph:
            if node.name not in chosen:
                nodes.append(node)
                continue
            if context.tf115 and takes_one_twice(node):
                message = f"node {node.name!r} takes one tensor twice"
                raise refuse(self.transform_name, message, "a recipe quantizes such nodes")
            nodes += eightbit_nodes(chosen[node.name], names, fallback, tied, empty)
        return graph.with_nodes(nodes)

    def _fallback(self) -> tuple[float, float] | None:
        limits = self._range("fallback_min", "fallback_max")
        if limits is not None and not limits[0] <= 0:
            needs = "results are only brought to ranges that hold zero"
            raise refuse(self.transform_name, f"fallback_min is {limits[0]:g}; {needs}", _HINT)
        return limits

    def _range(self, low_name: str, high_name: str) -> tuple[float, float] | None:
        low, high = getattr(self, low_name), getattr(self, high_name)
        if low is None and high is None:
            return None
        if low is None or high is None:
            message = f"{low_name} and {high_name} must be given together"
            raise refuse(self.transform_name, message, "give both or neither")
        if not low < high:
            message = f"the range from {low_name}={low:g} to {high_name}={high:g} is empty"
            raise refuse(self.transform_name, message, _HINT)
        return low, high

    def _with_eightbit_placeholders(self, graph: Graph) -> Graph:
        limits = self._range("input_min", "input_max")
        if limits is None:
            return graph
        renames = Renames()
        names = FreshNames(graph.by_name)
        nodes: list[Node] = []
        converters: set[str] = set()
        for node in graph:
            if node.op != "Placeholder" or node.attr_dtype("dtype") is not DType.FLOAT:
                nodes.append(node)
                continue
            nodes += _eightbit_placeholder(node, names, *limits)
            converters.add(nodes[-1].name)
            renames.tensor(Ref(node.name), Ref(nodes[-1].name))
        return rename_inputs(graph.with_nodes(nodes), renames, converters)


def _eightbit_placeholder(node: Node, names: FreshNames, low: float, high: float) -> Iterator[Node]:
    prefix = f"{node.name}_eightbit"
    least = make.scalar(names.name(f"{prefix}/min"), low)
    greatest = make.scalar(names.name(f"{prefix}/max"), high)
    yield replace(node, attrs={**node.attrs, "dtype": make.QUINT8})
    yield least
    yield greatest
    inputs = (Ref(node.name), Ref(least.name), Ref(greatest.name))
    yield make.dequantize(names.name(f"{prefix}/dequantize"), inputs)
