"""Functions built from the nodes that some tensors need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.graph import Function, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdef import ArgDef, OpDef
from mobileprep.graph.opdefs.bodies import Body, function_of
from mobileprep.graph.opdefs.definitions import any_op_def
from mobileprep.graph.reachability import without_dangling
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.transforms.raise_control_flow.region import Raising

_STATELESS: Final = {"While": "StatelessWhile", "If": "StatelessIf"}


@dataclass
class Functions:
    """Functions to add to a graph's library."""

    work: Raising
    by_name: dict[str, Function] = field(default_factory=dict)
    stateful: set[str] = field(default_factory=set)

    def add(
        self, base_name: str, nodes: Sequence[Node], args: Sequence[Ref], rets: Sequence[Ref]
    ) -> AttrValue:
        """Create a function, and return the attribute that refers to it."""
        name = self.work.names.name(base_name.replace("/", "_"))
        nodes = list(without_dangling(nodes, {n.name for n in nodes}))
        own = FreshNames(n.name for n in nodes)
        params = {ref: Ref(own.name(f"arg_{i}")) for i, ref in enumerate(args)}
        results = [own.name(f"ret_{i}") for i in range(len(rets))]
        body = Body(
            tuple(params.values()),
            tuple(n.with_inputs(tuple(params.get(r, r) for r in n.inputs)) for n in nodes),
            tuple(params.get(r, r) for r in rets),
        )
        inputs = tuple(ArgDef(params[ref].node, self.work.type_of(ref)) for ref in args)
        outputs = tuple(
            ArgDef(result, self.work.type_of(ref))
            for result, ref in zip(results, rets, strict=True)
        )
        like = Function(OpDef(name, inputs, outputs))
        function = function_of(body, like, self.library)
        if any(self._is_stateful(node) for node in nodes):
            self.stateful.add(name)
            function = replace(function, signature=replace(function.signature, is_stateful=True))
        self.by_name[name] = function
        return AttrValue("func", FuncRef(name))

    @property
    def library(self) -> Library:
        """The graph's library with the new functions."""
        before = self.work.graph.library
        return Library({**before.functions, **self.by_name}, before.gradients)

    def op(self, kind: str, functions: Iterable[AttrValue]) -> str:
        """Return ``While`` or ``If``, or the stateless op if none of the functions has state."""
        used = any(func.value.name in self.stateful for func in functions)
        return kind if used else _STATELESS[kind]

    def _is_stateful(self, node: Node) -> bool:
        called = [v.value.name for v in node.attrs.values() if v.kind == "func"]
        functions = self.work.graph.library.functions
        if called:
            return any(
                name in self.stateful
                or (name in functions and functions[name].signature.is_stateful)
                for name in called
            )
        definition = any_op_def(node.op)
        return definition is None or definition.is_stateful


def types_of(work: Raising, refs: Iterable[Ref]) -> AttrValue:
    """Return the types of tensors as an attribute."""
    kinds = tuple(work.type_of(ref) for ref in refs)
    return AttrValue("list(type)", kinds) if kinds else AttrValue("list", ())


def attributes(**values: AttrValue) -> Mapping[str, AttrValue]:
    """Return attributes sorted by name, as in stored graphs."""
    return dict(sorted(values.items()))
