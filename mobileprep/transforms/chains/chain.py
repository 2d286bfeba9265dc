"""Run transforms in sequence and record the effect of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.core import parallel
from mobileprep.core.loading import Author, blaming, load_file
from mobileprep.errors import MobileprepError, TransformError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import BATCH_NORMS, SCALINGS
from mobileprep.graph.reachability import drop_unused_functions, nodes_of
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import (
    Context,
    Result,
    Transform,
    is_built_in,
    make_transform,
    refuse,
    transforms_in,
)
from mobileprep.transforms.rewriting.batch_norms import is_inference


class ChainStep(Struct, frozen=True):
    """One transform of a chain, with options that match its schema.

    ``plugin`` is the Python file of a transform that is not built in.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ignore_errors: bool = False
    plugin: Path | None = None


class StepRecord(Struct, frozen=True):
    """Statistics of one step.

    Nodes are compared by name: a node counts as changed if another node of the same name replaces
    it and differs in any way.
    """

    name: str
    matched: int
    added: int
    removed: int
    changed: int
    nodes_before: int
    nodes_after: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def run_chain(
    graph: Graph,
    steps: Iterable[ChainStep],
    context: Context,
    *,
    watch: Callable[[StepRecord, Graph], None] | None = None,
) -> tuple[Graph, list[StepRecord]]:
    """Apply steps in order and check every result.

    Outputs are checked only without ``tf115``. Library functions are preserved; like the original,
    ``tf115`` also keeps functions that are no longer called.
    """
    records = []
    steps = list(steps)
    for number, step in enumerate(steps, start=1):
        parallel.report_progress(f"{number}/{len(steps)} {step.name}", 0, 0, "nodes")
        result = run_step(graph, step, context)
        record = _record(step.name, graph, result)
        graph = result.graph
        records.append(record)
        if watch is not None:
            watch(record, graph)
    return graph, records


def run_step(graph: Graph, step: ChainStep, context: Context) -> Result:
    """Apply one step; with ``ignore_errors``, an error becomes a warning and keeps the graph."""
    try:
        result = _apply(graph, step, context)
        if not context.tf115:
            _check_outputs(step.name, graph, result.graph, context)
    except UsageError:
        raise
    except MobileprepError as error:
        if not step.ignore_errors:
            raise
        return Result(graph, warnings=(f"{step.name}: ignored: {error}",))
    check_inputs(result.graph, f"after {step.name}")
    if context.tf115 or result.graph is graph:
        return result
    return replace(result, graph=drop_unused_functions(result.graph))


def _apply(graph: Graph, step: ChainStep, context: Context) -> Result:
    if step.plugin is None:
        return make_transform(step.name, step.options).apply(graph, context)
    return apply_plugin(step.name, step.options, step.plugin, graph, context)


def _check_outputs(name: str, before: Graph, after: Graph, context: Context) -> None:
    """Raise an error if a step removed an output, which an app would try to fetch on the device."""
    if after is before:
        return
    lost = (n for n in sorted(nodes_of(context.outputs)) if n in before and n not in after)
    for output in lost:
        message = f"the output {output!r} is gone after it"
        raise refuse(name, message, "leave what outputs names, under its name")


def _record(name: str, before: Graph, result: Result) -> StepRecord:
    after = result.graph
    if after is before:
        added = removed = changed = 0
    else:
        old, new = before.by_name, after.by_name
        common = sum(map(old.__contains__, new))
        added, removed = len(new) - common, len(old) - common
        # Nodes are immutable, so identity settles nearly every comparison.
        others = (old.get(name) for name, node in new.items() if old.get(name) is not node)
        changed = sum(was is not None and was != new[was.name] for was in others)
    return StepRecord(
        name,
        result.matched,
        added,
        removed,
        changed,
        len(before),
        len(after),
        dict(sorted(result.skipped.items())),
        result.warnings,
    )


_AUTHOR = Author("plugin", TransformError, "so that nothing would have been built")


def load_plugin(name: str, path: Path) -> type[Transform]:
    """Run a Python file and return its transform with the given name.

    Classes that the file imports from other user modules count; built-in transforms do not.

    Raises:
        UsageError: the file does not define this transform.
    """
    module = load_file(path, f"mobileprep_plugin_{name}", _AUTHOR)
    transforms = {n: kind for n, kind in transforms_in(module).items() if not is_built_in(kind)}
    if name not in transforms:
        there = ", ".join(sorted(transforms)) or "none"
        message = f"the plugin {path} holds no transform {name!r}; it holds {there}"
        raise UsageError(message, f'decorate a class with @transform("{name}")')
    return transforms[name]


def apply_plugin(
    name: str, options: Mapping[str, Any], path: Path, graph: Graph, context: Context
) -> Result:
    """Load and apply a user's transform.

    Raises:
        TransformError: the transform does not return a valid Result.
    """
    kind = load_plugin(name, path)
    with blaming(path, _AUTHOR):
        result = make_transform(name, options, kind).apply(graph, context)
    if not isinstance(result, Result):
        message = f"{name}: apply answered {type(result).__name__}"
        raise TransformError(message, "let it return a Result", str(path))
    wrong = _no_graph(result.graph)
    if wrong:
        message = f"{name}: apply answered a Result whose graph {wrong}"
        raise TransformError(message, "make it with graph.with_nodes(...)", str(path))
    wrong, right = _no_numbers(result)
    if wrong:
        message = f"{name}: apply answered a Result whose {wrong}"
        raise TransformError(message, right, str(path))
    return result


def _no_graph(value: object) -> str:
    """Return the reason why a value is not a valid graph, or an empty string."""
    if not isinstance(value, Graph):
        return f"is {type(value).__name__}"
    names: set[str] = set()
    for node in value.nodes:
        wrong = _no_node(node)
        if wrong:
            return wrong
        if node.name in names:
            return f"has two nodes named {node.name!r}"
        names.add(node.name)
    return ""


def _no_node(value: object) -> str:
    """Return the reason why a value is not a valid node, or an empty string."""
    if not isinstance(value, Node):
        return f"has {type(value).__name__} among its nodes"
    # Plugins are not type-checked.
    name: object = value.name
    op: object = value.op
    if not isinstance(name, str):
        return f"has a name that is not a string: {name!r}"
    if not isinstance(op, str):
        return f"has an op that is not a string: {op!r}, of {name!r}"
    for what in value.inputs:
        if not isinstance(what, Ref):
            return f"has {type(what).__name__}, not Ref, among the inputs of {name!r}"
    return ""


def _no_numbers(result: Result) -> tuple[str, str]:
    """Return the problem of a Result that reports cannot contain, and a hint, or empty strings."""
    matched: object = result.matched
    skipped: object = result.skipped
    warnings: object = result.warnings
    if not _is_count(matched):
        return f"matched is {matched!r}", "count the places as a whole number from 0 on"
    if not isinstance(skipped, Mapping) or not all(
        isinstance(why, str) and _is_count(count) for why, count in skipped.items()
    ):
        return f"skipped is {skipped!r}", "count places by reason: {'the reason': 2}"
    if not isinstance(warnings, tuple | list) or not all(isinstance(w, str) for w in warnings):
        return f"warnings is {warnings!r}", "make it a tuple of strings"
    return "", ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_CONTROL_FLOW: Final = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})
_FOLDS: Final = frozenset(
    {"fold_batch_norms", "fold_old_batch_norms", "fuse_batch_norms", "optimize"}
)


def cautions(
    graph: Graph, earlier: Sequence[str], name: str, options: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return warnings for the user before a step runs, one sentence each, with a remedy."""
    ops = {node.op for node in graph}
    warnings = []
    if name == "remove_nodes" and "Identity" in options.get("op", ()) and ops & _CONTROL_FLOW:
        warnings.append(
            "remove_nodes(op=Identity) on a graph with control flow: the Identity nodes that its "
            "loops and conditionals rely on stay; remove_no_ops makes the same choice"
        )
    if name == "quantize_nodes" and ops & BATCH_NORMS and not _FOLDS & set(earlier):
        warnings.append(
            "quantize_nodes before the batch norms are folded: they stay in float, between "
            "conversions; put fold_batch_norms and fold_old_batch_norms before it"
        )
    if name == "quantize_weights" and ("quantize_weights" in earlier or _has_quantized(graph)):
        warnings.append(
            "quantize_weights a second time: weights that are stored in 8 bits stay so; "
            "leave one of the two out"
        )
    return tuple(warnings)


def _has_quantized(graph: Graph) -> bool:
    """Return whether the graph already has weights that are stored in 8 bits."""
    names = graph.by_name
    return any(
        node.op == "Dequantize"
        and node.inputs
        and node.inputs[0].node in names
        and names[node.inputs[0].node].op == "Const"
        for node in graph
    )


_FUSES: Final = frozenset({"fuse_batch_norms", "optimize"})
_FOLDING_STEPS: Final = "fuse_batch_norms, or optimize, which contains it,"


def norms_left(graph: Graph, context: Context) -> str:
    """Return a warning about unfolded batch normalizations after a chain, or an empty string.

    The function detects them by folding them. It also reports normalizations of weights that are
    already stored in 8 bits, which no transform can fold any more.
    """
    if not any(node.op in BATCH_NORMS or node.op in SCALINGS for node in graph):
        return ""
    # Only now: few shipped graphs have batch norms, and importing the folding code is slow.
    from mobileprep.transforms.scales_and_biases import norms_merged

    protected = context.protected
    foldable = norms_merged(graph, protected).layers
    plain = _as_floats(graph)
    stored = 0 if plain is graph else norms_merged(plain, protected).layers
    count = max(foldable, stored)
    if not count:
        return ""
    what = "1 batch norm is" if count == 1 else f"{count} batch norms are"
    where = "before weights are quantized" if stored > foldable else "at the end of the chain"
    return f"{what} left that can be folded: put {_FOLDING_STEPS} {where}"


def norms_foreseen(graph: Graph, steps: Collection[str]) -> str:
    """Return a warning about batch normalizations that no step of a chain will fold."""
    if _FUSES & set(steps):
        return ""
    from mobileprep.transforms.norm_folding import FOLDED  # as above

    folded = set(FOLDED) if "fold_old_batch_norms" in steps else set()
    remaining = Counter(n.op for n in graph if n.op in BATCH_NORMS - folded and is_inference(n))
    if not remaining:
        return ""
    listed = ", ".join(f"{count} {op}" for op, count in sorted(remaining.items()))
    return f"no step of the chain folds {listed} of the model: put {_FOLDING_STEPS} into it"


def _as_floats(graph: Graph) -> Graph:
    """Replace constants that are stored in 8 bits with ones."""
    nodes = [_as_float(n, graph) for n in graph]
    if all(a is b for a, b in zip(nodes, graph, strict=True)):
        return graph
    return graph.with_nodes(nodes)


def _as_float(node: Node, graph: Graph) -> Node:
    stored = graph.get(node.inputs[0].node) if node.op == "Dequantize" and node.inputs else None
    if stored is None or stored.op != "Const":
        return node
    # A single element in memory represents them all.
    one = np.ones(1, np.float32)
    shape = stored.attr_tensor("value").shape
    return constant(node.name, Tensor(DType.FLOAT, shape, values=one))
