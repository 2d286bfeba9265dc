"""Parts of a random graph, and their nodes in the main graph, functions, and frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import any_op_def
from mobileprep.graph.refs import parse_function_ref, parse_ref
from tests.litert.graphs import const, op


class Body(Struct, frozen=True):
    """A branch, a loop body, or a condition: it reads only its arguments.

    Args:
        args: names of the arguments.
        types: dtypes of the arguments.
        items: parts in execution order.
        results: references to tensors.
        result_types: dtypes of the results.
    """

    args: tuple[str, ...]
    types: tuple[DType, ...]
    items: tuple[Item, ...]
    results: tuple[str, ...]
    result_types: tuple[DType, ...]


class Choice(Struct, frozen=True):
    """A conditional, as an If or by Switch and Merge; output i is ``NAME.i``.

    Args:
        name: a unique name.
        inputs: the predicate, then the operands of both branches.
        other, then: the branches.
        is_functional: whether it becomes an If.
    """

    name: str
    inputs: tuple[str, ...]
    other: Body
    then: Body
    is_functional: bool


class Loop(Struct, frozen=True):
    """A loop with a counter, as a While or in a frame; output i is ``NAME.i``.

    Args:
        name: a unique name.
        inputs: initial values of the variables, then captured tensors.
        turns: largest number of iterations.
        body: takes variables and captured tensors, returns the variables.
        condition: takes the same; None for a loop that only counts.
        is_functional: whether it becomes a While.
    """

    name: str
    inputs: tuple[str, ...]
    turns: int
    body: Body
    condition: Body | None
    is_functional: bool


Item = Node | Choice | Loop
_INT, _BOOL = DType.INT32, DType.BOOL
_PRODUCER = 1482
"""Of TensorFlow 2.x: older graphs have unknown shapes where newer ones have scalars."""


def graph_of(items: Sequence[Item], outputs: Sequence[str]) -> tuple[Graph, list[str]]:
    """The graph of some parts, and the names of some tensors in it."""
    emission = _Emission()
    names: dict[str, str] = {}
    nodes = list(emission.emit(items, names, "", within=False))
    graph = Graph(nodes, Library(emission.functions), Versions(producer=_PRODUCER))
    return graph, [names.get(ref, ref) for ref in outputs]


@dataclass
class _Emission:
    """Builds nodes and functions."""

    functions: dict[str, Function] = field(default_factory=dict)

    def emit(
        self, items: Sequence[Item], names: dict[str, str], after: str, *, within: bool
    ) -> Iterator[Node]:
        """Nodes in the main graph or a frame, or in a function.

        Args:
            items: the parts.
            names: names of tensors, to which results are added.
            after: a control input for constants in frames and branches.
            within: whether this is a function.
        """
        for item in items:
            if isinstance(item, Node):
                yield self._node(item, names, after, within=within)
            elif isinstance(item, Choice):
                if within or item.is_functional:
                    yield self._if(item, names, within=within)
                else:
                    yield from self._switched(item, names)
            elif within or item.is_functional:
                yield from self._while(item, names, after, within=within)
            else:
                yield from self._framed(item, names, after)

    def _node(self, node: Node, names: dict[str, str], after: str, *, within: bool) -> Node:
        parse = parse_function_ref if within else parse_ref
        inputs = [parse(names.get(str(ref), str(ref))) for ref in node.inputs]
        if node.op == "Const" and after:
            inputs = [parse_ref(after)]
        if within:
            for index, ref in enumerate(function_refs(node)):
                names[node.name if index == 0 else f"{node.name}:{index}"] = ref
        return replace(node, inputs=tuple(inputs))

    def _function(self, name: str, body: Body) -> str:
        names = {arg: arg for arg in body.args}
        nodes = tuple(self.emit(body.items, names, "", within=True))
        args = tuple(ArgDef(a, t) for a, t in zip(body.args, body.types, strict=True))
        results = tuple(ArgDef(f"r{i}", t) for i, t in enumerate(body.result_types))
        ret = {f"r{i}": parse_function_ref(names[r]) for i, r in enumerate(body.results)}
        self.functions[name] = Function(OpDef(name, args, results), nodes, ret)
        return name

    def _if(self, item: Choice, names: dict[str, str], *, within: bool) -> Node:
        attrs = {
            "Tcond": AttrValue("type", _BOOL),
            "Tin": AttrValue("list(type)", item.then.types),
            "Tout": AttrValue("list(type)", item.then.result_types),
            "then_branch": _func(self._function(f"{item.name}_then", item.then)),
            "else_branch": _func(self._function(f"{item.name}_else", item.other)),
        }
        parse = parse_function_ref if within else parse_ref
        inputs = tuple(parse(names.get(ref, ref)) for ref in item.inputs)
        _add_outputs(names, item.name, range(len(item.then.results)), within=within)
        return Node(item.name, "If", inputs, "", attrs)

    def _while(
        self, item: Loop, names: dict[str, str], after: str, *, within: bool
    ) -> Iterator[Node]:
        body = item.body
        types = (_INT, *body.types)
        count = f"{item.name}_i"
        one, more = f"{item.name}_one", f"{item.name}_more"
        step = [const(one, 1), op(more, "AddV2", [count, one], T=_INT)]
        captured = body.args[len(body.results) :]
        turned = Body(
            (count, *body.args),
            types,
            (*step, *body.items),
            (more, *body.results, *captured),
            types,
        )
        most, on = f"{item.name}_most", f"{item.name}_on"
        items: list[Item] = [const(most, item.turns), op(on, "Less", [count, most], T=_INT)]
        if item.condition is not None:
            also = f"{item.name}_also"
            items += item.condition.items
            items.append(op(also, "LogicalAnd", [on, item.condition.results[0]]))
            on = also
        condition = Body((count, *body.args), types, tuple(items), (on,), (_BOOL,))
        start = const(f"{item.name}_zero", 0)
        yield self._node(start, names, after, within=within)
        attrs = {
            "T": AttrValue("list(type)", types),
            "body": _func(self._function(f"{item.name}_body", turned)),
            "cond": _func(self._function(f"{item.name}_cond", condition)),
        }
        parse = parse_function_ref if within else parse_ref
        inputs = tuple(parse(names.get(ref, ref)) for ref in (start.name, *item.inputs))
        _add_outputs(names, item.name, range(1, len(body.results) + 1), within=within)
        yield Node(item.name, "While", inputs, "", attrs)

    def _switched(self, item: Choice, names: dict[str, str]) -> Iterator[Node]:
        p, inputs = item.name, [names.get(ref, ref) for ref in item.inputs]
        yield op(f"{p}/pred", "Switch", [inputs[0], inputs[0]], T=_BOOL)
        yield op(f"{p}/no", "Identity", [f"{p}/pred"], T=_BOOL)
        yield op(f"{p}/yes", "Identity", [f"{p}/pred:1"], T=_BOOL)
        for i, (ref, kind) in enumerate(zip(inputs[1:], item.then.types, strict=True)):
            yield op(f"{p}/in{i}", "Switch", [ref, inputs[0]], T=kind)
        results = []
        for side, (body, pivot) in enumerate(((item.other, "no"), (item.then, "yes"))):
            inner = {arg: f"{p}/in{i}:{side}" for i, arg in enumerate(body.args)}
            yield from self.emit(body.items, inner, f"^{p}/{pivot}", within=False)
            results.append([inner.get(ref, ref) for ref in body.results])
        for i, (no, yes) in enumerate(zip(*results, strict=True)):
            kind = item.then.result_types[i]
            yield op(f"{p}/out{i}", "Merge", [no, yes], T=kind, N=2)
            names[f"{p}.{i}"] = f"{p}/out{i}"

    def _framed(self, item: Loop, names: dict[str, str], after: str) -> Iterator[Node]:
        p, body = item.name, item.body
        waits = [after] if after else []

        def enter(name: str, ref: str, kind: DType, *, is_constant: bool) -> Node:
            attrs = {"T": kind, "frame_name": p, "is_constant": is_constant}
            return op(name, "Enter", [ref], parallel_iterations=10, **attrs)

        for name, number in (("zero", 0), ("turns", item.turns)):
            yield replace(const(f"{p}/{name}", number), inputs=tuple(map(parse_ref, waits)))
        yield enter(f"{p}/begin", f"{p}/zero", _INT, is_constant=False)
        yield enter(f"{p}/most", f"{p}/turns", _INT, is_constant=True)
        yield op(f"{p}/head", "Merge", [f"{p}/begin", f"{p}/back"], T=_INT, N=2)
        yield op(f"{p}/less", "Less", [f"{p}/head", f"{p}/most"], T=_INT)
        heads, inner = {}, {}
        count = len(body.results)
        for i, (arg, ref) in enumerate(zip(body.args, item.inputs, strict=True)):
            kind = body.types[i]
            entered = enter(f"{p}/enter{i}", names.get(ref, ref), kind, is_constant=i >= count)
            yield entered
            heads[arg] = entered.name
            inner[arg] = entered.name
            if i < count:
                yield op(f"{p}/head{i}", "Merge", [entered.name, f"{p}/back{i}"], T=kind, N=2)
                heads[arg] = f"{p}/head{i}"
                inner[arg] = f"{p}/now{i}"
        on = f"{p}/less"
        if item.condition is not None:
            yield from self.emit(item.condition.items, heads, f"^{p}/head", within=False)
            result = item.condition.results[0]
            yield op(f"{p}/also", "LogicalAnd", [on, heads.get(result, result)])
            on = f"{p}/also"
        yield op(f"{p}/on", "LoopCond", [on])
        yield op(f"{p}/gate", "Switch", [f"{p}/head", f"{p}/on"], T=_INT)
        yield op(f"{p}/count", "Identity", [f"{p}/gate:1"], T=_INT)
        yield replace(const(f"{p}/one", 1), inputs=(parse_ref(f"^{p}/count"),))
        yield op(f"{p}/next", "Add", [f"{p}/count", f"{p}/one"], T=_INT)
        yield op(f"{p}/back", "NextIteration", [f"{p}/next"], T=_INT)
        for i in range(count):
            kind = body.types[i]
            yield op(f"{p}/gate{i}", "Switch", [f"{p}/head{i}", f"{p}/on"], T=kind)
            yield op(f"{p}/now{i}", "Identity", [f"{p}/gate{i}:1"], T=kind)
        yield from self.emit(body.items, inner, f"^{p}/count", within=False)
        for i, ref in enumerate(body.results):
            kind = body.types[i]
            result = inner.get(ref, ref)
            if ref in body.args[count:]:
                # Without this dependency TensorFlow never stops to pass on the captured tensor.
                result = f"{p}/kept{i}"
                yield op(result, "Identity", [inner[ref], f"^{p}/count"], T=kind)
            yield op(f"{p}/back{i}", "NextIteration", [result], T=kind)
            yield op(f"{p}/out{i}", "Exit", [f"{p}/gate{i}"], T=kind)
            names[f"{p}.{i}"] = f"{p}/out{i}"


def function_refs(node: Node) -> list[str]:
    """References to the outputs of a node in a function body."""
    definition = any_op_def(node.op)
    assert definition is not None
    refs = []
    for arg in definition.outputs:
        count = node.attr_int(arg.number_attr) if arg.number_attr else 1
        refs += [f"{node.name}:{arg.name}:{i}" for i in range(count)]
    return refs


def typed(kind: str, types: Sequence[DType], attrs: Mapping[str, object]) -> dict[str, object]:
    """Attributes with the dtypes and counts that follow from the inputs of a node."""
    definition = any_op_def(kind)
    assert definition is not None, kind
    types_and_counts: dict[str, object] = {}
    rest = list(types)
    for arg in definition.inputs:
        count = len(types) - len(definition.inputs) + 1 if arg.number_attr else 1
        if arg.number_attr:
            types_and_counts[arg.number_attr] = count
        if arg.type_attr:
            types_and_counts[arg.type_attr] = rest[0]
        rest = rest[count:]
    return {**types_and_counts, **attrs}


def _add_outputs(names: dict[str, str], name: str, places: range, *, within: bool) -> None:
    for i, place in enumerate(places):
        names[f"{name}.{i}"] = (
            f"{name}:output:{place}" if within else str(parse_ref(f"{name}:{place}"))
        )


def _func(name: str) -> AttrValue:
    return AttrValue("func", FuncRef(name))


def dtype_of(array: np.ndarray) -> DType:
    """The dtype of an array."""
    from mobileprep.formats.dtypes import dtype_from_numpy

    dtype = dtype_from_numpy(array.dtype)
    assert dtype is not None
    return dtype
