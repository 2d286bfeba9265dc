"""Sequences, buckets, lookup tables, and control flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic
from mobileprep.litert.program import Port, Program, Value, builtin, integers
from mobileprep.litert.refusals import FINDS, GIVE_SHAPES, SIZES, CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import as_int32, cast, gather, reshaped, sizes_of, transposed
from mobileprep.litert.tables import table_name
from mobileprep.litert.types import LONG_NUMBERS, NAMES, TABLE, need, need_float

_INDICES: Final = frozenset({DType.INT32, DType.INT64})


@lowering("ReverseSequence")
def reverse_sequence(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need(inputs[:1], LONG_NUMBERS | {DType.INT16, DType.UINT8})
    need(inputs[1:], _INDICES)
    return scope.emit(
        "REVERSE_SEQUENCE",
        inputs,
        scope.output_shape(node),
        seq_dim=node.attr_int("seq_dim"),
        batch_dim=node.attr_int("batch_dim", 0),
    )


@lowering("Bucketize")
def bucketize(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need(inputs, LONG_NUMBERS | {DType.DOUBLE})
    return scope.emit(
        "BUCKETIZE",
        inputs,
        inputs[0].shape,
        DType.INT32,
        boundaries=node.attr_floats("boundaries", ()),
    )


@lowering("BroadcastArgs")
def broadcast_args(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need(inputs, _INDICES)
    return scope.emit("BROADCAST_ARGS", inputs, scope.output_shape(node))


@lowering("CTCGreedyDecoder")
def ctc_greedy_decoder(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit ARG_MAX of each time step, and WHERE of the steps to keep."""
    need_float(inputs[:1])
    scores, lengths = inputs[0], as_int32(scope, node, 1, inputs[1])
    whole, work = IndexArithmetic(scope), Arithmetic(scope)
    ints = Arithmetic(scope, DType.INT32)
    steps, batch, classes = whole.sizes(scores)
    if classes.data is None:
        reason = "the number of its classes is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    scores = transposed(scope, scores, (1, 0, 2))
    shape = (scores.shape or ())[:2]
    operands = [scores, whole.number(np.array(2))]
    best = scope.emit("ARG_MAX", operands, shape, DType.INT32, output_type="INT32")
    step = whole.range(steps)
    is_read = whole.less(step, whole.reshaped(lengths, (-1, 1)))
    blank = node.attr_int("blank_index", -1) % int(classes.data)
    is_dropped = ints.compare("EQUAL", best, blank)
    if node.attr_bool("merge_repeated", False):
        before = gather(scope, best, whole.maximum(whole.sub(step, 1), 0), 1)
        repeated = whole.both(ints.compare("EQUAL", best, before), whole.less(0, step))
        is_dropped = whole.either(is_dropped, repeated)
    is_token = scope.emit("LOGICAL_NOT", [is_dropped], shape, DType.BOOL)
    is_token = whole.both(is_read, is_token)
    positions = scope.emit("WHERE", [is_token], (-1, 2), DType.INT64)
    marks = work.cast(is_token, DType.INT32)
    operands = [marks, whole.number(np.array(1))]
    numbers = scope.emit("CUMSUM", operands, shape, exclusive=True, reverse=False)
    rows = [gather(scope, positions, whole.number(np.array(0)), 1)]
    for value in (numbers, best):
        tokens = scope.emit("GATHER_ND", [value, positions], (-1,))
        rows.append(work.cast(tokens, DType.INT64))
    indices = scope.emit("PACK", rows[:2], (-1, 2), values_count=2, axis=1)
    longest = whole.reshaped(ints.reduce("REDUCE_MAX", ints.reduce("SUM", marks, 1), 0), ())
    dense = work.cast(whole.joined([batch, longest]), DType.INT64)
    largest = work.reduce("REDUCE_MAX", scores, 2)
    if shape.count(-1) < 2:
        largest = reshaped(scope, largest, shape)
    else:
        largest = scope.emit("SQUEEZE", [largest], shape, squeeze_dims=(-1,))
    read = work.select(is_read, largest, 0.0)
    return indices, rows[2], dense, work.one("NEG", work.reduce("SUM", read, 1))


_PAIRS: Final = ((DType.STRING, DType.INT64), (DType.INT64, DType.STRING))


@lowering("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2")
def table(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit HASHTABLE with its entries as constants; nodes with the same name share it."""
    tables = [op for op in scope.ops if op.code == TABLE and op.node is not None]
    for op in tables:
        if op.node is not None and table_name(op.node) == table_name(node):
            return op.outputs[0]
    kinds = node.attr_dtype("key_dtype"), node.attr_dtype("value_dtype")
    if kinds not in _PAIRS:
        reason = (
            "LiteRT has tables from string to int64 and from int64 to string, "
            f"not from {kinds[0].short} to {kinds[1].short}"
        )
        raise CannotExpressError(reason, "look up in the app, and feed what its look-ups give")
    keys, values = scope.tables.contents(node)
    entries = [scope.constant(keys, "keys"), scope.constant(values, "values")]
    return scope.emit(
        TABLE,
        entries,
        (1,),
        DType.RESOURCE,
        table_id=len(tables),
        key_dtype=NAMES[kinds[0]],
        value_dtype=NAMES[kinds[1]],
    )


@lowering(*FINDS)
def find(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    handle, keys, default = inputs
    _check_handle(handle)
    if default.shape != ():
        reason = "the default for missing keys is not a scalar"
        raise CannotExpressError(reason, "make the default a scalar")
    return scope.emit("HASHTABLE_FIND", inputs, keys.shape, node.attr_dtype("Tout"))


@lowering(*SIZES)
def size(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit HASHTABLE_SIZE, and reshape LiteRT's vector result to a scalar."""
    _check_handle(inputs[0])
    return reshaped(scope, scope.emit("HASHTABLE_SIZE", inputs, (1,), DType.INT64), ())


def _check_handle(handle: Value) -> None:
    if handle.name or handle.dtype is not DType.RESOURCE:
        reason = "its table is an input"
        raise CannotExpressError(reason, "look up outside of loops and branches")


_MOST_BRANCHES: Final = 64


@lowering("While", "StatelessWhile")
def while_(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit WHILE with its condition and body as subgraphs."""
    turning = [
        Value(value.name, value.dtype, scope.output_shape(node, i))
        for i, value in enumerate(inputs)
    ]
    names = (node.attr_func("cond").name, node.attr_func("body").name)
    programs = [scope.function(name, turning) for name in names]
    outputs = [(value.shape, value.dtype) for value in turning]
    return scope.emit_running("WHILE", inputs, outputs, programs)


@lowering("If", "StatelessIf")
def if_(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit IF with its branches as subgraphs."""
    if not node.attr_dtypes("Tout"):
        message = "it gives nothing"
        raise CannotExpressError(message, "leave it out")
    names = (node.attr_func("then_branch").name, node.attr_func("else_branch").name)
    programs = [scope.function(name, inputs[1:]) for name in names]
    kinds = node.attr_dtypes("Tout")
    outputs = [(scope.output_shape(node, i), kind) for i, kind in enumerate(kinds)]
    return scope.emit_running("IF", inputs, outputs, programs)


@lowering("Case", "StatelessCase")
def case(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit nested IFs, one per branch except the last, which is the default."""
    branches = node.attribute("branches").value
    kinds = node.attr_dtypes("Tout")
    if not 0 < len(branches) <= _MOST_BRANCHES or not kinds:
        reason = f"it chooses among {len(branches)} branches"
        raise CannotExpressError(reason, f"give it at most {_MOST_BRANCHES}")
    programs = [_numbered(scope.function(func.name, inputs[1:])) for func in branches]
    rest = programs.pop()
    for place in reversed(range(1, len(programs))):
        rest = _chosen(place, programs[place], rest)
    outputs = [(scope.output_shape(node, i), kind) for i, kind in enumerate(kinds)]
    ways = (programs[0], rest) if programs else (rest, rest)
    number = scope.constant(np.array(0, np.int32), "number")
    first = scope.emit("EQUAL", [inputs[0], number], (), DType.BOOL)
    return scope.emit_running("IF", [first, *inputs], outputs, ways)


def _numbered(program: Program) -> Program:
    """Add the branch index as the first input of a branch."""
    port = Port("branch_number", Value("branch_number", DType.INT32, ()))
    return replace(program, inputs=(port, *program.inputs))


def _chosen(place: int, program: Program, rest: Program) -> Program:
    """Return a program that runs a branch if its index was chosen, else the rest."""
    parameters = tuple(Port(p.name, replace(p.value)) for p in program.inputs)
    results = tuple(
        Port(p.name, replace(p.value, name=f"{p.name}_chosen", data=None)) for p in program.outputs
    )
    is_this = Value("is_this", DType.BOOL, ())
    equal = builtin("EQUAL", [parameters[0].value, integers("number", place)], [is_this])
    inputs = (is_this, *(p.value for p in parameters))
    branch = builtin("IF", inputs, [p.value for p in results])
    ops = (equal, replace(branch, subgraphs=(program, rest)))
    return Program(parameters, results, ops, f"{program.name}_or_later")


_MOVED: Final = frozenset({DType.FLOAT, DType.INT32, DType.INT64, DType.BOOL, DType.INT8})
_COMPUTED: Final = frozenset({DType.FLOAT, DType.INT32, DType.INT64})


@lowering("TensorScatterUpdate")
def tensor_scatter_update(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit DYNAMIC_UPDATE_SLICE for one row, or SCATTER_ND and SELECT_V2 for several."""
    target, indices, rows = inputs
    if target.rank is None or indices.shape is None or indices.shape[-1:] != (1,):
        reason = "its indices are not a column of row numbers"
        raise CannotExpressError(reason, "give a tensor of known rank, and one index a row")
    indices = as_int32(scope, node, 1, indices)
    indices, rows = _last_rows(scope, node, indices, rows)
    if indices.shape == (1, 1):
        return _one_row(scope, node, (target, indices, rows))
    if target.dtype is DType.BOOL:
        whole = [cast(scope, value, DType.INT32) for value in (target, rows)]
        return cast(scope, _many_rows(scope, whole[0], indices, whole[1]), DType.BOOL)
    need([target], _COMPUTED)
    return _many_rows(scope, target, indices, rows)


def _many_rows(scope: Scope, target: Value, indices: Value, rows: Value) -> Value:
    """Replace rows of the target at computed indices."""
    work, sizes = Arithmetic(scope, target.dtype), sizes_of(scope, target)
    marks = work.add(scope.emit("ZEROS_LIKE", [rows], rows.shape), 1)
    placed, marked = (
        scope.emit("SCATTER_ND", [indices, values, sizes], target.shape, target.dtype)
        for values in (rows, marks)
    )
    return work.select(work.compare("GREATER", marked, 0), placed, target)


def _last_rows(scope: Scope, node: Node, indices: Value, rows: Value) -> tuple[Value, Value]:
    """Remove rows that later ones overwrite, if the indices are known."""
    constant = scope.known_value(node, 1)
    if constant is None:
        return indices, rows
    last = {int(place): number for number, place in enumerate(constant.reshape(-1))}
    if len(last) == constant.size or not last:
        return indices, rows
    shape = (len(last), 1)
    places = scope.integers_constant(np.reshape([*last], shape), "places")
    numbers = scope.integers_constant([*last.values()], "rows")
    rows_shape = None if rows.shape is None else (len(last), *rows.shape[1:])
    return places, scope.emit("GATHER", [rows, numbers], rows_shape, axis=0, batch_dims=0)


def _one_row(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    target, indices, rows = inputs
    need([target], _MOVED)
    rest = [0] * ((target.rank or 1) - 1)
    if indices.data is not None:
        start = scope.integers_constant([*indices.data.reshape(-1), *rest], "start")
    else:
        start = reshaped(scope, indices, (1,))
        if rest:
            others = scope.integers_constant(rest, "start")
            start = scope.emit("CONCATENATION", [start, others], (target.rank or 1,), axis=0)
    return scope.emit("DYNAMIC_UPDATE_SLICE", [target, rows, start], target.shape)
