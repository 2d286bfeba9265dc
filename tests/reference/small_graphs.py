"""Graphs for constant folding."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor

FLOAT, INT = DType.FLOAT, DType.INT32
A = [0.0, 1.0, 2.0, 3.0]


@dataclass(frozen=True)
class Case:
    """A graph with the tensors that are fed and fetched, and a transform's parameters."""

    graph: Graph
    inputs: str = "x"
    outputs: str = "out"
    options: dict[str, object] = field(default_factory=dict)

    @property
    def chain(self) -> str:
        """The transform in the syntax of the original's command line."""
        arguments = [
            f"{key}={str(one).lower() if isinstance(one, bool) else one}"
            for key, value in self.options.items()
            for one in (value if isinstance(value, tuple) else (value,))
        ]
        return f"fold_constants({', '.join(arguments)})"


def _node(name: str, op: str, inputs: str = "", **attrs: object) -> Node:
    values = {"T": FLOAT, **attrs}
    typed = {k: _attr(v) for k, v in values.items() if v is not None}
    return Node(name, op, tuple(parse_ref(i) for i in inputs.split()), attrs=typed)


def _attr(value: object) -> AttrValue:
    if isinstance(value, AttrValue):
        return value
    if isinstance(value, DType):
        return attr.dtype(value)
    assert isinstance(value, int)
    return attr.integer(value)


def _const(name: str, values: object, kind: object = np.float32, inputs: str = "") -> Node:
    array = np.asarray(values, kind)  # type: ignore[call-overload]
    return constant(name, Tensor.of(array), inputs=tuple(parse_ref(i) for i in inputs.split()))


def _fed(name: str, *shape: int, kind: DType = FLOAT) -> Node:
    return _node(name, "Placeholder", T=None, dtype=kind, shape=attr.shape(shape))


def _any(name: str, kind: DType = FLOAT) -> Node:
    return _node(name, "Placeholder", T=None, dtype=kind)


def _case(*nodes: Node, inputs: str = "x", outputs: str = "out", **options: object) -> Case:
    return Case(Graph(nodes, versions=Versions(27)), inputs, outputs, options)


def _floats(*nodes: Node, inputs: str = "x", outputs: str = "out", **options: object) -> Case:
    return _case(_fed("x", -1, 4), *nodes, inputs=inputs, outputs=outputs, **options)


_COPY = (_const("c", A), _node("d", "Identity", "c"), _node("out", "Add", "d x"))
_HALVES = (_const("axis", 0, np.int32), _node("s", "Split", "axis c", num_split=2))
_BIG = np.ones(10 * 1024 * 256)
_DEFAULT = _node("d", "PlaceholderWithDefault", "c", T=None, dtype=FLOAT, shape=attr.shape((4,)))
_STRINGS = np.array([b"ab", b"c"], object)
_RECORD = AttrValue("list(shape)", ((3, 4),))

FOLDED = {
    "a copy of a constant": _floats(*_COPY),
    "a chain": _floats(
        _const("c", A),
        _const("b", A),
        _node("d", "Mul", "c b"),
        _node("f", "Add", "d c"),
        _node("g", "Mul", "f x"),
        _node("out", "Add", "g d"),
    ),
    "a constant output": _floats(*_COPY, outputs="d,out"),
    "only a constant output": _floats(*_COPY, outputs="d"),
    "a Const output": _floats(_const("c", A), _node("out", "Add", "c x"), outputs="c,out"),
    "spelt out outputs": _floats(
        _const("c", A),
        _node("d", "Identity", "c:0"),
        _node("out", "Add", "d:0 x:0"),
        inputs="x:0",
        outputs="out:0",
    ),
    "an input named twice": _floats(*_COPY, inputs="x,x:0"),
    "control inputs": _floats(
        _const("c", A),
        _node("d", "Identity", "c ^x"),
        _node("g", "Relu", "x"),
        _node("Z", "Relu", "x"),
        _node("d2", "Identity", "d ^g ^x ^Z"),
        _node("out", "Add", "d2 x ^g ^d2"),
    ),
    "control inputs twice": _floats(
        _const("c", A),
        _node("g", "Relu", "x"),
        _node("d", "Identity", "c ^g ^g ^c"),
        _node("out", "Add", "d x ^g ^g ^d"),
    ),
    "control inputs through NoOps": _floats(
        _const("c", A),
        _node("no", "NoOp", "^c", T=None),
        _node("no2", "NoOp", "^no ^x", T=None),
        _node("d", "Identity", "c ^no2 ^no"),
        _node("out", "Add", "d x"),
    ),
    "one of two outputs": _case(
        _fed("x", -1),
        _const("c", A),
        *_HALVES,
        _node("f", "Relu", "x"),
        _node("out", "ConcatV2", "s:1 f axis", N=2, Tidx=INT),
    ),
    "an output of two": _case(
        _fed("x", -1),
        _const("c", A),
        *_HALVES,
        _node("out", "ConcatV2", "s:1 s:0 s:1 x axis", N=4, Tidx=INT),
        outputs="out,s:1",
    ),
    "a constant at the limit": _case(
        _any("x"), _const("c", _BIG), _node("d", "Identity", "c"), _node("out", "Add", "d x")
    ),
    "a constant beyond the limit": _case(
        _any("x"), _const("c", [*_BIG, 1]), _node("d", "Identity", "c"), _node("out", "Add", "d x")
    ),
    "a large intermediate constant": _case(
        _any("x"),
        _const("c", [*_BIG, 1]),
        _const("all", [-1], np.int32),
        _node("r", "Reshape", "c all", Tshape=INT),
        _const("axis", 0, np.int32),
        _node("sum", "Sum", "r axis", Tidx=INT),
        _node("out", "Add", "sum x"),
    ),
    "strings": _case(
        _const("c", _STRINGS, object),
        _node("d", "Identity", "c", T=DType.STRING),
        _any("x", DType.STRING),
        _node("out", "StringJoin", "d x", T=None, N=2),
    ),
    "branches": _case(
        _any("x", DType.BOOL),
        _const("c", A),
        _node("s", "Switch", "c x"),
        _node("i", "Identity", "s:1"),
        _const("k", A, inputs="^i"),
        _node("kk", "Identity", "k"),
        _node("t", "Relu", "s"),
        _node("u", "Add", "kk s:1"),
        _node("m", "Merge", "t u", N=2),
        _node("out", "Relu", "m"),
    ),
    "random numbers": _floats(
        _const("n", [4], np.int32),
        _node("r", "RandomUniform", "n", T=INT, dtype=FLOAT),
        _node("out", "Add", "r x"),
    ),
    "a default that is fed": _floats(
        _const("c", A), _DEFAULT, _node("out", "Add", "d x ^d"), inputs="x,d"
    ),
    "a default that is not fed": _floats(_const("c", A), _DEFAULT, _node("out", "Add", "d x")),
    "several inputs": _case(
        *(_any(f"in_{n}") for n in (7, 34, 101, 5, 66, 8, 90, 12)),
        _node("out", "AddN", " ".join(f"in_{n}" for n in (7, 34, 101, 5, 66, 8, 90, 12)), N=8),
        inputs="in_7,in_34,in_101,in_5,in_66,in_8,in_90,in_12",
    ),
    "denormal numbers": _floats(
        _const("c", [1e-30, 1e-20, 3e-39, 2]),
        _const("b", [1e-10, 1e-20, 1e10, 3]),
        _node("d", "Mul", "c b"),
        _node("out", "Add", "d x"),
    ),
    "a sum over an axis that is named twice": _floats(
        _const("c", np.arange(8).reshape(2, 4)),
        _const("axes", [0, 0], np.int32),
        _node("d", "Sum", "c axes", Tidx=DType.INT32, keep_dims=attr.boolean(False)),
        _node("out", "Add", "d x"),
    ),
    **{
        f"{op} of many numbers": _floats(
            _const("c", np.linspace(0.01, 30, 44, dtype=np.float32).reshape(11, 4)),
            _node("d", op, "c"),
            _node("s", "Sub", "d x"),
            _node("out", "Add", "s d"),
        )
        for op in ("Exp", "Log", "Sqrt", "Rsqrt")
    },
    "a range of floats": _floats(
        *(_const(n, v) for n, v in (("from", 0.0), ("to", 40.0), ("by", 0.1))),
        _node("d", "Range", "from to by", T=None, Tidx=FLOAT),
        _node("s", "Sum", "x axis", Tidx=INT),
        _const("axis", [0, 1], np.int32),
        _node("out", "Add", "s d"),
    ),
    "a list without values": _case(
        _fed("x", 2, 4),
        _const("shape", [-1, 4], np.int32),
        _const("n", 3, np.int32),
        _node("l", "TensorListReserve", "shape n", T=None, element_dtype=FLOAT, shape_type=INT),
        _node("s", "TensorListSetItem", "l n x", T=None, element_dtype=FLOAT),
        _node("out", "TensorListLength", "s", T=None),
    ),
    "an excluded op": _floats(*_COPY, exclude_op=("Identity", "Neg")),
    "an excluded node": _floats(*_COPY, exclude_node=("d",)),
    "a smaller limit": _floats(*_COPY, max_constant_size_in_bytes=15),
}


def _sizes(*nodes: Node, x: Node | None = None, **options: object) -> Case:
    """Reshape y to the shape ``to`` that some nodes compute, and output its shape and rank."""
    return _case(
        x or _fed("x", 3, 4),
        _any("y"),
        _any("z", INT),
        *nodes,
        _node("r", "Reshape", "y to", Tshape=INT),
        _node("sizes", "Shape", "r", out_type=INT),
        _node("rank", "Rank", "r"),
        _node("out", "Add", "sizes z", T=INT),
        _node("out2", "Add", "rank z", T=INT),
        inputs="x,y,z",
        outputs="out,out2",
        **options,
    )


_SHAPE = _node("s", "Shape", "x", out_type=INT)
_PARTLY = _fed("x", -1, 4, 5, 6)


def _cut(name: str, begin: int, end: int, step: int = 1, **masks: int) -> tuple[Node, ...]:
    bounds = [_const(f"{name}/{i}", [v], np.int32) for i, v in enumerate((begin, end, step))]
    names = " ".join(n.name for n in bounds)
    return *bounds, _node(name, "StridedSlice", f"s {names}", T=INT, Index=INT, **masks)


SHAPES = {
    "a known shape": _sizes(_node("to", "Shape", "x", out_type=INT)),
    "a partly known shape": _sizes(_node("to", "Shape", "x", out_type=INT), x=_PARTLY),
    "a slice": _sizes(_SHAPE, *_cut("to", 0, 1)),
    "a slice of a partly known shape": _sizes(_SHAPE, *_cut("to", 1, 3), x=_PARTLY),
    "a slice to the end": _sizes(_SHAPE, *_cut("to", 1, 0, end_mask=1), x=_PARTLY),
    "a slice from the start": _sizes(_SHAPE, *_cut("to", 0, -1, begin_mask=1), x=_PARTLY),
    "a slice by two": _sizes(_SHAPE, *_cut("to", 1, 4, 2), x=_PARTLY),
    "a slice backwards": _sizes(_SHAPE, *_cut("to", 3, 0, -1), x=_PARTLY),
    "sizes packed": _sizes(
        _SHAPE,
        *_cut("a", 1, 2, shrink_axis_mask=1),
        _const("three", 3, np.int32),
        _node("to", "Pack", "a three", T=INT, N=2),
        x=_PARTLY,
    ),
    "known sizes packed": _sizes(
        _SHAPE,
        *_cut("a", 1, 2, shrink_axis_mask=1),
        _const("three", 3, np.int32),
        _node("to", "Pack", "a three", T=INT, N=2),
    ),
    "sizes multiplied": _sizes(
        _SHAPE,
        *_cut("a", 0, 1, shrink_axis_mask=1),
        *_cut("b", 1, 2, shrink_axis_mask=1),
        _node("m", "Mul", "a b", T=INT),
        _node("to", "Pack", "m a", T=INT, N=2),
    ),
    "sizes joined": _sizes(
        _SHAPE,
        *_cut("a", 1, 2),
        _const("five", [5], np.int32),
        _const("axis", 0, np.int32),
        _node("to", "ConcatV2", "a five axis", T=INT, Tidx=INT, N=2),
        x=_PARTLY,
    ),
    "a copied shape": _sizes(_SHAPE, _node("to", "Identity", "s", T=INT), x=_PARTLY),
    "a shape needed twice": _sizes(_SHAPE, _node("to", "Maximum", "s s", T=INT)),
    "two shapes at once": _sizes(
        _node("n", "ShapeN", "x x", out_type=INT, N=2), _node("to", "Maximum", "n n:1", T=INT)
    ),
    "a size and a rank": _sizes(
        _node("size", "Size", "x", out_type=INT),
        _node("rk", "Rank", "x"),
        _node("to", "Pack", "size rk", T=INT, N=2),
    ),
    "the rank of a partly known shape": _sizes(
        _node("size", "Size", "x", out_type=INT),
        _node("rk", "Rank", "x"),
        _node("to", "Pack", "size rk", T=INT, N=2),
        x=_PARTLY,
    ),
    "the shape of a constant": _case(
        _any("x", INT),
        _const("c", A),
        _node("s", "Shape", "c", out_type=INT),
        _node("out", "Add", "s x", T=INT),
    ),
    "the shape of an input that is not fed": _case(
        _any("x", INT),
        _fed("y", 2, 4),
        _node("s", "Shape", "y", out_type=INT),
        _node("out", "Add", "s x", T=INT),
    ),
    "the shape of a second output": _case(
        _any("x", INT),
        _fed("y", 2, 4),
        _const("axis", 1, np.int32),
        _node("h", "Split", "axis y", num_split=2),
        _node("s", "Shape", "h:1", out_type=INT),
        _node("out", "Add", "s x", T=INT),
        inputs="x,y",
    ),
    "excluded shapes": _sizes(_SHAPE, *_cut("to", 0, 1), exclude_op=("Shape",)),
    "recorded shapes": _case(
        _any("n", INT),
        _fed("x", -1, 4),
        _node("i", "Relu", "x", _output_shapes=_RECORD),
        _node("s", "Shape", "i", out_type=INT),
        _node("out", "Add", "s n", T=INT),
        inputs="x,n",
    ),
    "trusted recorded shapes": _case(
        _any("n", INT),
        _fed("x", -1, 4),
        _node("i", "Relu", "x", _output_shapes=_RECORD),
        _node("s", "Shape", "i", out_type=INT),
        _node("out", "Add", "s n", T=INT),
        inputs="x,n",
        clear_output_shapes=False,
    ),
}

REFUSED = {
    "a placeholder that is not fed": _floats(*_COPY, inputs=""),
    "an input that is not a placeholder": _floats(
        _const("c", A), _node("d", "Add", "x c"), _node("out", "Relu", "d"), inputs="d"
    ),
    "an input that is an output": _floats(*_COPY, outputs="out,x"),
    "an input that does not exist": _floats(*_COPY, inputs="y"),
    "an output that does not exist": _floats(*_COPY, outputs="y"),
    "no outputs": _floats(*_COPY, outputs=""),
    "shapes that do not fit": _floats(
        _const("c", A), _const("b", A[:3]), _node("d", "Add", "c b"), _node("out", "Add", "d x")
    ),
    "an index out of range": _floats(
        _const("c", A),
        _const("i", [7], np.int32),
        _node("d", "Gather", "c i", T=None, Tparams=FLOAT, Tindices=INT),
        _node("out", "Add", "d x"),
    ),
}
