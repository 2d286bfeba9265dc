"""The actions of a graph, or of one iteration of a loop in it, branches resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mobileprep.graph.branches import Branches
from mobileprep.graph.dropout import DROPS
from mobileprep.graph.frames import Frame
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from mobileprep.graph.opdefs.definitions import check_input_count
from mobileprep.graph.refs import CONTROL, Edge, Ref, edge
from mobileprep.ops.context import RunContext, find_context_kernel
from mobileprep.ops.kernel import find_kernel
from mobileprep.ops.list_constants import constant_array
from mobileprep.runtime.actions import (
    DEAD,
    Action,
    Constants,
    Values,
    constant_action,
    context_action,
    data_edges,
    guarded,
    kernel_action,
    made,
    merge_action,
    switch_action,
    with_watches,
)
from mobileprep.runtime.selection import Survey, malformed_head, ordered_units, unit_inputs

NOWHERE: Final[Edge] = ("", 0)
"""The tensor that stands for one that is never computed."""

_STRUCTURE: Final = ENTERS | EXITS | NEXT_ITERATIONS


class Region:
    """The work of one frame.

    Args:
        survey: what is known of all nodes.
        frame: the frame.
        outer: constants of the frames around it.

    Attributes:
        actions: the work, in order.
        constants: tensors that are there from the start.
        branches: the conditions under which nodes run.
        lacking: nodes that may have to run, and cannot.
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
        """The tensor that a reference names, or ``NOWHERE`` where it is never computed."""
        return NOWHERE if self.branches.never(ref) else edge(ref)

    def _refuse_heads(self) -> None:
        """Outside of loops nothing returns to a Merge."""
        for node in self.frame.nodes:
            if self.survey.is_head(node):
                raise malformed_head(node, self.survey.where)

    def _loop_inputs(self, loop: Frame) -> list[Ref]:
        """What a loop takes from this frame."""
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
        """The action of a node whose inputs are all there, or None where it has no kernel."""
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
        taken = self.branches.taken(node)
        if taken is None:
            return switch_action(node, data_edges(node))

        def run(context: RunContext, inputs: Values) -> Values:
            return inputs

        return Action(node, run, data_edges(node)[:1], ((0, (node.name, taken)),), (node,))

    def _guarded(self, node: Node, action: Action) -> Action:
        if not self.branches.of_node(node.name):
            return action
        is_control = node.name in self.survey.controls
        return guarded(action, self._controls(node.control_inputs), is_control=is_control)

    def _controls(self, refs: tuple[Ref, ...]) -> list[Edge]:
        """The control inputs that may not run; of an Exit its tensor stands for it."""
        found = dict.fromkeys(r.node for r in refs if self.branches.of_node(r.node))
        nodes = self.survey.nodes
        return [(name, 0 if nodes[name].op in EXITS else CONTROL) for name in found]

    def _add_constant(self, node: Node) -> None:
        if not self.branches.of_node(node.name) or self._is_harmless(node):
            return
        value = self.constants.pop((node.name, 0), None)
        if value is not None:
            controls = self._controls(node.control_inputs)
            self.actions.append(constant_action(node, value, controls))

    def _is_harmless(self, node: Node) -> bool:
        """Whether a constant behind a condition can be there always.

        It can where whoever reads it does not run without the condition either.
        """
        if node.name in self.survey.controls:
            return False
        conditions = self.branches.of_node(node.name)
        for reader in self.survey.readers.get(node.name, ()):
            if reader.op in MERGES or self.survey.frames.of_node[reader.name] is not self.frame:
                return False
            # What is there always does not count, this constant and excused ones among it.
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

        action = Action(node, run, inputs, made(node, [0, 1]), (node,))
        self.actions.append(self._guarded(node, action))

    def _add_loop(self, loop: Frame) -> None:
        inner = Region(self.survey, loop, self.constants)
        self.lacking += inner.lacking
        exits = loop.of_op(EXITS)
        if not exits or self.branches.never(Ref(exits[0].name, CONTROL)):
            return
        from mobileprep.runtime.loops import plan_loop  # few graphs have loops

        action = plan_loop(inner, self.tensor)
        controls = tuple(r for r in self._loop_inputs(loop) if r.is_control)
        if self.branches.of_node(exits[0].name):
            action = guarded(action, self._controls(controls), is_control=False)
        self.actions.append(action)


def _constant_pred(constants: Constants) -> Callable[[Edge], bool | None]:
    """A look-up of predicates among constants."""

    def pred(tensor: Edge) -> bool | None:
        value = constants.get(tensor)
        return bool(value) if isinstance(value, np.ndarray) and value.size == 1 else None

    return pred
