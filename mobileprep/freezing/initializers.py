"""Values of variables that no checkpoint holds, computed by the ops that initialize them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from mobileprep.errors import InvalidGraphError
from mobileprep.freezing.convert import convert
from mobileprep.freezing.follow import upstream, variable_behind
from mobileprep.freezing.model import Asset, LoadedSource
from mobileprep.freezing.subgraph import extract
from mobileprep.freezing.tables import with_plain_paths
from mobileprep.freezing.trace import trace, variables_of
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ASSIGNMENTS
from mobileprep.ir.refs import Ref, parse_ref
from mobileprep.ir.tensor import Tensor
from mobileprep.runtime.functions.inline import inline_calls


@dataclass(frozen=True)
class Initialized:
    """Tensors by variable node, and the assets whose paths are among them."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    assets: tuple[Asset, ...] = ()


def initial_values(
    source: LoadedSource,
    wanted: Sequence[str],
    ops: Sequence[str],
    saved: Callable[[Node], Tensor | None],
) -> Initialized:
    """The values that ops assign to variables; variables that they do not assign are left out.

    Args:
        source: the model.
        wanted: the variable nodes.
        ops: what to run: the model's init ops, or those that the user names.
        saved: gives the checkpoint's value of another variable, which initializers may read.

    Raises:
        InvalidGraphError: one of the ops is not there.
        UnsupportedError: an initializer has an op that cannot be run here.
    """
    for name in ops:
        if name not in source.graph:
            message = f"the initializer node {name!r} is not in the graph"
            raise InvalidGraphError(message, "name an op that assigns variables", source.where)
    graph = inline_calls(extract(source.graph, ops), ops, source.where)
    assigned = _assigned(graph, frozenset(wanted))
    graph = with_plain_paths(graph, source.assets)
    paths = {parse_ref(a.tensor).node: a for a in source.assets}
    values: dict[str, Tensor] = {}
    assets: list[Asset] = []
    waiting = dict(assigned)
    while waiting:
        before = len(waiting)
        for variable, ref in list(waiting.items()):
            value = _computed(graph, ref, values, saved, source.where)
            if value is None:
                continue
            del waiting[variable]
            values[variable] = value
            assets += [
                replace(paths[n.name], tensor=f"{variable}:0")
                for n, _ in upstream(graph, ref)
                if n.name in paths
            ]
        if len(waiting) == before:
            break
    return Initialized({v: values[v] for v in assigned if v in values}, tuple(assets))


def _assigned(graph: Graph, wanted: frozenset[str]) -> dict[str, Ref]:
    """What is assigned to each wanted variable."""
    found: dict[str, Ref] = {}
    for node in graph:
        if node.op in ASSIGNMENTS and len(node.data_inputs) > 1:
            variable = variable_behind(graph, node.inputs[0])
            if variable is not None and variable.name in wanted:
                found.setdefault(variable.name, node.inputs[1])
    return found


def _computed(
    graph: Graph,
    ref: Ref,
    values: Mapping[str, Tensor],
    saved: Callable[[Node], Tensor | None],
    where: str,
) -> Tensor | None:
    """The value of a tensor, or None where it needs a variable that has none yet."""
    from mobileprep.runtime.interpreter import (
        Interpreter,  # costs start-up time; few models need it
    )

    part = extract(graph, [ref.node])
    variables = variables_of(part)
    given: dict[str, Tensor] = {}
    for variable in variables:
        value = values.get(variable.name) or saved(variable)
        if value is None:
            return None
        given[variable.name] = value
    constant = convert(part, given, trace(part, variables), where)
    return Tensor.of(Interpreter(constant, where=where).run([str(ref)], {})[0])
