"""The actions of a graph, or of one iteration of a loop, with its branches resolved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import memory_limit, working
from mobileprep.errors import InvalidGraphError, RunLimitError
from mobileprep.graph.dropout import DROPS
from mobileprep.graph.frames import Branches, Frame
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from mobileprep.graph.opdefs.definitions import check_input_count
from mobileprep.graph.refs import CONTROL, Edge, Ref, edge
from mobileprep.ops.constant_evaluation import constant_array
from mobileprep.ops.kernel import RunContext, find_context_kernel, find_kernel
from mobileprep.ops.numerics.allocation import at_most
from mobileprep.runtime.executor import (
    DEAD,
    Action,
    Constants,
    ExecutionPlan,
    Values,
    constant_action,
    context_action,
    data_edges,
    guarded,
    kernel_action,
    merge_action,
    output_edges,
    perform,
    placed,
    run_plan,
    switch_action,
    watches,
    with_watches,
)
from mobileprep.runtime.selection import Survey, malformed_head, ordered_units, unit_inputs

NOWHERE: Final[Edge] = ("", 0)
"""Placeholder for a tensor that is never computed."""


_STRUCTURE: Final = ENTERS | EXITS | NEXT_ITERATIONS


class Region:
    """The actions of one frame.

    Args:
        survey: facts about all nodes.
        frame: the frame.
        outer: constants of the enclosing frames.

    Attributes:
        actions: the actions, in order.
        constants: tensors with values that are known before the run.
        branches: the conditions under which nodes run.
        lacking: nodes that may have to run, but have no kernel.
    """

    def __init__(self, survey: Survey, frame: Frame, outer: Mapping[Edge, Any]) -> None:
        self.survey = survey
        self.frame = frame
        self.constants: dict[Edge, Any] = {**outer, NOWHERE: DEAD}
        self.actions: list[Action] = []
        self.lacking: list[Node] = []
        units = ordered_units(frame, survey.frames, survey.where)
        self._add_constants()
        self.branches = Branches(_constant_pred(self.constants))
        if frame.parent is None:
            self._refuse_heads()
        for unit in units:
            if isinstance(unit, Frame):
                exits = [n.name for n in unit.of_op(EXITS)]
                self.branches.add_unit(exits, self._loop_inputs(unit))
            elif unit.op not in _STRUCTURE and not survey.is_head(unit):
                self.branches.add(unit)
        for unit in units:
            if isinstance(unit, Frame):
                self._add_loop(unit)
            else:
                self._add_node(unit)
        self.actions = with_watches(self.actions, survey.watched)

    def tensor(self, ref: Ref) -> Edge:
        """Return the tensor of a reference, or ``NOWHERE`` if it is never computed."""
        return NOWHERE if self.branches.never(ref) else edge(ref)

    def _refuse_heads(self) -> None:
        """Raise an error for a loop head outside of loops."""
        for node in self.frame.nodes:
            if self.survey.is_head(node):
                raise malformed_head(node, self.survey.where)

    def _loop_inputs(self, loop: Frame) -> list[Ref]:
        """Return the inputs of a loop that come from this frame."""
        frames = self.survey.frames
        refs = unit_inputs(loop, self.survey.nodes)
        return [r for r in refs if frames.of_output(r.node) is self.frame]

    def _add_constants(self) -> None:
        for node in self.frame.nodes:
            tensor = (node.name, 0)
            if node.op == "Const" and tensor not in self.survey.fed:
                self.constants[tensor] = constant_array(node.attr_tensor("value"))
            elif node.op in ENTERS and node.attr_bool("is_constant", False) and node.data_inputs:
                held = self.constants.get(edge(node.data_inputs[0]))
                if held is not None:
                    self.constants[tensor] = held

    def _add_node(self, node: Node) -> None:
        if node.op in _STRUCTURE or self.survey.is_head(node):
            return
        if self.branches.never(Ref(node.name, CONTROL)):
            self.constants.pop((node.name, 0), None)
        elif node.op == "Const":
            self._add_constant(node)
        elif node.op in MERGES:
            self._add_merge(node)
        else:
            action = self._plain(node)
            if action is None:
                self.lacking.append(node)
            else:
                self.actions.append(self._guarded(node, action))

    def _plain(self, node: Node) -> Action | None:
        """Return the action of a node whose inputs are all computed, or None without a kernel."""
        if node.op in SWITCHES:
            return self._switch(node)
        if DROPS not in node.attrs:
            check_input_count(node, self.survey.where)
        indices = self.survey.indices.get(node.name, ())
        run = find_kernel(node.op)
        if run is not None:
            return kernel_action(node, run, indices)
        with_context = find_context_kernel(node.op)
        return None if with_context is None else context_action(node, with_context, indices)

    def _switch(self, node: Node) -> Action:
        index = self.branches.taken(node)
        if index is None:
            return switch_action(node, data_edges(node))

        def run(context: RunContext, inputs: Values) -> Values:
            return inputs

        return Action(node, run, data_edges(node)[:1], ((0, (node.name, index)),), (node,))

    def _guarded(self, node: Node, action: Action) -> Action:
        if not self.branches.of_node(node.name):
            return action
        is_control = node.name in self.survey.controls
        return guarded(action, self._controls(node.control_inputs), is_control=is_control)

    def _controls(self, refs: tuple[Ref, ...]) -> list[Edge]:
        """Return the control inputs that may not run; for an Exit, its tensor."""
        names = dict.fromkeys(r.node for r in refs if self.branches.of_node(r.node))
        nodes = self.survey.nodes
        return [(name, 0 if nodes[name].op in EXITS else CONTROL) for name in names]

    def _add_constant(self, node: Node) -> None:
        if not self.branches.of_node(node.name) or self._is_harmless(node):
            return
        value = self.constants.pop((node.name, 0), None)
        if value is not None:
            controls = self._controls(node.control_inputs)
            self.actions.append(constant_action(node, value, controls))

    def _is_harmless(self, node: Node) -> bool:
        """Return whether a conditional constant can be treated as unconditional.

        It can if its consumers do not run without the condition either.
        """
        if node.name in self.survey.controls:
            return False
        conditions = self.branches.of_node(node.name)
        for reader in self.survey.readers.get(node.name, ()):
            if reader.op in MERGES or self.survey.frames.of_node[reader.name] is not self.frame:
                return False
            # Skip constants, including this one and other unconditional ones.
            others = (self.branches.of(r) for r in reader.inputs if edge(r) not in self.constants)
            if not conditions <= frozenset().union(*others):
                return False
        return True

    def _add_merge(self, node: Node) -> None:
        refs = [(i, r) for i, r in enumerate(node.data_inputs) if not self.branches.never(r)]
        inputs = tuple(edge(r) for _, r in refs)
        if len(refs) > 1:
            self.actions.append(merge_action(node, inputs, [i for i, _ in refs]))
            return
        place = np.asarray(refs[0][0], dtype=np.int32)

        def run(context: RunContext, inputs: Values) -> Values:
            return inputs[0], place

        action = Action(node, run, inputs, output_edges(node, [0, 1]), (node,))
        self.actions.append(self._guarded(node, action))

    def _add_loop(self, loop: Frame) -> None:
        inner = Region(self.survey, loop, self.constants)
        self.lacking += inner.lacking
        exits = loop.of_op(EXITS)
        if not exits or self.branches.never(Ref(exits[0].name, CONTROL)):
            return
        from mobileprep.runtime.regions import plan_loop

        action = plan_loop(inner, self.tensor)
        controls = tuple(r for r in self._loop_inputs(loop) if r.is_control)
        if self.branches.of_node(exits[0].name):
            action = guarded(action, self._controls(controls), is_control=False)
        self.actions.append(action)


def _constant_pred(constants: Constants) -> Callable[[Edge], bool | None]:
    """Return a function that looks up predicates among constants."""

    def pred(tensor: Edge) -> bool | None:
        value = constants.get(tensor)
        return bool(value) if isinstance(value, np.ndarray) and value.size == 1 else None

    return pred


class Head(Struct, frozen=True):
    """A Merge at the head of a loop.

    Args:
        first: index of its tensor in the first iteration, among the entering ones.
        later: index of its tensor in later iterations, among the carried ones.
        places: its input slots for these two.
    """

    first: int
    later: int
    places: tuple[int, int]


class Loop(Struct, frozen=True):
    """A while loop, run iteration by iteration.

    Its inputs are the entering tensors, followed by the other tensors from outside. It returns the
    exits, and ends after the iteration in which the condition is false or dead.

    Args:
        plan: one iteration. Its feeds are, in this order: the entering tensors, value and index for
            each head, and the other tensors from outside. Its fetches are the condition, the
            tensors for the next iteration, and the exits.
        constant: whether each entering tensor is available in every iteration.
        heads: the merges at the head.
        exits: number of tensors that leave the loop.
        name: name of the LoopCond node.
        where: the graph's name, for messages.
    """

    plan: ExecutionPlan
    constant: tuple[bool, ...]
    heads: tuple[Head, ...]
    exits: int
    name: str
    where: str

    def __call__(self, context: RunContext, inputs: Values) -> Values:
        """Run the loop and return the values of the exits."""
        entered = list(inputs[: len(self.constant)])
        outside = inputs[len(self.constant) :]
        merged = [entered[h.first] for h in self.heads]
        places = [np.asarray(h.places[0], np.int32) for h in self.heads]
        exits: list[Any] = [DEAD] * self.exits
        goes_on = any(x is not DEAD for x in merged)
        while goes_on:
            context.count_iteration(self.name, self.where)
            pairs = [x for pair in zip(merged, places, strict=True) for x in pair]
            results = run_plan(self.plan, [*entered, *pairs, *outside], context, self.where)
            condition, *carried = results[: len(results) - self.exits]
            goes_on = condition is not DEAD and bool(condition)
            leaving = results[len(results) - self.exits :]
            exits = [
                new if new is not DEAD else old for old, new in zip(exits, leaving, strict=True)
            ]
            merged = [carried[h.later] for h in self.heads]
            places = [np.asarray(h.places[1], np.int32) for h in self.heads]
            entered = [x if c else DEAD for x, c in zip(entered, self.constant, strict=True)]
        return exits


def plan_loop(inner: Region, outside: Callable[[Ref], Edge]) -> Action:
    """Return the action that runs a loop."""
    frame = inner.frame
    heads = [n for n in frame.nodes if inner.survey.is_head(n)]
    carrying, exits = frame.of_op(NEXT_ITERATIONS), frame.of_op(EXITS)
    started = {r.node for h in heads for r in h.data_inputs}
    entering = [
        n for n in frame.of_op(ENTERS) if n.name in started or (n.name, 0) not in inner.constants
    ]
    empty = next((n for n in (*entering, *carrying, *exits) if not n.data_inputs), None)
    if empty is not None:
        message = f"the node {empty.name!r} ({empty.op}) of a loop takes no tensor"
        raise InvalidGraphError(message, "export the graph again", inner.survey.where)
    conditions = [n for n in frame.nodes if n.op == "LoopCond"]
    if len(conditions) != 1 or not conditions[0].data_inputs:
        message = f"the loop of {frame.nodes[0].name!r} has {len(conditions)} LoopCond nodes, not 1"
        raise InvalidGraphError(message, "export the graph again", inner.survey.where)
    fetches = [inner.tensor(n.data_inputs[0]) for n in (*conditions, *carrying, *exits)]
    own = [(n.name, 0) for n in entering] + [(h.name, i) for h in heads for i in (0, 1)]
    actions, constants = [*watches(own, inner.survey.watched), *inner.actions], inner.constants
    if inner.survey.combine:
        actions, constants = fold(actions, constants, fetches, inner.survey.where)
    free = _free(actions, fetches, {*own, *constants})
    plan = placed(actions, constants, [*own, *free], fetches, inner.survey.where)
    (named,) = conditions
    loop = Loop(
        plan,
        tuple(n.attr_bool("is_constant", False) for n in entering),
        tuple(_head(h, entering, carrying, inner.survey.where) for h in heads),
        len(exits),
        named.name,
        inner.survey.where,
    )
    inputs = (*(outside(n.data_inputs[0]) for n in entering), *free)
    outputs = tuple((i, (n.name, 0)) for i, n in enumerate(exits))
    return Action(named, loop, inputs, outputs, (), pure=False)


def _free(actions: list[Action], fetches: list[Edge], internal: set[Edge]) -> list[Edge]:
    """Return the tensors that a loop reads from outside, in the order of their use."""
    outputs = {tensor for a in actions for _, tensor in a.outputs}
    read = dict.fromkeys([*(e for a in actions for e in a.inputs), *fetches])
    return [e for e in read if e not in outputs and e not in internal]


def _head(head: Node, entering: list[Node], carrying: list[Node], where: str) -> Head:
    entries = {n.name: i for i, n in enumerate(entering)}
    carried = {n.name: i for i, n in enumerate(carrying)}
    names = [r.node for r in head.data_inputs]
    if len(names) == 2:
        for first, later in ((0, 1), (1, 0)):
            if names[first] in entries and names[later] in carried:
                return Head(entries[names[first]], carried[names[later]], (first, later))
    raise malformed_head(head, where)


# Larger results are computed in each run instead of cached between runs.
_LARGEST = 64 << 20


# The computation may use this much memory, or a multiple of the size of the constants.
_LEAST_MEMORY = 1 << 29


_TIMES_INPUT = 8


# A plan's copies of constants take at most this fraction of the memory limit of a run.
_SHARE_OF_MEMORY = 4


# Limit of operations, about a second of work.
_FLOPS = 1 << 36


def fold(
    actions: Sequence[Action], constants: Constants, fetches: Collection[Edge], where: str
) -> tuple[list[Action], dict[Edge, Any]]:
    """Run the actions whose inputs are all constant.

    Returns:
        The remaining actions, and the constants with the results, aligned for their types.
        Constants that are not read any more are dropped.
    """
    context = RunContext()
    values: dict[Edge, Any] = dict(constants)
    sizes = (getattr(x, "nbytes", 0) for x in constants.values())  # dead branches have no size
    most = max(_LEAST_MEMORY, _TIMES_INPUT * sum(sizes))
    remaining: list[Action] = []
    with np.errstate(all="ignore"), working(_FLOPS):
        for action in actions:
            if not _is_constant(action, values):
                remaining.append(action)
                continue
            try:
                with at_most(most):
                    results = perform(action, [values[e] for e in action.inputs], context, where)
            except RunLimitError:  # the run reports it, if it gets here
                remaining.append(action)
                continue
            if sum(results[i].nbytes for i, _ in action.outputs) > _LARGEST:
                remaining.append(action)
                continue
            values.update({tensor: results[i] for i, tensor in action.outputs})
    read = {e for a in remaining for e in a.inputs} | set(fetches)
    return remaining, _aligned({e: value for e, value in values.items() if e in read})


def _aligned(constants: dict[Edge, Any]) -> dict[Edge, Any]:
    """Align numeric constants for their types, as far as memory allows.

    In files, tensors can have any address, and numpy would copy such a matrix for every product.
    """
    room = memory_limit() // _SHARE_OF_MEMORY
    result = dict(constants)
    for tensor, value in constants.items():
        if not isinstance(value, np.ndarray) or value.flags.aligned or value.nbytes > room:
            continue
        room -= value.nbytes
        result[tensor] = value.copy()
        result[tensor].flags.writeable = False
    return result


def _is_constant(action: Action, constants: Constants) -> bool:
    """Return whether an action needs to run only once."""
    return action.pure and all(e in constants for e in action.inputs)
