"""Graphs as text: one line for each node, to read, to compare line by line, and to read back.

    graph producer=1482
    x = Placeholder() dtype=float32 shape=<?x2>
    weights = Const() dtype=float32 value=float32<2x2>[1.0, 0.5, -0.5, 2.0]
    y = MatMul(x, weights) T=float32 transpose_a=false transpose_b=false
    function double(a: float32) -> (b: float32) {
      twice = AddV2(a, a) T=float32
      return b = twice:z:0
    }

Attributes are sorted by name. Nodes in loops and functions are indented, which has no meaning.
Large tensors and strings are abbreviated, unless the text is to be read back. Debug information,
shapes of handles, and attributes of function arguments are not part of the text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import numpy as np

from mobileprep.errors import CorruptFileError, InvalidGraphError
from mobileprep.formats.dtypes import DType, dtype_from_text
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrDef, AttrValue, FuncRef, OpDef, TensorShape
from mobileprep.graph.frames import Frames
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import execution_order
from mobileprep.graph.refs import Ref, parse_function_ref, parse_ref
from mobileprep.graph.tensor import MAX_BYTES, Tensor

_MAX_LISTED: Final = 8
"""Maximum number of tensor elements to list."""
_MAX_STRING: Final = 80
_BARE: Final = re.compile(r"\^?[A-Za-z0-9_.][A-Za-z0-9_./\\>:-]*\Z")
_TOKEN: Final = re.compile(
    r"""\s*(?:(b?"(?:[^"\\]|\\.)*")|([\^$@]?[A-Za-z0-9_.+-][A-Za-z0-9_./\\>:+-]*)|(->|\.\.\.|\S))"""
)
_INTEGER: Final = re.compile(r"-?[0-9]+\Z")
_DIMENSIONS: Final = re.compile(r"[0-9?]+(?:x[0-9?]+)*\Z|\*\Z|\Z")
_COMPLEX: Final = frozenset({DType.COMPLEX64, DType.COMPLEX128})
_MAX_DIGITS: Final = 12


def graph_text(graph: Graph, *, full: bool = False) -> str:
    """Return a graph as text that ends with a newline.

    Args:
        full: whether to write all elements of tensors and strings, so that `parse_graph_text` can
            read it.
    """
    return "".join(f"{line}\n" for line in graph_lines(graph, full=full))


def graph_lines(graph: Graph, *, full: bool = False) -> Iterator[str]:
    """Yield the lines of a graph's text; see `graph_text`."""
    versions = graph.versions
    header = ["graph", f"producer={versions.producer}"]
    if versions.min_consumer:
        header.append(f"min_consumer={versions.min_consumer}")
    if versions.bad_consumers:
        header.append(f"bad_consumers={list(versions.bad_consumers)}")
    yield " ".join(header)
    writer = _Writer(full)
    depths = _depths(graph)
    for node in graph:
        yield "  " * depths.get(node.name, 0) + writer.node(node)
    for function in graph.library.functions.values():
        yield from writer.function(function)
    for name, gradient in graph.library.gradients:
        yield f"gradient {_name(name)} = {_name(gradient)}"


def _depths(graph: Graph) -> dict[str, int]:
    """Return the number of loops around each node; empty for a graph with malformed loops."""
    try:
        frames = Frames(execution_order(graph), (), "")
    except InvalidGraphError:
        return {}
    return {name: len(frame.ancestors()) - 1 for name, frame in frames.of_node.items()}


class _Writer:
    def __init__(self, full: bool) -> None:
        self._full = full

    def node(self, node: Node) -> str:
        inputs = ", ".join(_name(str(ref)) for ref in node.inputs)
        device = f" on {json.dumps(node.device)}" if node.device else ""
        return f"{_name(node.name)} = {_name(node.op)}({inputs}){device}{self._attrs(node.attrs)}"

    def function(self, function: Function) -> Iterator[str]:
        signature = function.signature
        inputs, outputs = (
            ", ".join(f"{_name(a.name)}: {_argument(a)}" for a in arguments)
            for arguments in (signature.inputs, signature.outputs)
        )
        stateful = " stateful" if signature.is_stateful else ""
        head = f"function {_name(signature.name)}({inputs}) -> ({outputs}){stateful}"
        yield f"{head}{self._attrs(function.attrs)} {{"
        for declared in signature.attrs:
            default = "" if declared.default is None else f" = {self._value(declared.default)}"
            yield f"  attr {_name(declared.name)}: {json.dumps(declared.kind)}{default}"
        for node in function.nodes:
            yield f"  {self.node(node)}"
        for name, ref in function.ret.items():
            yield f"  return {_name(name)} = {_name(str(ref))}"
        for name, source in function.control_ret.items():
            yield f"  return ^{_name(name)} = {_name(source)}"
        yield "}"

    def _attrs(self, attrs: Mapping[str, AttrValue]) -> str:
        return "".join(f" {_name(k)}={self._value(v)}" for k, v in sorted(attrs.items()))

    def _value(self, value: AttrValue) -> str:
        if value.kind.startswith("list"):
            kind = value.kind[5:-1]
            return "[" + ", ".join(self._plain(kind, item) for item in value.value) + "]"
        return self._plain(value.kind, value.value)

    def _plain(self, kind: str, value: Any) -> str:  # noqa: ANN401 - of any kind
        if kind == "string":
            return self._string(value)
        if kind == "bool":
            return "true" if value else "false"
        if kind == "float":
            return _float(np.float32(value))
        if kind == "type":
            return str(value.short)
        if kind == "shape":
            return _shape(value)
        if kind == "tensor":
            return self._tensor(value)
        if kind == "func":
            return f"@{_name(value.name)}{{{self._attrs(value.attrs).strip()}}}"
        if kind == "placeholder":
            return f"${_name(value)}"
        return "none" if not kind else str(value)

    def _string(self, value: bytes) -> str:
        if len(value) > _MAX_STRING and not self._full:
            digest = hashlib.sha256(value).hexdigest()[:12]
            return f"{_bytes(value[: _MAX_STRING // 2])}...{len(value)} bytes, sha256 {digest}"
        return _bytes(value)

    def _tensor(self, tensor: Tensor) -> str:
        kind = f"{tensor.dtype.short}{_shape(tensor.shape)}"
        if tensor.dtype is DType.STRING:
            texts = [self._string(x) for x in _first(tensor, None if self._full else _MAX_LISTED)]
            rest = tensor.size - len(texts)
            return f"{kind}[{', '.join(texts)}{f', ...{rest} more' if rest else ''}]"
        if tensor.dtype.numpy is None:
            return f'{kind} b"{base64.b64encode(tensor.opaque).decode()}"'
        if tensor.size > _MAX_LISTED and self._full:
            return f'{kind} b"{base64.b64encode(tensor.raw()).decode()}"'
        listed = ", ".join(_element(x, tensor.dtype) for x in _first(tensor, _MAX_LISTED))
        if tensor.size <= _MAX_LISTED:
            return f"{kind}[{listed}]"
        return f"{kind}[{listed}, ...sha256 {tensor.digest()[:12]}]"


def _first(tensor: Tensor, count: int | None) -> list[Any]:
    return list(tensor.array().reshape(-1)[:count])


def _element(value: Any, kind: DType) -> str:  # noqa: ANN401 - a number of numpy
    if kind is DType.BOOL:
        return "true" if value else "false"
    if kind in _COMPLEX:
        return repr(complex(value)).strip("()")
    return _float(value) if kind.is_floating else str(int(value))


def _float(value: Any) -> str:  # noqa: ANN401 - a float of numpy
    """Return the shortest text that represents the same number in its own precision."""
    if not isinstance(value, np.floating) or not np.isfinite(value):
        return str(float(value))
    text = np.format_float_positional(value, trim="0")
    return text if len(text) <= _MAX_DIGITS else np.format_float_scientific(value, trim="0")


def _shape(shape: TensorShape) -> str:
    if shape is None:
        return "<*>"
    return "<" + "x".join("?" if size < 0 else str(size) for size in shape) + ">"


def _name(name: str) -> str:
    return name if _BARE.match(name) else json.dumps(name)


def _bytes(value: bytes) -> str:
    try:
        return json.dumps(value.decode())
    except UnicodeDecodeError:
        return 'b"' + base64.b64encode(value).decode() + '"'


def _argument(argument: ArgDef) -> str:
    if argument.type_list_attr:
        kind = f"${argument.type_list_attr}..."
    else:
        kind = f"${argument.type_attr}" if argument.type_attr else argument.dtype.short
    number = f"${argument.number_attr} * " if argument.number_attr else ""
    return f"{'ref ' if argument.is_ref else ''}{number}{kind}"


def parse_graph_text(text: str, file: str = "graph") -> Graph:
    """Parse the full text of a graph."""
    return _Parser(text, file).graph()


class _Parser:
    """A parser of graph text, line by line and token by token."""

    def __init__(self, text: str, file: str) -> None:
        self._lines = text.splitlines()
        self._file = file
        self._row = -1
        self._tokens: list[str] = []
        self._at = 0

    def graph(self) -> Graph:
        versions = Versions()
        nodes: list[Node] = []
        functions: dict[str, Function] = {}
        gradients: list[tuple[str, str]] = []
        while self._next_line():
            head = self._peek()
            if head == "graph" and self._peek(1) != "=":
                versions = self._versions()
            elif head == "function" and self._peek(1) != "=":
                function = self._function()
                functions[function.name] = function
            elif head == "gradient" and self._peek(1) != "=":
                self._take("gradient")
                name = self._name()
                self._take("=")
                gradients.append((name, self._name()))
            else:
                nodes.append(self._node(inside=False))
            self._end()
        return Graph(nodes, Library(functions, tuple(gradients)), versions)

    def _versions(self) -> Versions:
        self._take("graph")
        values = {name: value.value for name, value in self._attrs().items()}
        if values.keys() - {"producer", "min_consumer", "bad_consumers"}:
            self._fail("unknown version")
        bad = tuple(values.get("bad_consumers", ()))
        return Versions(values.get("producer", 0), values.get("min_consumer", 0), bad)

    def _function(self) -> Function:
        self._take("function")
        name = self._name()
        inputs = self._arguments()
        self._take("->")
        outputs = self._arguments()
        stateful = self._skip("stateful")
        attrs = self._attrs()
        self._take("{")
        declared: list[AttrDef] = []
        nodes: list[Node] = []
        ret: dict[str, Ref] = {}
        control_ret: dict[str, str] = {}
        while True:
            if not self._next_line():
                self._fail(f"function {name!r} has no end")
            if self._skip("}"):
                break
            if self._peek() == "attr" and self._peek(1) != "=":
                declared.append(self._declared())
            elif self._peek() == "return" and self._peek(1) != "=":
                self._take("return")
                result = self._name()
                self._take("=")
                source = self._name()
                if result.startswith("^"):
                    control_ret[result[1:]] = source
                else:
                    ret[result] = parse_function_ref(source)
            else:
                nodes.append(self._node(inside=True))
            self._end()
        controls = tuple(control_ret)
        signature = OpDef(name, inputs, outputs, tuple(declared), controls, is_stateful=stateful)
        return Function(signature, tuple(nodes), ret, control_ret, attrs)

    def _declared(self) -> AttrDef:
        self._take("attr")
        name = self._colon_name()
        kind = self._string().decode()
        return AttrDef(name, kind, self._value() if self._skip("=") else None)

    def _arguments(self) -> tuple[ArgDef, ...]:
        self._take("(")
        arguments: list[ArgDef] = []
        while not self._skip(")"):
            if arguments:
                self._take(",")
            name = self._colon_name()
            is_ref = self._skip("ref")
            kind = self._token()
            number = ""
            if self._skip("*"):
                number, kind = kind[1:], self._token()
            if kind.endswith("..."):
                arguments.append(ArgDef(name, type_list_attr=kind[1:-3], is_ref=is_ref))
            elif kind.startswith("$"):
                argument = ArgDef(name, type_attr=kind[1:], number_attr=number, is_ref=is_ref)
                arguments.append(argument)
            else:
                arguments.append(ArgDef(name, self._dtype(kind), number_attr=number, is_ref=is_ref))
        return tuple(arguments)

    def _colon_name(self) -> str:
        """Parse a name and a colon, which the token of the name may include."""
        name = self._name()
        if name.endswith(":"):
            return name[:-1]
        self._take(":")
        return name

    def _node(self, *, inside: bool) -> Node:
        name = self._name()
        self._take("=")
        op = self._name()
        self._take("(")
        inputs: list[Ref] = []
        while not self._skip(")"):
            if inputs:
                self._take(",")
            text = self._name()
            inputs.append(parse_function_ref(text) if inside else parse_ref(text))
        device = ""
        if self._peek() == "on" and self._peek(1).startswith('"'):
            self._take("on")
            device = self._string().decode()
        return Node(name, op, tuple(inputs), device, self._attrs())

    def _attrs(self) -> dict[str, AttrValue]:
        attrs: dict[str, AttrValue] = {}
        while self._peek() not in ("", "{", "}"):
            name = self._name()
            self._take("=")
            attrs[name] = self._value()
        return attrs

    def _value(self) -> AttrValue:
        token = self._peek()
        if token == "[":
            return self._list()
        if token.startswith(('"', 'b"')):
            return attr.string(self._string())
        if token == "<":
            return attr.shape(self._shape())
        self._at += 1
        if token in ("true", "false"):
            return attr.boolean(token == "true")
        if token == "none":
            return AttrValue("", None)
        if _INTEGER.match(token):
            return attr.integer(int(token))
        if token.startswith("$"):
            return AttrValue("placeholder", token[1:] or self._name())
        if token.startswith("@"):
            return AttrValue("func", self._func(token[1:] or self._name()))
        kind = dtype_from_text(token)
        if kind is None:
            return attr.floating(float(self._number(token)))
        return attr.tensor(self._tensor(kind)) if self._peek() == "<" else attr.dtype(kind)

    def _func(self, name: str) -> FuncRef:
        bound: dict[str, AttrValue] = {}
        if self._skip("{"):
            bound = self._attrs()
            self._take("}")
        return FuncRef(name, bound)

    def _list(self) -> AttrValue:
        self._take("[")
        items: list[AttrValue] = []
        while not self._skip("]"):
            if items:
                self._take(",")
            items.append(self._value())
        kinds = {value.kind for value in items}
        if len(kinds) > 1:
            self._fail("a list has values of several kinds")
        values = tuple(value.value for value in items)
        return AttrValue(f"list({kinds.pop()})" if kinds else "list", values)

    def _shape(self) -> TensorShape:
        self._take("<")
        text = ""
        while not self._skip(">"):
            part = self._token()
            # A token may end with ">".
            text += part
            if part.endswith(">"):
                break
        text = text.rstrip(">")
        if not _DIMENSIONS.match(text):
            self._fail(f"invalid shape <{text}>")
        if text == "*":
            return None
        return tuple(-1 if size == "?" else int(size) for size in text.split("x") if size)

    def _tensor(self, kind: DType) -> Tensor:
        shape = self._shape() or ()
        size = math.prod(shape)
        if min(shape, default=0) < 0 or size * max(kind.itemsize, 1) > MAX_BYTES:
            self._fail(f"invalid tensor shape {list(shape)}")
        if self._peek().startswith('b"'):
            return self._packed(kind, shape, size)
        self._take("[")
        elements: list[Any] = []
        while not self._skip("]"):
            if elements:
                self._take(",")
            is_text = kind is DType.STRING
            elements.append(self._string() if is_text else self._number(self._token(), kind))
        if len(elements) != size:
            self._fail(f"a tensor of {size} elements lists {len(elements)}")
        if kind is DType.STRING:
            strings = np.empty(size, dtype=object)
            strings[:] = elements
            return Tensor(kind, shape, values=strings)
        return Tensor.of(np.array(elements, kind.numpy).reshape(shape), kind)

    def _packed(self, kind: DType, shape: tuple[int, ...], size: int) -> Tensor:
        content = self._string()
        if kind.numpy is None:
            return Tensor(kind, shape, opaque=content)
        if len(content) != size * kind.itemsize:
            self._fail(f"a tensor of {size} elements has {len(content)} bytes")
        return Tensor(kind, shape, content=content)

    def _number(self, token: str, kind: DType = DType.FLOAT) -> Any:  # noqa: ANN401 - as the type
        try:
            if token in ("true", "false") and kind is DType.BOOL:
                return token == "true"
            if kind in _COMPLEX:
                return complex(token)
            if kind.is_floating:
                # Parse in the target precision: a conversion through double could round twice.
                precise = np.dtype(kind.numpy)
                return precise.type(token) if precise.kind == "f" else float(token)
            return int(token)
        except ValueError as error:
            self._fail(f"invalid value {token!r}", error)

    def _dtype(self, text: str) -> DType:
        dtype = dtype_from_text(text)
        if dtype is None:
            self._fail(f"unknown type {text!r}")
        return dtype

    def _string(self) -> bytes:
        token = self._token()
        if not token.startswith(('"', 'b"')):
            self._fail(f"expected a string, found {token!r}")
        try:
            if token.startswith('b"'):
                return base64.b64decode(token[2:-1], validate=True)
            return str(json.loads(token)).encode()
        except ValueError as error:
            self._fail(f"invalid string {token[:40]}", error)

    def _name(self) -> str:
        token = self._token()
        if token.startswith('"'):
            self._at -= 1
            return self._string().decode()
        if not _BARE.match(token):
            self._fail(f"expected a name, found {token!r}")
        return token

    def _next_line(self) -> bool:
        """Move to the next line that is not empty, and return whether there is one."""
        while self._row + 1 < len(self._lines):
            self._row += 1
            line = self._lines[self._row]
            self._tokens, self._at = [], 0
            for string, word, mark in _TOKEN.findall(line):
                self._tokens.append(string or word or mark)
            if self._tokens:
                return True
        return False

    def _end(self) -> None:
        if self._at < len(self._tokens):
            self._fail(f"unexpected {self._tokens[self._at]!r}")

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _token(self) -> str:
        if self._at >= len(self._tokens):
            self._fail("the line ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _take(self, token: str) -> None:
        if not self._skip(token):
            self._fail(f"expected {token!r}, found {self._peek()!r}")

    def _fail(self, what: str, cause: Exception | None = None) -> NoReturn:
        hint = "write it with graph_text(graph, full=True)"
        raise CorruptFileError(what, hint, f"{self._file}:{self._row + 1}") from cause
