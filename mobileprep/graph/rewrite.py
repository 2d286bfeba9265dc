"""Replace the matches of a pattern in a graph.

A rule consists of a pattern, a check that returns the reason to skip a match, and a function that
returns the nodes that replace a match::

    def _check(match: Match) -> str:
        return "its result is used elsewhere" if match["layer"].name in match.used_outside else ""

    def _rewrite(match: Match) -> list[Node]:
        return [...]

    done = rewrite(graph, Rule(op("Mul", ...), _rewrite, _check))

Source of the semantics: ``ReplaceMatchingOpTypes`` and ``RenameNodeInputs`` of TensorFlow 1.15's
graph transforms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set

from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.pattern import Check, GraphMatcher, Match, OpTypePattern
from mobileprep.graph.refs import Ref

NEEDED_ELSEWHERE = "a node that something else needs would be lost"
NAME_TAKEN = "two of the new nodes would have one name"


class Leave(Struct, frozen=True):
    """The result of a rewrite function that skips a match.

    Args:
        reason: reason for skipping the match.
        nodes: nodes of the match in the order in which to put them back, if the order matters.
    """

    reason: str
    nodes: tuple[Node, ...] = ()


class Rule(Struct, frozen=True):
    """A pattern and its replacement.

    Args:
        pattern: pattern to search for.
        rewrite: returns the nodes that replace all nodes of a match (including nodes to keep), or
            Leave. Borrowed nodes are ignored, because they do not change.
        check: called for each match when it is found; returns the reason to skip it, or an empty
            string.
        allow_inconsistencies: whether a replacement may omit a node that is used outside of the
            match, because the caller repairs the inputs.
    """

    pattern: OpTypePattern
    rewrite: Callable[[Match], Sequence[Node] | Leave]
    check: Check | None = None
    allow_inconsistencies: bool = False


class Rewritten(Struct, frozen=True):
    """A rewritten graph, the number of replaced matches, and of skipped matches by reason."""

    graph: Graph
    matched: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


def rewrite(graph: Graph, rule: Rule, protected: Collection[str] = ()) -> Rewritten:
    """Replace every match of a rule.

    New nodes are inserted at the position of the match's root, in the order of the rule. A match is
    skipped if its replacement would lose a node that is needed elsewhere.

    Args:
        graph: the graph; the result contains the same object if there are no matches.
        rule: the rule.
        protected: names of nodes to keep, such as the outputs of the graph.

    Raises:
        InvalidGraphError: if the rule creates a node with an existing name.
    """
    result = GraphMatcher(graph, protected).find(rule.pattern, rule.check)
    if not result.matches:
        return Rewritten(graph, skipped=result.skipped)
    heads = {m.node.name: m for m in result.matches}
    inside = {n.name for m in result.matches for n in m.nodes}
    skipped = Counter(result.skipped)
    nodes: list[Node] = []
    matched = 0
    for node in graph:
        match = heads.get(node.name)
        if match is not None:
            answer = _replacement(match, rule)
            if isinstance(answer, Leave):
                skipped[answer.reason] += 1
                nodes += answer.nodes or match.nodes
            else:
                matched += 1
                nodes += answer
        elif node.name not in inside:
            nodes.append(node)
    _check_names(nodes, rule.pattern)
    return Rewritten(graph.with_nodes(nodes), matched, dict(skipped))


def rewrite_all(graph: Graph, rule: Rule, protected: Collection[str] = ()) -> Rewritten:
    """Apply a rule repeatedly until it changes nothing.

    If matches share a node, each pass replaces one of them. Skipped matches are those of the last
    pass.
    """
    matched = 0
    while True:
        done = rewrite(graph, rule, protected)
        matched += done.matched
        if not done.matched:
            return Rewritten(graph, matched, done.skipped)
        graph = done.graph


class Renames:
    """Replacements of inputs: a node for a node, or a tensor for a tensor."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._tensors: dict[Ref, Ref] = {}
        self._touched: set[str] = set()

    def node(self, old: str, new: str) -> None:
        """Redirect all outputs of a node, and control dependencies on it, to another node."""
        self._nodes[old] = new
        self._touched.add(old)

    def tensor(self, old: Ref, new: Ref) -> None:
        """Redirect one output to another tensor; control dependencies do not change."""
        self._tensors[old] = new
        self._touched.add(old.node)

    def __bool__(self) -> bool:
        return bool(self._touched)

    def resolve(self, ref: Ref) -> Ref:
        """Return the final replacement of a reference.

        Raises:
            InvalidGraphError: if the replacements form a cycle.
        """
        seen: set[str] = set()
        while ref.node in self._touched:
            if ref.node in seen:
                message = f"inputs from {ref.node!r} are sent in a circle"
                raise InvalidGraphError(message, "the nodes to be replaced feed each other")
            seen.add(ref.node)
            if ref in self._tensors:
                ref = self._tensors[ref]
            elif ref.node in self._nodes:
                ref = ref.renamed(self._nodes[ref.node])
            else:
                break
        return ref


def rename_inputs(graph: Graph, renames: Renames, ignored: Container[str] = ()) -> Graph:
    """Redirect the inputs of all nodes except the ignored ones."""
    if not renames:
        return graph
    return graph.with_nodes(n if n.name in ignored else _renamed(n, renames) for n in graph)


def _renamed(node: Node, renames: Renames) -> Node:
    inputs = tuple(renames.resolve(r) for r in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def _replacement(match: Match, rule: Rule) -> Sequence[Node] | Leave:
    answer = rule.rewrite(match)
    if isinstance(answer, Leave):
        return answer
    by_name: dict[str, Node] = {}
    for node in answer:
        if node.name in match.borrowed:
            continue
        if by_name.setdefault(node.name, node) != node:
            return Leave(NAME_TAKEN)
    if not rule.allow_inconsistencies and not match.used_outside <= by_name.keys():
        return Leave(NEEDED_ELSEWHERE)
    gone = {n.name for n in match.nodes} - by_name.keys()
    return [_waiting_for_none(node, gone) for node in by_name.values()]


def _waiting_for_none(node: Node, gone: Set[str]) -> Node:
    """Remove control inputs from nodes that the replacement removes."""
    if gone.isdisjoint(ref.node for ref in node.control_inputs):
        return node
    inputs = tuple(r for r in node.inputs if not r.is_control or r.node not in gone)
    return replace(node, inputs=inputs)


def _check_names(nodes: Iterable[Node], pattern: OpTypePattern) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            message = f"the rewriting of {pattern} makes a second node named {node.name!r}"
            raise InvalidGraphError(message, "give new nodes names that the graph does not have")
        seen.add(node.name)
