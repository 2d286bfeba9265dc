"""A random case: a graph with inputs, outputs, and values for the inputs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import Mode
from tests.fuzz.differential.items import Body, Choice, Loop, graph_of
from tests.fuzz.differential.nodes import BODY_NODES, FLOAT_NODES, INTEGER_NODES, Added
from tests.fuzz.differential.writer import Names, Tensor, Writer

FLOAT, BOOL = DType.FLOAT, DType.BOOL


class Case(Struct, frozen=True):
    """A graph to convert.

    Args:
        graph: the graph.
        feeds: a value for each input.
        outputs: names of tensors.
        mode: the mode of conversion.
    """

    graph: Graph
    feeds: Mapping[str, Array]
    outputs: tuple[str, ...]
    mode: Mode = "float"


def case_of(mode: Mode, seed: int, number: int) -> Case:
    """The case of a seed and a number, always the same."""
    rng = random.Random(f"{mode} {seed} {number}")
    w = Writer(rng, Names(), "float" if mode == "float" else mode)
    w.open_sizes = mode == "float" and rng.random() < 0.15
    for _ in range(rng.choice([1, 1, 2, 3])):
        w.placeholder(w.numbers(w.shape()))
    table = FLOAT_NODES if mode == "float" else INTEGER_NODES
    size = rng.choice([1, 2, 3, 4, 5, 6, 8, 10, 14])
    flow = 0.12 if mode == "float" else 0.04
    for _ in range(4 * size):
        if len(w.items) - len(w.feeds) >= 1.5 * size:
            break
        if rng.random() < flow:
            control(w)
        else:
            grow(w, table)
    read = {str(ref) for item in w.items for ref in getattr(item, "inputs", ())}
    ends = [t for t in w.tensors if t.ref not in read and t.ref not in w.feeds]
    outputs = ends if len(ends) <= 5 else rng.sample(ends, 5)
    if rng.random() < 0.3 or not outputs:
        outputs = [*outputs, rng.choice(w.tensors)]
    if rng.random() < 0.05:
        outputs.append(rng.choice(outputs))
    graph, names = graph_of(w.items, [t.ref for t in outputs])
    return Case(graph, w.feeds, tuple(dict.fromkeys(names)), mode)


def grow(w: Writer, table: Mapping[Callable[[Writer], Added], int]) -> Added:
    """Try to add a node of a random family."""
    family = w.rng.choices(list(table), list(table.values()))[0]
    # Some families cannot draw from tensors without elements.
    with contextlib.suppress(ValueError, IndexError):
        return family(w)
    return None


def control(w: Writer) -> Added:
    """Add a loop or a conditional, which may contain others."""
    if w.depth > 2:
        return None
    return loop(w) if w.rng.random() < 0.6 else choice(w)


def loop(w: Writer) -> Added:
    """A loop that swaps, passes on, or computes its variables."""
    count = w.rng.choice([1, 2, 2, 3, 3, 4])
    first = w.source(w.shape(0, 3)) if w.depth else w.floats(0, 4)
    begins = [first]
    for _ in range(count - 1):
        draw = w.rng.random()
        if draw < 0.75:
            begins.append(w.source(first.shape))
        else:
            begins.append(w.of((FLOAT, DType.INT32, BOOL), 0, 3))
    captured = [
        w.of((FLOAT, FLOAT, DType.INT32), 0, 4) for _ in range(w.rng.choice([0, 0, 1, 1, 2]))
    ]
    turns = w.rng.choice([0, 1, 2, 2, 3, 3, 4, 5])
    name = w.names.next("loop")
    is_functional = w.is_function or w.rng.random() < 0.5
    operands = [*begins, *captured]

    def results(inner: Writer, args: Sequence[Tensor]) -> list[Tensor]:
        grow_some(inner)
        return [_next(inner, args, i) for i in range(count)]

    body = body_of(w, f"{name}_a", operands, results, is_functional=is_functional)
    condition = None
    if w.rng.random() < 0.2:
        condition = body_of(w, f"{name}_a", operands, _condition, is_functional=is_functional)
    item = Loop(name, tuple(t.ref for t in operands), turns, body, condition, is_functional)
    return w.add_item(item, operands, [f"{name}.{i}" for i in range(count)])


def _next(w: Writer, args: Sequence[Tensor], index: int) -> Tensor:
    """The next value of a variable: another variable, a captured tensor, or a computed one."""
    like = args[index]
    alike = [t for t in args if t.shape == like.shape and t.dtype is like.dtype]
    computed = [
        t for t in w.tensors if t not in args and t.shape == like.shape and t.dtype is like.dtype
    ]
    draw = w.rng.random()
    if computed and draw < 0.5:
        return w.rng.choice(computed)
    if draw < 0.92 or like.dtype is not FLOAT:
        return w.rng.choice(alike)
    return w.constant(w.numbers(like.shape))


def _condition(w: Writer, args: Sequence[Tensor]) -> list[Tensor]:
    x = w.rng.choice([t for t in args if t.dtype is FLOAT] or list(args))
    if x.dtype is not FLOAT:
        return [w.constant(np.bool_(True))]
    axes = w.constant(np.arange(x.rank, dtype=np.int32))
    most = w.one("Max", x, axes, keep_dims=False) if x.rank else x
    limit = w.constant(np.float32(w.rng.choice([1.0625, 4.0625, 20.0625])))
    result = w.one("Less", most, limit) if most is not None else None
    return [result or w.constant(np.bool_(True))]


def choice(w: Writer) -> Added:
    """A conditional; a branch may return its arguments."""
    operands = [w.of((FLOAT, FLOAT, FLOAT, DType.INT32), 0, 4) for _ in range(w.rng.randint(1, 3))]
    if w.rng.random() < 0.5:
        operands.append(w.source(operands[0].shape, operands[0].dtype))
    predicate = w.pick(lambda t: t.dtype is BOOL and t.rank == 0)
    if predicate is None:
        value = np.bool_(w.rng.random() < 0.5)
        predicate = w.constant(np.asarray(value)) if w.depth else w.placeholder(np.asarray(value))
    name = w.names.next("if")
    is_functional = w.is_function or w.rng.random() < 0.5
    likes: list[Tensor] = [w.rng.choice(operands) for _ in range(w.rng.randint(1, 3))]

    def results(inner: Writer, args: Sequence[Tensor]) -> list[Tensor]:
        grow_some(inner)
        places = [operands.index(t) for t in likes]
        return [_next(inner, args, i) for i in places]

    bodies = [
        body_of(w, f"{name}_{side}", operands, results, is_functional=is_functional)
        for side in ("n", "y")
    ]
    inputs = (predicate.ref, *(t.ref for t in operands))
    item = Choice(name, inputs, bodies[0], bodies[1], is_functional)
    outputs = [f"{name}.{i}" for i in range(len(likes))]
    return w.add_item(item, [predicate, *operands], outputs)


def grow_some(w: Writer) -> None:
    for _ in range(w.rng.choice([0, 1, 2, 3, 5])):
        if w.rng.random() < 0.12:
            control(w)
        else:
            grow(w, BODY_NODES)


def body_of(
    w: Writer,
    prefix: str,
    operands: Sequence[Tensor],
    build: Callable[[Writer, Sequence[Tensor]], list[Tensor]],
    *,
    is_functional: bool,
) -> Body:
    """A body with some tensors as arguments."""
    args = [Tensor(f"{prefix}{i}", t.value) for i, t in enumerate(operands)]
    kind = w.kind
    inner = Writer(w.rng, w.names, kind, w.depth + 1, is_functional, [], list(args))
    results = build(inner, args)
    return Body(
        tuple(t.ref for t in args),
        tuple(t.dtype for t in args),
        tuple(inner.items),
        tuple(t.ref for t in results),
        tuple(t.dtype for t in results),
    )
