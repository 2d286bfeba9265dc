"""Lower a graph to a program, node by node in execution order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import (
    ENTERS,
    EXITS,
    MERGES,
    NEXT_ITERATIONS,
    SWITCHES,
)
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge
from mobileprep.graph.verify import execution_order
from mobileprep.litert.flex import as_flex
from mobileprep.litert.prepare import Prepared, prepared_function
from mobileprep.litert.program import Op, Port, Program, Value
from mobileprep.litert.refusals import (
    MALFORMED,
    CannotExpressError,
    Refusal,
    builtin_named,
    check_node,
    check_tables,
    check_texts,
    is_looked_up,
    malformed,
    refused,
)
from mobileprep.litert.scope import Scope, find_lowering
from mobileprep.litert.types import NAMES
from mobileprep.ops.shape_inference import infer_shapes

_CONTROL_FLOW: Final = frozenset(
    {*SWITCHES, *MERGES, *ENTERS, *EXITS, *NEXT_ITERATIONS, "LoopCond", "TensorArrayV3"}
)
_DEEPEST: Final = 64
_MOST_CALLS: Final = 10_000
_NO_OP: Final = "cut the graph before it, and feed its output"


def lowered(
    source: Prepared,
    inputs: Sequence[str],
    outputs: Sequence[str],
    where: str = "",
    *,
    flex: bool = False,
) -> Program:
    return _Lowering(source, flex).program(inputs, outputs, where)


@dataclass
class _Lowering:
    source: Prepared
    flex: bool = False
    refusals: list[Refusal] = field(default_factory=list)
    callers: tuple[str, ...] = ()
    called: list[str] = field(default_factory=list)
    values: dict[Edge, Value] = field(default_factory=dict)
    names: dict[Value, str] = field(default_factory=dict)

    def program(self, inputs: Sequence[str], outputs: Sequence[str], where: str) -> Program:
        self.run(where)
        if self.refusals:
            raise refused(self.refusals, where, self._of_unknown_rank(inputs))
        return self.finished(inputs, outputs, "main")

    def _of_unknown_rank(self, inputs: Sequence[str]) -> list[str]:
        """Return the names of non-string inputs of unknown rank."""
        names = []
        for name, fed in zip(inputs, self.source.inputs, strict=True):
            is_text = self.source.graph[fed].attr_dtype("dtype") is DType.STRING
            if not is_text and self.scope.shape_of(Ref(fed)) is None:
                names.append(name)
        return names

    def run(self, where: str) -> None:
        """Lower every supported node, and record the others."""
        graph = self.source.graph
        self.where = where
        fed = frozenset(self.source.inputs)
        tables = self.source.tables
        self.scope = Scope(graph, infer_shapes(graph, strict=True), fed, self._function, tables)
        for node in execution_order(graph, where):
            self._node(node)

    def finished(self, inputs: Sequence[str], outputs: Sequence[str], title: str) -> Program:
        """Return the program; call this after all nodes are lowered."""
        ops = tuple(self._named(op) for op in self._renamed())
        ends = [
            self._port(name, ref) for name, ref in zip(outputs, self.source.outputs, strict=True)
        ]
        fed = [self._port(n, Ref(p)) for n, p in zip(inputs, self.source.inputs, strict=True)]
        return Program(tuple(fed), tuple(ends), ops, title)

    def _function(self, name: str, arguments: Sequence[Value]) -> Program:
        """Return the program of a library function called with the given values."""
        source = prepared_function(self.source.graph, name, [(v.dtype, v.shape) for v in arguments])
        if len(self.callers) == _DEEPEST or name in self.callers:
            message = f"it runs {name!r}, which is in {len(self.callers)} functions"
            raise CannotExpressError(message, "leave recursion out")
        self.called.append(name)
        if len(self.called) > _MOST_CALLS:
            message = f"functions that call functions make more than {_MOST_CALLS:,} subgraphs"
            raise CannotExpressError(message, "simplify the model")
        before = len(self.refusals)
        inner = _Lowering(source, self.flex, self.refusals, (*self.callers, name), self.called)
        inner.run(self.where)
        if len(self.refusals) > before:
            raise _RefusedWithinError
        outputs = [f"output_{i}" for i in range(len(source.outputs))]
        return inner.finished(source.inputs, outputs, name)

    def _node(self, node: Node) -> None:
        outputs = self._constant_value(node)
        if outputs is None:
            operands = [self.values.get(edge(r)) for r in node.data_inputs]
            inputs = [value for value in operands if value is not None]
            if len(inputs) < len(operands):
                return  # The node of a missing input is reported instead.
            outputs = self._lowered(node, inputs)
        for index, value in enumerate(outputs or ()):
            self.values[node.name, index] = value
            name = node.name if index == 0 else f"{node.name}:{index}"
            self.names.setdefault(value, name)

    def _constant_value(self, node: Node) -> tuple[Value, ...] | None:
        """Return the value of a placeholder, a constant, or a number derived from known sizes."""
        if node.op == "Placeholder":
            kind = node.attr_dtype("dtype")
            self._check_type(node, kind)
            return (Value(node.name, kind, node.attr_shape("shape")),)
        if node.op != "Const":
            settled = self.scope.settled(node)
            return None if settled is None else (self.scope.constant(settled, node.name),)
        tensor = node.attr_tensor("value")
        if tensor.dtype in NAMES and (
            tensor.dtype is not DType.STRING or is_looked_up(self.source.graph, node)
        ):
            return (self.scope.constant(tensor.array(), node.name, tensor.dtype),)
        if self.flex and tensor.dtype is DType.STRING:
            return as_flex(self.scope, node, ())
        self._check_type(node, tensor.dtype)
        return ()

    def _check_type(self, node: Node, kind: DType) -> None:
        is_text = kind is DType.STRING and not is_looked_up(self.source.graph, node)
        if kind not in NAMES or (is_text and not self.flex):
            reason = f"LiteRT has no operators on {kind.short}"
            self._refuse(node, CannotExpressError(reason, "cut the graph behind it"))

    def _lowered(self, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
        emitted = len(self.scope.ops)
        try:
            check_node(node, self.where)
            function = find_lowering(node.op)
            if function is None:
                raise unconverted(node.op)
            check_tables(node, inputs)
            if not self.flex:
                check_texts(node, inputs)
            outputs = function(self.scope, node, inputs)
        except CannotExpressError as refusal:
            # Discard operators emitted before the error.
            del self.scope.ops[emitted:]
            flexible = as_flex(self.scope, node, inputs) if self.flex else None
            if flexible is None:
                self._refuse(node, refusal)
            return flexible
        except _RefusedWithinError:
            return None
        except MALFORMED as error:
            raise malformed(node, error) from error
        self.scope.ops[emitted:] = [replace(op, node=node) for op in self.scope.ops[emitted:]]
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def _refuse(self, node: Node, refusal: CannotExpressError) -> None:
        self.refusals.append(Refusal(node.name, node.op, refusal.reason, refusal.hint))

    def _renamed(self) -> tuple[Op, ...]:
        """Name the intermediate values of lowered nodes after their operator and its index."""
        fresh = FreshNames(node.name for node in self.source.graph)
        named = frozenset(self.names)
        for number, op in enumerate(self.scope.ops):
            for value in op.outputs:
                if value not in named:
                    self.names[value] = fresh.name(f"{op.code.lower()}_{number}")
            source = op.inputs[0] if op.code == "TRANSPOSE" else None
            if source is not None and source not in named and op.outputs[0] in named:
                # The input of the transposition has the same elements as the node's output.
                self._alike[source] = self.names[op.outputs[0]]
        return tuple(self.scope.ops)

    def _named(self, op: Op) -> Op:
        inputs = tuple(None if v is None else self._final(v) for v in op.inputs)
        return replace(op, inputs=inputs, outputs=tuple(map(self._final, op.outputs)))

    def _final(self, value: Value) -> Value:
        if value.name:
            return value
        final = self._finals.get(value)
        if final is None:
            named = replace(value, name=self.names[value], alike=self._alike.get(value, ""))
            final = self._finals[value] = named
        return final

    def _port(self, name: str, ref: Ref) -> Port:
        value = self.values.get(edge(ref))
        if value is None:
            message = f"{name!r} puts nothing out"
            raise UsageError(message, "name a tensor")
        if value in self.scope.halves:
            message = f"{name!r} is complex, and mobileprep does not convert complex outputs"
            raise UnsupportedError(message, "cut the graph at its magnitude", self.where)
        return Port(name, self._final(value))

    def __post_init__(self) -> None:
        self._finals: dict[Value, Value] = {}
        self._alike: dict[Value, str] = {}


class _RefusedWithinError(Exception):
    """Nodes of a function cannot be expressed; they are already recorded."""


def unconverted(op: str) -> CannotExpressError:
    """Return the error for an op without a lowering."""
    if op in _CONTROL_FLOW:
        return CannotExpressError("it is control flow, which is not converted", _NO_OP)
    if op.startswith("Decode"):
        reason = "LiteRT cannot decode images, audio, or records"
        return CannotExpressError(reason, "decode in the app, and feed what this node puts out")
    if op == "CTCBeamSearchDecoder":
        hint = "decode in the app (`decoding: cut` in a recipe), or fetch the logits before it"
        return CannotExpressError("LiteRT has no such operator", hint)
    builtin = builtin_named(op)
    if builtin is None:
        return CannotExpressError("LiteRT has no such operator", _NO_OP)
    reason = f"mobileprep does not convert it, although LiteRT has {builtin}"
    return CannotExpressError(reason, _NO_OP)
