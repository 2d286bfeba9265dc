"""Change the names, ops, attributes, devices, and order of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Annotated, Final

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import default_attrs
from mobileprep.graph.reachability import ANY, colocated, execution_order
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, edited, refuse, transform


@transform("add_default_attributes")
class AddDefaultAttributes(Transform, frozen=True):
    """Add all attributes that have a default in the op's definition.

    The definitions are those of TensorFlow 1.15, so that it can load the graph. Ops that 1.15 does
    not have use the definitions of the newest release. Source: ``add_default_attributes`` of
    TensorFlow 1.15's graph transforms, which rejects graphs with unknown ops.
    """

    summary = "Adds the default attributes that nodes omit."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        defaults = {op: default_attrs(op, graph.library) for op in {n.op for n in graph}}

        def filled(node: Node) -> Node | str:
            attrs = defaults[node.op]
            if attrs is None:
                return "its op is unknown"
            missing = {k: v for k, v in attrs.items() if k not in node.attrs}
            return replace(node, attrs={**node.attrs, **missing}) if missing else node

        return edited(graph, filled)


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@transform("obfuscate_names")
class ObfuscateNames(Transform, frozen=True):
    """Number nodes in stored order, in base 62; inputs and outputs keep their names.

    Source: ``obfuscate_names`` of TensorFlow 1.15's graph transforms, which does not recognize an
    input or output that is named with its index, and does not update colocation constraints, so the
    graph fails to load.
    """

    summary = (
        "Replaces the names of nodes with short, meaningless ones. Inputs and outputs"
        " of the graph keep their names."
    )
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        check_inputs(graph, self.transform_name)
        protected = context.protected
        short = _short_names(protected)
        names = {n.name: n.name if n.name in protected else next(short) for n in graph}
        nodes = [colocated(_renamed(n, names), names.get) for n in graph]
        return Result(graph.with_nodes(nodes), sum(old != new for old, new in names.items()))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """Give a node and its inputs their new names."""
    if node.name not in names and not any(r.node in names for r in node.inputs):
        return node
    inputs = tuple([r.renamed(names.get(r.node, r.node)) for r in node.inputs])
    return replace(node, name=names.get(node.name, node.name), inputs=inputs)


def _short_names(used_names: Collection[str]) -> Iterator[str]:
    return (name for name in map(_base_62, count()) if name not in used_names)


def _base_62(number: int) -> str:
    number, last = divmod(number, len(_DIGITS))
    text = _DIGITS[last]
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text


@transform("remove_attribute")
class RemoveAttribute(Transform, frozen=True):
    """Remove an attribute from every node of an op.

    Source: ``remove_attribute`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Removes an attribute from nodes."
    of_graph_transform_tool = True

    attribute_name: Annotated[str, Option("The attribute.", min_length=1)]
    op_name: Annotated[str, Option("Op of the nodes, or `*` for all.")] = ANY

    def apply(self, graph: Graph, context: Context) -> Result:
        name = self.attribute_name
        return edited(
            graph,
            lambda n: (
                n.without_attrs(name) if name in n.attrs and self.op_name in (ANY, n.op) else n
            ),
        )


@transform("remove_device")
class RemoveDevice(Transform, frozen=True):
    """Clear the device of every node, except in function bodies.

    Source: ``remove_device`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Removes the device from every node."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        return edited(graph, lambda n: replace(n, device="") if n.device else n)


@transform("rename_attribute")
class RenameAttribute(Transform, frozen=True):
    """Rename an attribute on every node of an op, with the same value.

    A node that already has an attribute with the new name keeps that one and loses the old one.

    Source: ``rename_attribute`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Renames an attribute of nodes."
    of_graph_transform_tool = True

    old_attribute_name: Annotated[str, Option("The attribute.", min_length=1)]
    new_attribute_name: Annotated[str, Option("Its new name.", min_length=1)]
    op_name: Annotated[str, Option("Op of the nodes, or `*` for all.")] = ANY

    def apply(self, graph: Graph, context: Context) -> Result:
        return edited(graph, self._renamed)

    def _renamed(self, node: Node) -> Node:
        if self.op_name not in (ANY, node.op) or self.old_attribute_name not in node.attrs:
            return node
        attrs = dict(node.attrs)
        value = attrs.pop(self.old_attribute_name)
        attrs.setdefault(self.new_attribute_name, value)
        return replace(node, attrs=attrs)


@transform("rename_node")
class RenameNode(Transform, frozen=True):
    """Rename a node, and update its consumers and colocated nodes.

    Source: ``rename_node`` of the graph transforms of TensorFlow 2.4, which does not update
    colocation constraints.
    """

    summary = "Renames a node."
    of_graph_transform_tool = True

    old_node_name: Annotated[str, Option("The node.", min_length=1)]
    new_node_name: Annotated[str, Option("Its new name.", min_length=1)]

    def apply(self, graph: Graph, context: Context) -> Result:
        """Rename the node; a node that does not exist causes a warning, not an error."""
        old, new = self.old_node_name, self.new_node_name
        if new in graph:
            hint = "choose a name that is free"
            raise refuse(self.transform_name, f"there is a node {new!r} already", hint)
        if old not in graph:
            warning = f"{self.transform_name}: the graph has no node {old!r}"
            return Result(graph, warnings=(warning,))
        names = {old: new}
        nodes = (_renamed(n, names) for n in graph)
        nodes = (colocated(n, lambda name: names.get(name, name)) for n in nodes)
        return Result(graph.with_nodes(nodes), 1)


@transform("rename_op")
class RenameOp(Transform, frozen=True):
    """Change the op of nodes without changing their inputs and attributes.

    Source: ``rename_op`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Changes the op of nodes."
    of_graph_transform_tool = True

    old_op_name: Annotated[str, Option("The op.", min_length=1)]
    new_op_name: Annotated[str, Option("The new op.", min_length=1)]

    def apply(self, graph: Graph, context: Context) -> Result:
        old, new = self.old_op_name, self.new_op_name
        return edited(graph, lambda n: replace(n, op=new) if n.op == old else n)


@transform("set_device")
class SetDevice(Transform, frozen=True):
    """Set the device of every node, or of the nodes without a device.

    Source: ``set_device`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Sets the device of nodes."
    of_graph_transform_tool = True

    device: Annotated[str, Option("The device, such as `/cpu:0`. Empty for none.")] = ""
    if_default: Annotated[bool, Option("Change only nodes without a device.")] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        return edited(graph, self._placed)

    def _placed(self, node: Node) -> Node:
        is_placed = node.device == self.device or (self.if_default and node.device)
        return node if is_placed else replace(node, device=self.device)


@transform("sort_by_execution_order")
class SortByExecutionOrder(Transform, frozen=True):
    """Store nodes so that a reader can create them one by one, with inputs first.

    Source: ``sort_by_execution_order`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Stores nodes so that each comes after its inputs."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        check_inputs(graph, self.transform_name)
        order = execution_order(graph)
        if len(order) < len(graph):
            done = set(map(id, order))  # of two nodes with the same name, one may be missing
            first = next(n.name for n in graph if id(n) not in done)
            message = f"{len(graph) - len(order)} nodes are in a circle or after one, as {first!r}"
            raise refuse(self.transform_name, message, "export the graph again")
        moved = sum(a is not b for a, b in zip(order, graph.nodes, strict=True))
        return Result(graph.with_nodes(order) if moved else graph, moved)
