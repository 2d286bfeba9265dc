"""Print outputs of nodes when a graph runs, and fix ranges that a log of a run has."""

from __future__ import annotations

import codecs
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np

from mobileprep.core.declare import Option
from mobileprep.core.files import read_bytes
from mobileprep.errors import nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import SWITCHES
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.refs import Ref, control, unique_name
from mobileprep.graph.rewrite import Renames, rename_inputs
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_NAME: Final = "insert_logging"
# A node does not run if one of its inputs has no value, so a Print of all outputs would not run.
_CHOOSING: Final = SWITCHES | {"_SwitchN"}
# The graph loader expects these right before a Merge or a Switch.
_LOOP_OPS: Final = frozenset({"NextIteration", "RefNextIteration", "LoopCond"})


@transform(_NAME)
class InsertLogging(Transform, frozen=True):
    """Route a node's first output through a Print node that shows all used outputs.

    Source: ``insert_logging`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Inserts Print nodes that print the outputs of other nodes."
    of_graph_transform_tool = True

    op: Annotated[
        tuple[str, ...],
        Option("Op to log; repeat it for several. By default, all ops are logged."),
    ] = ()
    prefix: Annotated[
        tuple[str, ...],
        Option(
            "Name prefix of nodes to log; repeat it for several. By default, all nodes are logged."
        ),
    ] = ()
    message: Annotated[str, Option("Printed before the values.")] = ""
    show_op: Annotated[bool, Option("Put the op into the message.")] = False
    show_name: Annotated[
        bool,
        Option("Put the name of the printing node into the message."),
    ] = False
    first_n: Annotated[
        int, Option("Maximum number of times that each node prints; -1 for no limit.")
    ] = -1
    summarize: Annotated[int, Option("Number of elements of each output to print.")] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        """Insert a Print node after each selected node that has consumers."""
        used = _used_outputs(graph)
        skipped: Counter[str] = Counter()
        nodes: list[Node] = []
        renames = Renames()
        printers: set[str] = set()
        for node in graph:
            nodes.append(node)
            if node.name not in used or not self._is_chosen(node):
                continue
            types = _types(node, graph)
            reason = _unfit(node, types, used[node.name])
            if reason:
                skipped[reason] += 1
                continue
            name = unique_name(f"{node.name}__print__", graph.by_name)
            nodes.append(self._printer(node, name, sorted(used[node.name]), types))
            renames.tensor(Ref(node.name), Ref(name, explicit=True))
            printers.add(name)
        if not printers:
            return Result(graph, skipped=skipped)
        after = rename_inputs(graph.with_nodes(nodes), renames, printers)
        return Result(after, len(printers), skipped)

    def _is_chosen(self, node: Node) -> bool:
        if self.op and node.op not in self.op:
            return False
        return not self.prefix or node.name.startswith(self.prefix)

    def _printer(self, node: Node, name: str, indices: list[int], types: list[DType]) -> Node:
        if indices[-1] >= len(types):
            message = f"output {indices[-1]} of node {node.name!r} ({node.op}) is used"
            raise refuse(_NAME, f"{message}, which has {len(types)}", "export the graph again")
        shown = [types[i].base for i in indices]
        attrs: Mapping[str, AttrValue] = {
            "T": attr.dtype(types[0]),
            "U": AttrValue("list(type)", tuple(shown)),
            "message": attr.string(self._message(node, name)),
            "first_n": attr.integer(self.first_n),
            "summarize": attr.integer(self.summarize),
        }
        inputs = tuple(Ref(node.name, i, explicit=True) for i in (0, *indices))
        return Node(name, "Print", inputs, attrs=attrs)

    def _message(self, node: Node, name: str) -> str:
        op = f";{node.op};" if self.show_op else ""
        return f"{op}{f';{name};' if self.show_name else ''}{self.message}"


def _used_outputs(graph: Graph) -> Mapping[str, set[int]]:
    """Return the used outputs of each node with consumers; a control input counts as the first."""
    used: dict[str, set[int]] = defaultdict(set)
    for node in graph:
        for ref in node.inputs:
            used[ref.node].add(max(ref.index, 0))
    return used


def _unfit(node: Node, types: list[DType], used: set[int]) -> str:
    """Return the reason why a Print node would break the graph, or an empty string."""
    if not types:
        return "it has no output"
    if types[0].is_ref:
        return "it is a variable, which Print would turn into its value"
    # The Print node always takes the first output.
    if node.op in _CHOOSING and used != {0}:
        return "only one of its outputs has a value"
    return "loops are known by it" if node.op in _LOOP_OPS else ""


def _types(node: Node, graph: Graph) -> list[DType]:
    definition = signature_of(node, graph.library)
    if definition is None:
        message = f"unknown outputs of the op {node.op} of node {node.name!r}"
        raise refuse(_NAME, message, "name the ops to log: insert_logging(op=Conv2D)")
    return output_types(node, definition)


@transform("freeze_requantization_ranges")
class FreezeRequantizationRanges(Transform, frozen=True):
    """Replace RequantizationRange with two constants, which have no cost at run time.

    Source: ``freeze_requantization_ranges`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Replaces the ranges of 32-bit results that are measured at run time with "
        "ranges from the log of a run."
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
        Option("Percentage of the smallest minimums to ignore."),
    ] = 5.0
    max_percentile: Annotated[
        float,
        Option("Percentage of the largest maximums to ignore."),
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


_LARGEST: Final = 1 << 28
_NAME_END: Final = "__print__"
_VALUES: Final = "__requant_min_max:"
_NUMBER: Final = r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?inf)\s*"
_BOTH: Final = re.compile(rf"\[{_NUMBER}\][^\[\]]*\[{_NUMBER}\][^\[\]]*\Z", re.IGNORECASE)
# Color codes of terminals and log viewers.
_COLORS: Final = re.compile(r"\x1b\[[0-9;:]*m")
_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Range(NamedTuple):
    """Minimum and maximum of a tensor."""

    low: float
    high: float


def read_range_log(path: Path) -> dict[str, list[Range]]:
    """Return the ranges of a log by the name of the node that measured them.

    Lines look like ``...;NAME__print__;__requant_min_max:[-1.5][2.5]``; other lines are ignored. So
    are prefixes, such as TensorFlow's time and source file, suffixes, and color codes. UTF-16, as
    written by PowerShell, is supported.

    Source: ``ExtractMinMaxRecords`` of TensorFlow 1.15's graph transforms.
    """
    data = read_bytes(path, limit=_LARGEST)
    text = data.decode("utf-16" if data.startswith(_WIDE) else "utf-8", "replace")
    text = _COLORS.sub("", text)
    ranges: dict[str, list[Range]] = {}
    for line in text.split("\n"):
        if f"{_NAME_END};{_VALUES}" in line:
            _read_line(line, ranges)
    return ranges


def _read_line(line: str, ranges: dict[str, list[Range]]) -> None:
    parts = line.split(";")
    at = max((i for i, part in enumerate(parts) if i and part.startswith(_VALUES)), default=0)
    if not at or not parts[at - 1].endswith(_NAME_END):
        return
    values = _BOTH.match(parts[at], len(_VALUES))
    if values is None:
        return
    low, high = float(values[1]), float(values[2])
    ranges.setdefault(parts[at - 1].removesuffix(_NAME_END), []).append(Range(low, high))
