"""Convert the inputs of function bodies to the form in graphs, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef
from mobileprep.graph.graph import Function, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import output_slots, signature_of
from mobileprep.graph.refs import Ref

_PLACEHOLDER = "placeholder"


class Body(Struct, frozen=True):
    """The computation of a function.

    Args:
        args: argument tensors in order, as the nodes refer to them.
        nodes: the nodes; their tensor inputs are node names with output indices.
        rets: result tensors of the function, in order.
        control_rets: nodes that must have run before the function returns.
    """

    args: tuple[Ref, ...]
    nodes: tuple[Node, ...]
    rets: tuple[Ref, ...]
    control_rets: tuple[str, ...] = ()


def body_of(
    function: Function, library: Library, bindings: Mapping[str, AttrValue] | None = None
) -> Body:
    """Return the body of a function."""
    defaults = {a.name: a.default for a in function.signature.attrs if a.default is not None}
    bindings = {**defaults, **(bindings or {})}
    nodes = tuple(_bound(n, bindings) for n in function.nodes)
    args = tuple(
        Ref(arg.name, i)
        for arg in function.signature.inputs
        for i in range(_arg_count(arg, bindings, function.name))
    )
    names = _Names(function, nodes, {a.name for a in function.signature.inputs}, library)
    flat = tuple(replace(n, inputs=tuple(names.flat(r) for r in n.inputs)) for n in nodes)
    rets = []
    for arg in function.signature.outputs:
        ref = function.ret.get(arg.name)
        if ref is None or arg.number_attr or arg.type_list_attr:
            message = f"the function {function.name!r} does not say what its result {arg.name!r} is"
            raise UnsupportedError(message, "export the model again with a newer TensorFlow")
        rets.append(names.flat(ref))
    ends = tuple(dict.fromkeys(function.control_ret.values()))
    return Body(args, flat, tuple(rets), tuple(e for e in ends if e in names.nodes))


class _Names:
    """A conversion of "node:output:index" to a node name and an output index."""

    def __init__(
        self, function: Function, nodes: Sequence[Node], args: set[str], library: Library
    ) -> None:
        self.nodes = {n.name: n for n in nodes}
        self._function = function
        self._args = args
        self._library = library
        self._slots: dict[str, dict[str, tuple[int, int]]] = {}

    def flat(self, ref: Ref) -> Ref:
        if ref.is_control:
            exists = ref.node in self.nodes or ref.node in self._args
            return ref if exists else self._fail(ref)
        if not ref.output:
            return Ref(ref.node, ref.index) if ref.node in self._args else self._fail(ref)
        node = self.nodes.get(ref.node)
        if node is None:
            return self._fail(ref)
        start, count = self._slots_of(node).get(ref.output, (0, 0))
        return Ref(node.name, start + ref.index) if ref.index < count else self._fail(ref)

    def _slots_of(self, node: Node) -> dict[str, tuple[int, int]]:
        if node.name not in self._slots:
            definition = signature_of(node, self._library)
            if definition is None:
                message = (
                    f"the function {self._function.name!r} calls the op {node.op!r}, which is "
                    "unknown"
                )
                raise UnsupportedError(message, "functions with custom ops cannot be parsed")
            self._slots[node.name] = output_slots(node, definition)
        return self._slots[node.name]

    def _fail(self, ref: Ref) -> Ref:
        message = (
            f"the function {self._function.name!r} refers to {str(ref)!r}, which does not exist"
        )
        raise InvalidGraphError(message, "export the model again")


def function_of(body: Body, like: Function, library: Library) -> Function:
    """Return a function with this body, and the other properties of another function."""
    spelt = _Spelling(body, library)
    nodes = tuple(replace(n, inputs=tuple(map(spelt, n.inputs))) for n in body.nodes)
    outputs = [a.name for a in like.signature.outputs]
    ret = {name: spelt(ref) for name, ref in zip(outputs, body.rets, strict=True)}
    names = {n.name for n in nodes}
    control = {k: v for k, v in like.control_ret.items() if v in names}
    return replace(like, nodes=nodes, ret=ret, control_ret=control)


class _Spelling:
    """A conversion of a node name and an output index to "node:output:index"."""

    def __init__(self, body: Body, library: Library) -> None:
        self._args = set(body.args)
        self._nodes = {n.name: n for n in body.nodes}
        self._library = library

    def __call__(self, ref: Ref) -> Ref:
        if ref.is_control or ref in self._args:
            return ref
        node = self._nodes[ref.node]
        definition = signature_of(node, self._library)
        for name, (start, count) in (output_slots(node, definition) if definition else {}).items():
            if start <= ref.index < start + count:
                return Ref(node.name, ref.index - start, name)
        message = f"node {node.name!r} ({node.op}) has no output {ref.index}"
        raise InvalidGraphError(message, "export the model again")


def _bound(node: Node, bindings: Mapping[str, AttrValue]) -> Node:
    """Fill in the attributes that a function's caller determines."""
    if not any(_is_open(v) for v in node.attrs.values()):
        return node
    return replace(node, attrs={k: _filled(v, bindings, node) for k, v in node.attrs.items()})


def _is_open(value: AttrValue) -> bool:
    if value.kind == "func":
        return any(_is_open(v) for v in value.value.attrs.values())
    if value.kind == "list(func)":
        return any(_is_open(v) for func in value.value for v in func.attrs.values())
    return value.kind == _PLACEHOLDER


def _filled(value: AttrValue, bindings: Mapping[str, AttrValue], node: Node) -> AttrValue:
    if not _is_open(value):
        return value

    def filled(func: FuncRef) -> FuncRef:
        attrs = {k: _filled(v, bindings, node) for k, v in func.attrs.items()}
        return FuncRef(func.name, attrs)

    if value.kind == "func":
        return AttrValue("func", filled(value.value))
    if value.kind == "list(func)":
        return AttrValue("list(func)", tuple(map(filled, value.value)))
    binding = bindings.get(value.value)
    if binding is None:
        message = f"the type of the attribute {value.value!r} of {node.name!r} is unknown"
        raise InvalidGraphError(message, "export the model again")
    return binding


def _arg_count(arg: ArgDef, bindings: Mapping[str, AttrValue], function: str) -> int:
    if arg.type_list_attr:
        binding = bindings.get(arg.type_list_attr)
        count = len(binding.value) if binding and binding.kind.startswith("list") else -1
    elif arg.number_attr:
        binding = bindings.get(arg.number_attr)
        count = binding.value if binding and binding.kind == "int" else -1
    else:
        return 1
    if not 0 <= count <= 1 << 20:
        message = f"nothing says how many tensors the argument {arg.name!r} of {function!r} has"
        raise InvalidGraphError(message, "export the model again")
    return int(count)
