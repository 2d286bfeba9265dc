"""Replace ranges measured at run time with ranges from a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from mobileprep.core.declare import Option
from mobileprep.errors import nearest_hint
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Ref, control
from mobileprep.graph.rewrite import Renames, rename_inputs
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.freeze_requantization_ranges.range_log import Range, read_range_log


@transform("freeze_requantization_ranges")
class FreezeRequantizationRanges(Transform, frozen=True):
    """Replace RequantizationRange with two constants, which have no cost at run time.

    Source: ``freeze_requantization_ranges`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Replaces the ranges of 32-bit results that are measured at run time by ranges seen in "
        "the log of a run."
    )
    of_graph_transform_tool = True

    min_max_log_file: Annotated[
        str,
        Option(
            "Log of a run of the graph with insert_logging(op=RequantizationRange, "
            'show_name=true, message="__requant_min_max:").',
            min_length=1,
            format="path",
        ),
    ]
    min_percentile: Annotated[
        float,
        Option("How many percent of the smallest minimums are passed over."),
    ] = 5.0
    max_percentile: Annotated[
        float,
        Option("How many percent of the greatest maximums are passed over."),
    ] = 5.0

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace every RequantizationRange with valid ranges in the log."""
        ranges = self._ranges(graph)
        renames = Renames()
        nodes: list[Node] = []
        skipped: Counter[str] = Counter()
        for node in graph:
            reason = _reason_to_stay(node, ranges)
            if node.op != "RequantizationRange" or reason:
                nodes.append(node)
                skipped.update([reason] if reason else [])
                continue
            low = _scalar(f"{node.name}/frozen_min", ranges[node.name].low)
            high = _scalar(f"{node.name}/frozen_max", ranges[node.name].high)
            renames.tensor(Ref(node.name, 0), Ref(low.name, explicit=True))
            renames.tensor(Ref(node.name, 1), Ref(high.name, explicit=True))
            renames.tensor(control(node.name), control(low.name))
            nodes += [low, high]
        if not renames:
            return Result(graph, skipped=skipped)
        matched = sum(n.op == "RequantizationRange" for n in graph) - skipped.total()
        return Result(rename_inputs(graph.with_nodes(nodes), renames), matched, skipped)

    def _ranges(self, graph: Graph) -> dict[str, Range]:
        if not self.min_max_log_file:
            message = "min_max_log_file is empty"
            raise refuse(self.transform_name, message, "name the file with the log of a run")
        seen = read_range_log(Path(self.min_max_log_file))
        if not seen:
            message = f"{self.min_max_log_file} holds no range"
            hint = (
                "apply insert_logging(op=RequantizationRange, show_name=true, "
                'message="__requant_min_max:"), and save the output of mobileprep run: 2> LOG'
            )
            raise refuse(self.transform_name, message, hint)
        for name in seen:
            self._check(graph, name)
        return {name: self._usual(ranges) for name, ranges in seen.items()}

    def _check(self, graph: Graph, name: str) -> None:
        node = graph.get(name)
        if node is None:
            message = f"{self.min_max_log_file} has a range of {name!r}, which is not in the graph"
            hint = nearest_hint(name, graph.by_name) or "log a run of this very graph"
            raise refuse(self.transform_name, message, hint)
        if node.op != "RequantizationRange":
            message = f"{self.min_max_log_file} has a range of {name!r}, which is a {node.op}"
            raise refuse(self.transform_name, message, "log ranges of RequantizationRange alone")

    def _usual(self, seen: Sequence[Range]) -> Range:
        """Return the range without outliers, computed in single precision like the original."""
        count = np.float32(len(seen))
        hundred = np.float32(100)
        lower = np.float32(self.min_percentile) / hundred
        upper = np.float32(1) - np.float32(self.max_percentile) / hundred
        low = _at(sorted(r.low for r in seen), float(count * lower))
        high = _at(sorted(r.high for r in seen), float(count * upper))
        return Range(low, high)


def _reason_to_stay(node: Node, ranges: Mapping[str, Range]) -> str:
    """Return why a range is still measured; the original freezes ranges that Requantize rejects."""
    if node.op != "RequantizationRange":
        return ""
    limits = ranges.get(node.name)
    if limits is None:
        return "the log has no range of it"
    return "" if limits.low <= 0 and limits.low <= limits.high else "its range is none"


def _at(values: Sequence[float], position: float) -> float:
    """Return the value at a position, rounded half up and clamped to the valid indices."""
    return values[min(max(int(np.floor(position + 0.5)), 0), len(values) - 1)]


def _scalar(name: str, value: float) -> Node:
    return constant(name, Tensor.packed(np.asarray(value, np.float32)))
