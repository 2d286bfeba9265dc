"""The order of loop variables, and the copies that LiteRT's WHILE needs.

After each iteration the runtime copies the body's outputs over the body's inputs, one by one. An
output that is itself another input is lost if that input has been overwritten before. So the
variables are sorted such that each is read before it is overwritten; variables that change places
in a cycle need one copy for each cycle. (Sequentialization of parallel moves; May, "The parallel
assignment problem redefined", IEEE Transactions on Software Engineering 15(6), 1989.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.litert.program import Op, Port, Program, Value
from mobileprep.litert.types import NAMES


def with_safe_loops(program: Program) -> Program:
    """The program with the variables of each WHILE in a safe order, and copies for cycles.

    Branches of an IF get copies, too, where they return a tensor twice.
    """
    safe = {"WHILE": _safe, "IF": _with_distinct_results}
    return program.with_ops([safe[op.code](op) if op.code in safe else op for op in program.ops])


def _with_distinct_results(op: Op) -> Op:
    """An IF whose branches compute each result separately.

    The runtime moves the memory of a result to the output, so the second output finds nothing.
    """
    return replace(op, subgraphs=tuple(map(_distinct, op.subgraphs)))


def _distinct(branch: Program) -> Program:
    """The branch with a copy for each further return of a tensor that it computes."""
    computed = {value for op in branch.ops for value in op.outputs}
    seen: dict[Value, int] = {}
    ports: list[Port] = []
    copies: list[Op] = []
    for port in branch.outputs:
        value = port.value
        number = seen[value] = seen.get(value, 0) + 1
        if number > 1 and value in computed:
            copy = _copy(value, f"_{number}")
            copies += copy
            value = copy[-1].outputs[0]
        elif number > 1 and value.data is not None:
            # The runtime keeps the RESHAPE of a constant in memory that an IF cannot move.
            value = replace(value, name=f"{value.name}_copy_{number}")
        ports.append(Port(port.name, value))
    return replace(branch, outputs=tuple(ports), ops=(*branch.ops, *copies))


def _safe(op: Op) -> Op:
    condition, body = op.subgraphs
    sources = _sources(body)
    if all(source > target for target, source in sources.items()):
        return op
    order, cut = _ordered(sources, len(body.inputs))
    ports = list(body.outputs)
    copies: list[Op] = []
    for target in cut:
        copy = _copy(ports[target].value)
        copies += copy
        ports[target] = Port(ports[target].name, copy[-1].outputs[0])

    def sort(ports: Sequence[Port]) -> tuple[Port, ...]:
        return tuple(ports[i] for i in order)

    return replace(
        op,
        inputs=tuple(op.inputs[i] for i in order),
        outputs=tuple(op.outputs[i] for i in order),
        subgraphs=(
            replace(condition, inputs=sort(condition.inputs)),
            replace(
                body,
                inputs=sort(body.inputs),
                outputs=sort(ports),
                ops=(*copies, *body.ops),
            ),
        ),
    )


def _sources(body: Program) -> dict[int, int]:
    """For each variable that takes the value of another one, the index of that one."""
    indices = {port.value: i for i, port in enumerate(body.inputs)}
    found = {i: indices.get(port.value, i) for i, port in enumerate(body.outputs)}
    unchanged = {i for i, source in found.items() if body.outputs[i].value is body.inputs[i].value}
    return {i: j for i, j in found.items() if i != j and j not in unchanged}


def _ordered(sources: Mapping[int, int], count: int) -> tuple[list[int], list[int]]:
    """An order in which each variable stands before its source, and the targets to copy for it.

    Args:
        sources: the source of each target.
        count: the number of variables.
    """
    rest = dict(sources)
    order: list[int] = []
    cut: list[int] = []
    waiting = list(range(count))
    while waiting:
        read = set(rest.values())
        # A variable may be overwritten once no other one is still to be read from it.
        ready = [i for i in waiting if i not in read]
        if not ready:
            cut.append(waiting[0])
            del rest[waiting[0]]
            continue
        order += ready
        waiting = [i for i in waiting if i in read]
        for i in ready:
            rest.pop(i, None)
    return order, cut


def _copy(value: Value, suffix: str = "") -> list[Op]:
    """Operators that copy a tensor: a RESHAPE to its own shape."""
    name = f"{value.name}_copy{suffix}"
    target = replace(value, name=name, data=None)
    if value.shape is not None and min(value.shape, default=0) >= 0:
        sizes = np.array(value.shape, np.int32)
        shape = Value(f"{name}_shape", DType.INT32, sizes.shape, sizes)
        options = Options("ReshapeOptions", {"new_shape": value.shape})
        return [Op("RESHAPE", (value, shape), (target,), options)]
    rank = -1 if value.shape is None else len(value.shape)
    shape = Value(f"{name}_shape", DType.INT32, (rank,))
    return [
        Op("SHAPE", (value,), (shape,), Options("ShapeOptions", {"out_type": NAMES[DType.INT32]})),
        Op("RESHAPE", (value, shape), (target,), Options("ReshapeOptions")),
    ]
