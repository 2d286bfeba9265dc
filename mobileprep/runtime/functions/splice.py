"""A function's body put in a caller's place."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.frozen import dataclass
from mobileprep.ir.colocation import colocated
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref, control
from mobileprep.opdefs.bodies import Body


@dataclass(frozen=True)
class Spliced:
    """A body under names of its own.

    Args:
        nodes: its nodes.
        rets: where the caller's results now come from.
        ends: nodes that have run when the call has ended.
    """

    nodes: tuple[Node, ...]
    rets: tuple[Ref, ...]
    ends: tuple[str, ...]


def splice(
    prefix: str, device: str, body: Body, inputs: tuple[Ref, ...], anchor: tuple[Ref, ...] = ()
) -> Spliced:
    """A body's nodes under names that begin with a prefix, fed with a caller's inputs.

    Nodes that are colocated with others of the body stay so. What else a function's body names
    there is no node of the caller's graph.

    Args:
        prefix: what their names begin with.
        device: for the nodes that have none.
        body: what to put in.
        inputs: a tensor for each argument.
        anchor: control inputs for the nodes that would else wait for nothing.

    Raises:
        InvalidGraphError: the numbers of inputs and arguments differ.
    """
    if len(inputs) != len(body.args):
        message = f"{prefix!r} gives {len(inputs)} of {len(body.args)} arguments to its function"
        raise InvalidGraphError(message, "export the model again")
    tensors = dict(zip(body.args, inputs, strict=True))
    producers = {a.node: t.node for a, t in tensors.items()}
    own = {n.name for n in body.nodes}

    def moved(ref: Ref) -> Ref:
        if ref.is_control:
            return control(producers.get(ref.node, f"{prefix}/{ref.node}"))
        found = tensors.get(ref)
        return found if found is not None else ref.renamed(f"{prefix}/{ref.node}")

    def beside(name: str) -> str | None:
        return f"{prefix}/{name}" if name in own else None

    nodes = tuple(
        replace(
            colocated(n, beside),
            name=f"{prefix}/{n.name}",
            inputs=in_order(moved(r) for r in n.inputs) or anchor,
            device=n.device or device,
        )
        for n in body.nodes
    )
    ends = tuple(f"{prefix}/{name}" for name in body.control_rets)
    return Spliced(nodes, tuple(moved(r) for r in body.rets), ends)


def free_prefix(wanted: str, body: Body, taken: Container[str]) -> str:
    """The wanted prefix, longer where a node of the body would get a name that is taken."""
    while any(f"{wanted}/{n.name}" in taken for n in body.nodes):
        wanted += "_"
    return wanted


def in_order(inputs: Iterable[Ref]) -> tuple[Ref, ...]:
    """Inputs with each control dependency once, after the tensors."""
    listed = list(inputs)
    controls = dict.fromkeys(r for r in listed if r.is_control)
    return (*(r for r in listed if not r.is_control), *controls)
