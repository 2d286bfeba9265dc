"""Loops and conditionals that run functions, turned into Switch, Merge, Enter and their kin.

The forms are those of TensorFlow's own lowering (``lower_while_op.cc``, ``lower_if_op.cc``): a
loop variable enters, is merged with what the last turn gave, is switched by the condition, and
leaves through Exit; a branch gets its inputs through Switch, and Merge takes what came.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue, FuncRef
from mobileprep.ir.graph import Library
from mobileprep.ir.names import unique_name
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref, control
from mobileprep.ir.tensor import Tensor
from mobileprep.opdefs.bodies import Body, body_of
from mobileprep.runtime.functions.splice import LOOPS, free_prefix, splice

_CASES: Final = frozenset({"Case", "StatelessCase"})
_PARALLEL: Final = 10
_MOST_BRANCHES: Final = 64

Anchor = tuple[Ref, ...]


@dataclass(frozen=True)
class Outcome:
    """Where results come from, and which nodes have run when the work is done."""

    rets: tuple[Ref, ...]
    ends: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lowered:
    """A loop or a conditional in lowered form.

    Args:
        own: Switch, Merge and their kin.
        bodies: nodes of functions, each with the control inputs for whatever it stands for that
            would else wait for nothing.
        outcome: of the whole.
    """

    own: tuple[Node, ...]
    bodies: tuple[tuple[Node, Anchor], ...]
    outcome: Outcome


def lower(node: Node, library: Library, taken: Container[str]) -> Lowered:
    """A loop or a conditional without functions.

    Args:
        node: an op of ``trace.FUNCTIONAL``.
        library: has the functions that it runs.
        taken: names that new nodes must not have.

    Raises:
        InvalidGraphError: a function is missing, or does not fit the node.
        UnsupportedError: the condition is no number that could be true or false.
    """
    work = _Lowering(node, library, taken)
    if node.op in LOOPS:
        outcome = work.loop()
    elif node.op in _CASES:
        outcome = work.case()
    else:
        outcome = work.conditional()
    return Lowered(tuple(work.own.values()), tuple(work.bodies), outcome)


class _Lowering:
    def __init__(self, node: Node, library: Library, taken: Container[str]) -> None:
        self.own: dict[str, Node] = {}
        self.bodies: list[tuple[Node, Anchor]] = []
        self._node = node
        self._library = library
        self._taken = taken

    def loop(self) -> Outcome:
        node = self._node
        types = node.attr_dtypes("T")
        cond, body = self._body(node.attr_func("cond")), self._body(node.attr_func("body"))
        if not types or not len(types) == len(node.data_inputs) == len(body.rets):
            raise self._unfit()
        # What each turn hands on as it is enters once, and needs no way round.
        turning = [i for i, r in enumerate(body.rets) if _origin(body, r) != body.args[i]]
        turning = turning or [*range(len(types))]
        entered = [
            self._enter(ref, dtype, is_constant=i not in turning)
            for i, (ref, dtype) in enumerate(zip(node.data_inputs, types, strict=True))
        ]
        merged = list(entered)
        for i in turning:
            merged[i] = self._typed("Merge", types[i], entered[i], entered[i], N=attr.integer(2))
        test = self._put("cond", cond, merged, (control(merged[turning[0]].node),))
        truth = self._truth(test.rets[0], self._output_type(node.attr_func("cond")))
        goes_on = self._add("LoopCond", (truth,), {})
        switched = {i: self._typed("Switch", types[i], merged[i], goes_on) for i in turning}
        inside = list(merged)
        for i in turning:
            inside[i] = self._typed("Identity", types[i], Ref(switched[i].node, 1))
        turn = self._put("body", body, inside, (control(inside[turning[0]].node),))
        for i in turning:
            waits = map(control, turn.ends)
            back = self._typed("NextIteration", types[i], turn.rets[i], *waits)
            merge = self.own[merged[i].node]
            self.own[merge.name] = replace(merge, inputs=(entered[i], back))
        rets = list(node.data_inputs)
        for i in turning:
            rets[i] = self._typed("Exit", types[i], switched[i])
        return Outcome(tuple(rets), tuple(rets[i].node for i in turning))

    def conditional(self) -> Outcome:
        node = self._node
        if not node.data_inputs:
            raise self._unfit()
        truth = self._truth(node.inputs[0], node.attr_dtype("Tcond"))
        then, other = node.attr_func("then_branch"), node.attr_func("else_branch")
        return self._two_ways(
            truth,
            node.data_inputs[1:],
            lambda inputs, anchor: self._put("then", self._body(then), inputs, anchor),
            lambda inputs, anchor: self._put("else", self._body(other), inputs, anchor),
        )

    def case(self) -> Outcome:
        branches = self._node.attrs.get("branches")
        if branches is None or branches.kind != "list(func)" or not self._node.data_inputs:
            raise self._unfit()
        if len(branches.value) > _MOST_BRANCHES:
            message = f"node {self._node.name!r} chooses among {len(branches.value)} branches"
            raise UnsupportedError(message, f"at most {_MOST_BRANCHES} can be lowered")
        bodies = [self._body(func) for func in branches.value]
        index = self._node.inputs[0]
        return self._among(bodies, 0, self._node.data_inputs, (control(index.node),))

    def _among(
        self, bodies: Sequence[Body], first: int, inputs: Sequence[Ref], anchor: Anchor
    ) -> Outcome:
        """Run the branch whose number the first input is; the last one for all other numbers."""
        if first == len(bodies) - 1:
            return self._put(f"branch{first}", bodies[first], inputs[1:], anchor)
        number = constant(self._name("number"), Tensor.of(np.int32(first)), "", anchor)
        self.own[number.name] = number
        truth = self._typed("Equal", DType.INT32, inputs[0], Ref(number.name))
        return self._two_ways(
            truth,
            inputs,
            lambda given, pivot: self._put(f"branch{first}", bodies[first], given[1:], pivot),
            lambda given, pivot: self._among(bodies, first + 1, given, pivot),
        )

    def _two_ways(
        self,
        truth: Ref,
        inputs: Sequence[Ref],
        then: Callable[[Sequence[Ref], Anchor], Outcome],
        other: Callable[[Sequence[Ref], Anchor], Outcome],
    ) -> Outcome:
        node = self._node
        types = node.attr_dtypes("Tin")
        if len(inputs) == len(types) + 1:
            types = (DType.INT32, *types)
        if len(inputs) != len(types):
            raise self._unfit()
        waits = node.control_inputs
        pivot = self._typed("Switch", DType.BOOL, truth, truth, *waits)
        sides = [
            self._typed("Switch", dtype, ref, truth, *waits)
            for ref, dtype in zip(inputs, types, strict=True)
        ]
        outcomes = []
        for way, run in ((1, then), (0, other)):
            taken = self._typed("Identity", DType.BOOL, Ref(pivot.node, way))
            done = run([Ref(s.node, way) for s in sides], (control(taken.node),))
            over = self._typed("Identity", DType.BOOL, taken, *map(control, done.ends))
            outcomes.append((done, over))
        (yes, yes_over), (no, no_over) = outcomes
        gives = node.attr_dtypes("Tout")
        if not len(yes.rets) == len(no.rets) == len(gives):
            raise self._unfit()
        rets = tuple(
            self._typed("Merge", dtype, b, a, N=attr.integer(2))
            for a, b, dtype in zip(yes.rets, no.rets, gives, strict=True)
        )
        end = self._typed("Merge", DType.BOOL, no_over, yes_over, N=attr.integer(2))
        return Outcome(rets, (end.node,))

    def _put(self, what: str, body: Body, inputs: Sequence[Ref], anchor: Anchor) -> Outcome:
        prefix = free_prefix(f"{self._node.name}/{what}", body, self._taken)
        done = splice(prefix, self._node.device, body, tuple(inputs), anchor)
        self.bodies += [(inner, anchor) for inner in done.nodes]
        return Outcome(done.rets, done.ends)

    def _truth(self, ref: Ref, dtype: DType) -> Ref:
        if dtype is DType.BOOL:
            return ref
        if dtype.numpy is None:
            message = f"the condition of {self._node.name!r} ({self._node.op}) is {dtype.short}"
            raise UnsupportedError(message, "make it a bool, or keep control flow as functions")
        types = {"SrcT": attr.dtype(dtype), "DstT": attr.dtype(DType.BOOL)}
        return self._add("Cast", (ref,), types)

    def _enter(self, ref: Ref, dtype: DType, *, is_constant: bool) -> Ref:
        node = self._node
        return self._typed(
            "Enter",
            dtype,
            ref,
            *node.control_inputs,
            frame_name=attr.string(node.name),
            is_constant=attr.boolean(is_constant),
            parallel_iterations=attr.integer(node.attr_int("parallel_iterations", _PARALLEL)),
        )

    def _typed(self, op: str, dtype: DType, *inputs: Ref, **attrs: AttrValue) -> Ref:
        return self._add(op, inputs, {"T": attr.dtype(dtype), **attrs})

    def _add(self, op: str, inputs: tuple[Ref, ...], attrs: dict[str, AttrValue]) -> Ref:
        name = self._name(op)
        self.own[name] = Node(name, op, inputs, self._node.device, attrs)
        return Ref(name)

    def _name(self, what: str) -> str:
        """A free name; the second of a kind ends in "_1", as TensorFlow numbers them."""
        return unique_name(f"{self._node.name}/{what}", self.own, self._taken)

    def _body(self, func: FuncRef) -> Body:
        function = self._library.functions.get(func.name)
        if function is None:
            message = f"node {self._node.name!r} runs {func.name!r}, which is not there"
            raise InvalidGraphError(message, "export the model again")
        return body_of(function, self._library, func.attrs)

    def _output_type(self, func: FuncRef) -> DType:
        return self._library.functions[func.name].signature.outputs[0].dtype

    def _unfit(self) -> InvalidGraphError:
        message = f"the functions of {self._node.name!r} ({self._node.op}) do not fit it"
        return InvalidGraphError(message, "export the model again")


def _origin(body: Body, ref: Ref) -> Ref:
    """Where a tensor of a body comes from, identities passed over."""
    nodes = {n.name: n for n in body.nodes}
    for _ in nodes:
        node = nodes.get(ref.node)
        if node is None or node.op != "Identity" or len(node.inputs) != 1:
            break
        ref = node.inputs[0]
    return ref
