"""Convert control flow v1 while loops to While nodes that run a condition and a body.

Source: ``functionalize_while.cc`` of TensorFlow's compiler, for graphs without variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.frames import Frame, Frames
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SUMS, SWITCHES
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.verify import execution_order
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.transforms.raise_control_flow.conditionals import raise_conditionals
from mobileprep.transforms.raise_control_flow.region import (
    Functions,
    LoopShapes,
    Raising,
    Slice,
    attributes,
    cannot_raise,
    malformed,
    resolved_nodes,
    types_of,
    upstream,
)

_PARALLEL: Final = 10


@dataclass(eq=False)
class RaisedLoop:
    """A while loop to convert to one node.

    Args:
        frame: its nodes.
        name: the name of the node.
        heads: the Merge of each loop variable.
        entered: the initial value of each loop variable.
        carried: the value of each loop variable for the next iteration.
        goes_on: the tensor that indicates whether there is a next iteration.
        sources: every tensor that enters the loop.
        children: the nested loops.
        replacement: the nodes that replace it.
    """

    frame: Frame
    name: str
    heads: list[Node]
    entered: list[Ref]
    carried: list[Ref]
    goes_on: Ref
    sources: tuple[Ref, ...]
    children: list[RaisedLoop] = field(default_factory=list)
    replacement: list[Node] = field(default_factory=list)


def raise_loops(work: Raising, functions: Functions, where: str, unroll: int) -> dict[str, Node]:
    """Convert every loop that the outputs need.

    Args:
        unroll: loops of at most this many iterations become copies of their bodies.

    Returns:
        The nodes outside of all loops, including new ones, with resolved inputs.
    """
    frames = Frames(execution_order(work.graph, where), (), where)
    loops = _needed_loops(work, frames.root)
    if not loops:
        return _region(work, frames.root.nodes, ())
    shapes = LoopShapes(work.graph)
    for loop in reversed(loops):
        _raise(work, functions, loop, unroll, shapes)
    outermost = [loop for loop in loops if loop.frame.parent is frames.root]
    return _region(work, frames.root.nodes, outermost)


def _region(work: Raising, nodes: Sequence[Node], loops: Sequence[RaisedLoop]) -> dict[str, Node]:
    """Return nodes and nested loops by name; the loops depend on all tensors that enter them."""
    waiting = [
        n.with_inputs((*n.inputs, *loop.sources)) for loop in loops for n in loop.replacement
    ]
    return resolved_nodes(work, [*nodes, *waiting])


def _needed_loops(work: Raising, root: Frame) -> list[RaisedLoop]:
    """Return the needed loops, outer loops first."""
    loops: list[RaisedLoop] = []
    waiting: list[tuple[Frame, RaisedLoop | None]] = [(f, None) for f in reversed(root.children)]
    while waiting:
        frame, around = waiting.pop()
        if not any(n.name in work.live for n in frame.nodes):
            continue
        loop = _planned(work, frame)
        loops.append(loop)
        if around is not None:
            around.children.append(loop)
        waiting += [(child, loop) for child in reversed(frame.children)]
    return loops


def _planned(work: Raising, frame: Frame) -> RaisedLoop:
    """Analyze a loop, and register replacements for its invariants, conditions, and exits."""
    tests = [n for n in frame.of_op({"LoopCond"}) if n.name in work.live]
    if len(tests) != 1 or not tests[0].data_inputs:
        raise malformed(frame.nodes[0], f"is in a loop with {len(tests)} conditions, not one")
    name = work.names.name(tests[0].name.rpartition("/")[0] or "while")
    loop = RaisedLoop(frame, name, [], [], [], tests[0].data_inputs[0], _sources(frame))
    _plan_heads(work, loop)
    # Another loop that reads the outputs of this one may become a node earlier.
    work.gives[name] = tuple(work.type_of(Ref(head.name)) for head in loop.heads)
    _plan_invariants(work, loop)
    index = {head.name: i for i, head in enumerate(loop.heads)}
    for node in frame.nodes:
        if node.op in SWITCHES and _is_by(work, node, tests[0]):
            work.same[node.name, 1] = node.data_inputs[0]
    for node in frame.of_op(EXITS):
        if node.name in work.live:
            work.same[node.name, 0] = _exit_value(work, loop, node, index, tests[0])
    return loop


def _sources(frame: Frame) -> tuple[Ref, ...]:
    return tuple(dict.fromkeys(r for n in frame.of_op(ENTERS) for r in n.inputs))


def _plan_heads(work: Raising, loop: RaisedLoop) -> None:
    entering = {n.name: n for n in loop.frame.of_op(ENTERS)}
    carrying = {n.name: n for n in loop.frame.of_op(NEXT_ITERATIONS)}
    for node in loop.frame.of_op(MERGES):
        names = [r.node for r in node.data_inputs]
        if node.name not in work.live or not any(name in carrying for name in names):
            continue
        first = [entering[name] for name in names if name in entering]
        later = [carrying[name] for name in names if name in carrying]
        if len(first) != 1 or len(later) != 1 or len(names) != 2:
            raise malformed(node, "does not join the first value of a loop with later ones")
        loop.heads.append(node)
        for refs, giver in ((loop.entered, first[0]), (loop.carried, later[0])):
            if not giver.data_inputs:
                raise malformed(giver, "takes no tensor")
            refs.append(giver.data_inputs[0])


def _plan_invariants(work: Raising, loop: RaisedLoop) -> None:
    started = {r.node for head in loop.heads for r in head.data_inputs}
    for node in loop.frame.of_op(ENTERS):
        if node.name in started or node.name not in work.live:
            continue
        if not node.attr_bool("is_constant", False):
            raise cannot_raise(node, "gives a tensor in the first turn of its loop alone")
        if not node.data_inputs:
            raise malformed(node, "takes no tensor")
        work.same[node.name, 0] = node.data_inputs[0]


def _is_by(work: Raising, switch: Node, test: Node) -> bool:
    """Return whether a Switch is controlled by a loop's condition."""
    if len(switch.data_inputs) != 2:
        raise malformed(switch, f"takes {len(switch.data_inputs)} tensors, not 2")
    return _behind(work, switch.data_inputs[1]).node == test.name


def _behind(work: Raising, ref: Ref) -> Ref:
    """Return the tensor behind identities."""
    seen: set[str] = set()
    while True:
        node = work.graph[ref.node]
        if node.op not in IDENTITIES or not node.data_inputs or node.name in seen:
            return ref
        seen.add(node.name)
        ref = node.data_inputs[0]


def _exit_value(
    work: Raising, loop: RaisedLoop, leaving: Node, index: dict[str, int], test: Node
) -> Ref:
    """Return the replacement for a tensor that leaves a loop."""
    if not leaving.data_inputs:
        raise malformed(leaving, "takes no tensor")
    ref = _behind(work, leaving.data_inputs[0])
    switch = work.graph[ref.node]
    if switch.op not in SWITCHES or ref.index != 0 or not _is_by(work, switch, test):
        raise cannot_raise(leaving, "takes a tensor out of a loop that no condition holds back")
    source = work.resolved(switch.data_inputs[0])
    if source.index == 0 and source.node in index:
        return Ref(loop.name, index[source.node])
    if any(n.name == source.node for n in loop.frame.nodes):
        raise cannot_raise(leaving, "uses a value of the loop's condition outside of the loop")
    return source


def _raise(
    work: Raising, functions: Functions, loop: RaisedLoop, unroll: int, shapes: LoopShapes
) -> None:
    """Create the nodes of one loop; nested loops already have theirs."""
    own = {n.name for n in loop.frame.nodes}
    nodes = [n for n in loop.frame.nodes if not _is_frame_of(work, loop, n)]
    region = _region(work, nodes, loop.children)
    carried = [work.resolved(r) for r in loop.carried]
    goes_on = work.resolved(loop.goes_on)
    raise_conditionals(work, functions, region, [goes_on, *carried])

    heads = [Ref(head.name) for head in loop.heads]

    def inside(ref: Ref) -> Ref | None:
        if ref.node in region:
            return ref
        if ref.node == loop.name:
            raise malformed(loop.frame.nodes[0], "is in a loop that depends on its own output")
        if ref.node in own and ref not in heads:
            node = work.graph[ref.node]
            raise cannot_raise(node, f"is read at output {ref.index} within its loop")
        return None

    test = upstream(work, [goes_on], inside)
    body = upstream(work, carried, inside)
    entered = [work.resolved(ref) for ref in loop.entered]
    turning = Turning(loop.name, frozenset(own), heads, entered, body)
    turns = count_turns(work, turning, test, unroll) if unroll else None
    work.raised += 1
    if turns is not None:
        loop.replacement = unrolled(work, turning, turns)
    else:
        loop.replacement = [_while_node(work, functions, loop, heads, test, body, shapes)]


def _while_node(
    work: Raising,
    functions: Functions,
    loop: RaisedLoop,
    heads: list[Ref],
    test: Slice,
    body: Slice,
    shapes: LoopShapes,
) -> Node:
    """Create the node that runs a loop's condition and body."""
    inner = frozenset(heads)
    outer = [r for r in dict.fromkeys((*test.inputs, *body.inputs)) if r not in inner]
    args = [*heads, *outer]
    called = (
        functions.add(f"{loop.name}_cond", test.nodes, args, test.results),
        functions.add(f"{loop.name}_body", body.nodes, args, [*body.results, *outer]),
    )
    parallel = loop.frame.of_op(ENTERS)[0].attr_int("parallel_iterations", _PARALLEL)
    values = attributes(
        T=types_of(work, args),
        cond=called[0],
        body=called[1],
        output_shapes=shapes.output_shapes(loop.entered, args),
        parallel_iterations=attr.integer(parallel),
    )
    entered = tuple(map(work.resolved, (*loop.entered, *outer)))
    op = functions.op("While", called)
    node = work.new_nodes[loop.name] = Node(loop.name, op, entered, "", values)
    return node


def _is_frame_of(work: Raising, loop: RaisedLoop, node: Node) -> bool:
    """Return whether a node belongs to the loop's structure and computes nothing."""
    if node.op in ENTERS or node.op in EXITS or node.op in NEXT_ITERATIONS:
        return True
    if node.op == "LoopCond" or any(node is head for head in loop.heads):
        return True
    return node.op in SWITCHES and (node.name, 1) in work.same


# Ops of counters and conditions.
_COUNTING: Final = (
    IDENTITIES
    | SUMS
    | {
        *("Sub", "Mul", "FloorDiv", "FloorMod", "Minimum", "Maximum", "Cast"),
        *("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"),
        *("LogicalAnd", "LogicalOr", "LogicalNot", "LoopCond"),
    }
)


_LARGEST: Final = 1024


Values = dict[Ref, Tensor]


class Turning(Struct, frozen=True):
    """A loop to unroll.

    Args:
        name: the name of the loop.
        own: the names of its nodes.
        heads: the loop variables.
        entered: their initial values.
        body: the nodes of one iteration.
    """

    name: str
    own: frozenset[str]
    heads: Sequence[Ref]
    entered: Sequence[Ref]
    body: Slice


def count_turns(work: Raising, loop: Turning, test: Slice, most: int) -> int | None:
    """Return the number of iterations if it is constant and at most ``most``, or None."""
    outer = {ref: ref for ref in (*test.inputs, *loop.body.inputs)}
    sources = {**outer, **dict(zip(loop.heads, loop.entered, strict=True))}
    values = {
        ref: value for ref, source in sources.items() if (value := work.value(source)) is not None
    }
    same = {ref: value for ref, value in values.items() if ref not in loop.heads}
    for turn in range(most + 1):
        goes_on = _evaluated(test.nodes, values).get(test.results[0])
        if goes_on is None or goes_on.size != 1:
            return None
        if not bool(goes_on.array().reshape(-1)[0]):
            return turn
        after = _evaluated(loop.body.nodes, values)
        pairs = zip(loop.heads, loop.body.results, strict=True)
        values = {**same, **{head: after[ref] for head, ref in pairs if ref in after}}
    return None


def _evaluated(nodes: Sequence[Node], initial: Values) -> Values:
    """Evaluate tensors that depend only on known values."""
    values = dict(initial)
    for node in nodes:
        if node.op == "Const":
            values[Ref(node.name)] = node.attr_tensor("value")
            continue
        inputs = [values.get(ref) for ref in node.data_inputs]
        small = [t for t in inputs if t is not None and t.size <= _LARGEST]
        if node.op not in _COUNTING or len(small) < len(inputs) or not inputs:
            continue
        try:
            values[Ref(node.name)] = evaluate_node(node, small)[0]
        except (InvalidGraphError, UnsupportedError):
            # Running the graph will report the error.
            continue
    return values


def unrolled(work: Raising, loop: Turning, turns: int) -> list[Node]:
    """Copy a loop's body once per iteration; the last results replace the loop's outputs."""
    work.count_copies(turns * len(loop.body.nodes))
    nodes: list[Node] = []
    state = dict(zip(loop.heads, loop.entered, strict=True))
    for turn in range(turns):
        copied, results = _copied(work, loop, state, turn)
        nodes += copied
        state = dict(zip(loop.heads, results, strict=True))
    work.new_nodes.update({node.name: node for node in nodes})
    for index, head in enumerate(loop.heads):
        work.same[loop.name, index] = state[head]
    return nodes


def _copied(
    work: Raising, loop: Turning, state: Mapping[Ref, Ref], turn: int
) -> tuple[list[Node], list[Ref]]:
    """Return the nodes and results of one iteration; constants from outside are not copied."""
    own = [n for n in loop.body.nodes if n.op != "Const" or n.name in loop.own]
    names = {
        n.name: work.names.name(f"{loop.name}/turn_{turn}/{n.name.removeprefix(f'{loop.name}/')}")
        for n in own
    }

    def moved(ref: Ref) -> Ref:
        return state[ref] if ref in state else ref.renamed(names.get(ref.node, ref.node))

    nodes = [Node(names[n.name], n.op, tuple(map(moved, n.inputs)), n.device, n.attrs) for n in own]
    return nodes, list(map(moved, loop.body.results))
