"""Whether a graph computes its declared outputs from its declared inputs alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import PLACEHOLDERS
from mobileprep.ir.reachability import closure
from mobileprep.ir.refs import parse_ref


def check_inputs_suffice(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str], where: str
) -> None:
    """Check that an app has to feed nothing but the declared inputs.

    Args:
        graph: the graph that ships.
        inputs: the declared inputs; without any, nothing is checked.
        outputs: the outputs.
        where: the inputs' place in the recipe.

    Raises:
        InvalidGraphError: an output needs another placeholder.
    """
    declared = _nodes(inputs)
    others = [n for n in graph if n.op in PLACEHOLDERS and n.name not in declared]
    if not inputs or not others:
        return
    for output in outputs:
        needed = _needed(graph, inputs, [output])
        other = next((n for n in others if n.name in needed), None)
        if other is not None:
            dtype = other.attr_dtype("dtype").short
            message = (
                f"the output {output!r} needs the placeholder {other.name!r} ({dtype}), which is "
                "not one of the inputs"
            )
            hint = f"add {other.name!r} to inputs, as the app has to feed it"
            raise InvalidGraphError(message, f"{hint}; or name other outputs", where)


def check_inputs_count(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str], where: str
) -> None:
    """Check that no declared input replaces another one.

    Args:
        graph: the frozen graph, in which the outputs need every input.
        inputs: the declared inputs.
        outputs: the outputs.
        where: the inputs' place in the recipe.

    Raises:
        InvalidGraphError: an input has no effect, because a later one is fed.
    """
    needed = _needed(graph, inputs, outputs)
    for name in inputs:
        node = parse_ref(name).node
        if node in needed:
            continue
        after = (i for i in inputs if i != name and node in _needed(graph, (), [i]))
        later = next(after, None)
        if later is not None:
            message = (
                f"the input {name!r} has no effect: the input {later!r} is computed from it, and "
                "feeding that replaces it"
            )
            hint = (
                f"remove {later!r} from inputs to ship the whole model, or {name!r} to ship the "
                f"part after {later!r}"
            )
            raise InvalidGraphError(message, hint, where)


def unused_inputs(graph: Graph, inputs: Iterable[str], outputs: Sequence[str]) -> list[str]:
    """The declared inputs that no output of a prepared graph needs.

    Single values and truth values are left out: transforms remove the training mode that they
    choose.

    Args:
        graph: the prepared graph.
        inputs: the declared inputs.
        outputs: the outputs.
    """
    needed = _needed(graph, (), outputs)
    unused = []
    for name in inputs:
        node = graph.get(parse_ref(name).node)
        if node is None or node.name in needed:
            continue
        shape = node.attr_shape("shape") if "shape" in node.attrs else None
        if shape != () and node.attr_dtype("dtype") is not DType.BOOL:
            unused.append(name)
    return unused


def parameters_cut_off(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[int, int]:
    """The number of parameters that only declared inputs need, and of all behind the outputs.

    Args:
        graph: the frozen graph.
        inputs: the declared inputs; what they are computed from does not ship.
        outputs: the outputs.
    """
    before = _parameters(graph, _needed(graph, (), outputs))
    return before - _parameters(graph, _needed(graph, inputs, outputs)), before


def _parameters(graph: Graph, names: Iterable[str]) -> int:
    nodes = (graph[name] for name in names)
    return sum(n.attr_tensor("value").size for n in nodes if n.op == "Const")


def _needed(graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> set[str]:
    """The nodes that outputs need where the inputs are fed."""
    fed = _nodes(inputs)

    def producers(name: str) -> Iterable[str]:
        return () if name in fed else (ref.node for ref in graph[name].inputs)

    return closure((parse_ref(name).node for name in outputs), producers)


def _nodes(names: Iterable[str]) -> set[str]:
    return {parse_ref(name).node for name in names}
