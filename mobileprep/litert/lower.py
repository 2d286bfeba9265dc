"""A graph lowered to a program, node by node, inputs before consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import (
    ENTERS,
    EXITS,
    MERGES,
    NEXT_ITERATIONS,
    SWITCHES,
)
from mobileprep.ir.refs import Edge, Ref, edge
from mobileprep.ir.verify import execution_order
from mobileprep.litert.prepare import Prepared
from mobileprep.litert.program import Op, Port, Program, Value
from mobileprep.litert.refusals import (
    MALFORMED,
    CannotExpressError,
    Refusal,
    check_attributes,
    malformed,
    refused,
)
from mobileprep.litert.registry import find_lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import NAMES
from mobileprep.ops.shape_inference import infer_shapes

_CONTROL_FLOW: Final = frozenset(
    {
        *(*SWITCHES, *MERGES, *ENTERS, *EXITS, *NEXT_ITERATIONS, "LoopCond"),
        *("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"),
        *("TensorArrayV3", "TensorListReserve"),
    }
)
_NO_OP: Final = "cut the graph before it, and feed what it computes"


def lowered(
    source: Prepared, inputs: Sequence[str], outputs: Sequence[str], where: str = ""
) -> Program:
    """The program of a graph.

    Args:
        source: the graph.
        inputs: the names under which the inputs are known.
        outputs: the names under which the outputs are known.
        where: what the graph is called, for messages.

    Raises:
        UnsupportedError: naming every node that LiteRT cannot express.
        InvalidGraphError: the graph is malformed.
    """
    return _Lowering(source).program(inputs, outputs, where)


@dataclass
class _Lowering:
    """One pass over a graph."""

    source: Prepared
    values: dict[Edge, Value] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    names: dict[Value, str] = field(default_factory=dict)

    def program(self, inputs: Sequence[str], outputs: Sequence[str], where: str) -> Program:
        graph = self.source.graph
        self.scope = Scope(graph, infer_shapes(graph), frozenset(self.source.inputs))
        for node in execution_order(graph, where):
            self._node(node)
        if self.refusals:
            raise refused(self.refusals, where)
        ops = tuple(self._named(op) for op in self._renamed())
        ends = [
            self._port(name, ref) for name, ref in zip(outputs, self.source.outputs, strict=True)
        ]
        fed = [self._port(n, Ref(p)) for n, p in zip(inputs, self.source.inputs, strict=True)]
        return Program(tuple(fed), tuple(ends), ops)

    def _node(self, node: Node) -> None:
        made = self._given(node)
        if made is None:
            taken = [self.values.get(edge(r)) for r in node.data_inputs]
            inputs = [value for value in taken if value is not None]
            if len(inputs) < len(taken):
                return  # What it needs was refused: that one is named.
            made = self._lowered(node, inputs)
        for index, value in enumerate(made or ()):
            self.values[node.name, index] = value
            name = node.name if index == 0 else f"{node.name}:{index}"
            self.names.setdefault(value, name)

    def _given(self, node: Node) -> tuple[Value, ...] | None:
        """The value of a placeholder or a constant."""
        if node.op == "Placeholder":
            kind = node.attr_dtype("dtype")
            self._check_type(node, kind)
            return (Value(node.name, kind, node.attr_shape("shape")),)
        if node.op != "Const":
            return None
        tensor = node.attr_tensor("value")
        if tensor.dtype in NAMES and tensor.dtype is not DType.STRING:
            return (self.scope.constant(tensor.array(), node.name, tensor.dtype),)
        self._check_type(node, tensor.dtype)
        return ()

    def _check_type(self, node: Node, kind: DType) -> None:
        if kind not in NAMES or kind is DType.STRING:
            reason = f"LiteRT has no operators on {kind.short}"
            self._refuse(node, CannotExpressError(reason, "cut the graph behind it"))

    def _lowered(self, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
        function = find_lowering(node.op)
        if function is None:
            self._refuse(node, _unknown(node))
            return None
        try:
            check_attributes(node)
            outputs = function(self.scope, node, inputs)
        except CannotExpressError as refusal:
            self._refuse(node, refusal)
            return None
        except MALFORMED as error:
            raise malformed(node, error) from error
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def _refuse(self, node: Node, refusal: CannotExpressError) -> None:
        self.refusals.append(Refusal(node.name, node.op, refusal.reason, refusal.mend))

    def _renamed(self) -> tuple[Op, ...]:
        """Names for what lies inside of a lowered node: its operator's, with a number."""
        for number, op in enumerate(self.scope.ops):
            for value in op.outputs:
                self.names.setdefault(value, f"{op.code.lower()}_{number}")
        return tuple(self.scope.ops)

    def _named(self, op: Op) -> Op:
        inputs = tuple(None if v is None else self._final(v) for v in op.inputs)
        return replace(op, inputs=inputs, outputs=tuple(map(self._final, op.outputs)))

    def _final(self, value: Value) -> Value:
        if value.name:
            return value
        found = self._finals.get(value)
        if found is None:
            found = self._finals[value] = replace(value, name=self.names[value])
        return found

    def _port(self, name: str, ref: Ref) -> Port:
        value = self.values.get(edge(ref))
        if value is None:
            message = f"{name!r} puts nothing out"
            raise UsageError(message, "name a tensor")
        return Port(name, self._final(value))

    def __post_init__(self) -> None:
        self._finals: dict[Value, Value] = {}


def _unknown(node: Node) -> CannotExpressError:
    """Why an op has no lowering."""
    if node.op in _CONTROL_FLOW:
        return CannotExpressError("it is control flow, which is not converted", _NO_OP)
    if node.op.startswith("Decode"):
        reason = "LiteRT decodes no pictures, sounds or records"
        return CannotExpressError(reason, "decode in the app, and feed what this node puts out")
    return CannotExpressError("LiteRT has no such operator", _NO_OP)
