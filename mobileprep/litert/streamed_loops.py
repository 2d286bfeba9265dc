"""Run a loop over time steps for fewer of them, from states that the caller gives.

For a single time step, the body can replace the loop: delegates run it, and do not run a WHILE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, FuncRef, OpDef
from mobileprep.graph.bypass import IDENTITIES, constant_behind, source_behind
from mobileprep.graph.graph import Function
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.bodies import Body, function_of
from mobileprep.graph.refs import Ref, edge
from mobileprep.graph.tensor import Tensor
from mobileprep.litert.recurrent_loops import Loop
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.time_axes import LAST, Along, Mark, Steps

AddState = Callable[[Node, Ref, Ref], Ref]
"""Adds a state of a node, from its values at the start of a sequence and after the last step, and
returns its value before the first step of a call."""

_EXPORT: Final = "leave out 'streaming', or export the model without sequence lengths"


def shorten_loop(
    steps: Steps, node: Node, loop: Loop, add_state: AddState, *, inline: bool
) -> dict[str, Function]:
    """Add a loop that runs fewer time steps, and return its new functions.

    Args:
        steps: the nodes to add to.
        node: the loop.
        loop: the same with its functions.
        add_state: adds a state.
        inline: whether to add the body instead of a loop for a single step.

    Raises:
        CannotExpressError: the loop uses more of the sequence than the row of each step.
    """
    if set(loop.steps()) != {steps.time}:
        reason = "it does not run once for each time step"
        raise CannotExpressError(reason, _EXPORT)
    read = _rows_read(loop)
    inputs: list[Ref] = []
    results: list[Mark] = []
    for k, first in enumerate(loop.entered):
        ref, result = _variable(steps, node, loop, k, read)
        if ref is None:
            ref, result = add_state(node, first, Ref(node.name, k)), LAST
        inputs.append(ref)
        results.append(result)
    steps.marks.update({(node.name, k): mark for k, mark in enumerate(results)})
    if inline and steps.count == 1:
        _inline(steps, node, loop, inputs, read)
        return {}
    functions = _condition(steps, node, loop)
    (name,) = functions
    test = attr.AttrValue("func", FuncRef(name))
    steps.add(node.with_inputs(tuple(inputs)).with_attrs(cond=test))
    return functions


def _variable(
    steps: Steps, node: Node, loop: Loop, k: int, read: set[str]
) -> tuple[Ref | None, Mark]:
    """Return the first value of a loop variable and how its result depends on the time steps.

    The value is None for states.
    """
    first, mark = loop.entered[k], steps.mark(loop.entered[k])
    readers = _readers(loop, loop.args[k])
    written = loop.written(k)
    if loop.is_counter(k):
        return first, None
    if loop.args[k] == loop.ends[k]:
        is_read_by_row = any(reader.name in read for reader in readers)
        if mark is not None and (mark != Along(0) or any(r.name not in read for r in readers)):
            reason = "each of its turns uses more of the sequence than one time step"
            raise CannotExpressError(reason, _EXPORT)
        if mark is None and is_read_by_row:
            return steps.shortened(node, first, Along(0)), None
        limit = constant_behind(steps.graph, first)
        if not readers and limit is not None and limit.array().tolist() == steps.time:
            return steps.new(node, "limit", np.array(steps.count, limit.dtype.numpy)), None
        return first, mark
    if written is None:
        return None, LAST
    if mark is not None or [r.name for r in readers] != [loop.ends[k].node]:
        reason = "it reads rows that earlier time steps wrote"
        raise CannotExpressError(reason, _EXPORT)
    if written[0] is None:
        return first, LAST
    time, *rest = steps.shape(first)
    if time != steps.time:
        reason = "it does not write a row for each time step"
        raise CannotExpressError(reason, _EXPORT)
    zeros = np.zeros((steps.count, *rest), node.attr_dtypes("T")[k].numpy)
    return steps.new(node, "rows", zeros), Along(0)


def _readers(loop: Loop, ref: Ref) -> list[Node]:
    """Return the nodes of the body that read a tensor, also through identities."""
    graph = loop.body.graph
    return [
        node
        for node in graph
        if node.op not in IDENTITIES
        and any(source_behind(graph, r) == ref for r in node.data_inputs)
    ]


def _rows_read(loop: Loop) -> set[str]:
    """Return the nodes of the body that read the row of the turn.

    Raises:
        CannotExpressError: the body uses the number of the turn for anything else.
    """
    read: set[str] = set()
    for k, arg in enumerate(loop.args):
        if not loop.is_counter(k):
            if any(
                loop.is_counter(i) and loop.ends[k] in (loop.args[i], loop.ends[i])
                for i in range(len(loop.args))
            ):
                raise _counts(loop.body.outputs[k].node)
            continue
        if _readers(loop, loop.ends[k]):
            raise _counts(loop.ends[k].node)
        for node in _readers(loop, arg):
            if node.name == loop.ends[k].node:
                continue
            if loop.sequence_of(Ref(node.name)) is not None:
                read.add(node.name)
            elif not _is_row_written(loop, node):
                raise _counts(node.name)
    return read


def _is_row_written(loop: Loop, node: Node) -> bool:
    """Return whether a node is only the index at which a turn writes its row."""
    if node.op != "Reshape":
        return False
    ends = {end.node for k, end in enumerate(loop.ends) if loop.written(k) is not None}
    return all(reader.name in ends for reader in _readers(loop, Ref(node.name)))


def _counts(name: str) -> CannotExpressError:
    reason = f"its body uses the number of the time step, in {name!r}"
    return CannotExpressError(reason, _EXPORT)


def _inline(steps: Steps, node: Node, loop: Loop, inputs: Sequence[Ref], read: set[str]) -> None:
    """Add the nodes of one turn instead of the loop."""
    graph = loop.body.graph
    refs = {edge(arg): ref for arg, ref in zip(loop.args, inputs, strict=True)}
    names = {inner.name: steps.names.name(f"{node.name}/{inner.name}") for inner in graph}

    def moved(ref: Ref) -> Ref:
        return refs.get(edge(ref), ref.renamed(names[ref.node]))

    for inner in graph:
        copy = inner.with_inputs(tuple(map(moved, inner.data_inputs)))
        if inner.name in read:
            attrs = {"T": inner.attrs["Tparams"], "squeeze_dims": attr.integers(0)}
            copy = Node(inner.name, "Squeeze", copy.inputs[:1], inner.device, attrs)
        if inner.name not in loop.body.inputs:
            steps.add(replace(copy, name=names[inner.name]))
    for k, end in enumerate(loop.ends):
        written = loop.written(k)
        source = end if written is None else graph[end.node].data_inputs[2]
        steps.same[node.name, k] = steps.final(moved(source))


def _condition(steps: Steps, node: Node, loop: Loop) -> dict[str, Function]:
    """Return the condition of a loop that runs for the new number of steps."""
    kinds = node.attr_dtypes("T")
    counter = next(k for k in range(len(kinds)) if loop.is_counter(k))
    kind = kinds[counter]
    args = tuple(Ref(f"arg_{k}") for k in range(len(kinds)))
    limit = constant("limit", Tensor.of(np.array(steps.count, kind.numpy)))
    test = Node("test", "Less", (args[counter], Ref("limit")), "", {"T": attr.dtype(kind)})
    inputs = tuple(ArgDef(r.node, k) for r, k in zip(args, kinds, strict=True))
    name = steps.names.name(f"{node.name}_steps".replace("/", "_"))
    like = Function(OpDef(name, inputs, (ArgDef("goes_on", DType.BOOL),)))
    body = Body(args, (limit, test), (Ref("test"),))
    return {name: function_of(body, like, steps.graph.library)}
