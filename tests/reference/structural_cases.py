"""Graphs and chains for the comparison of the structural transforms with the original."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import control
from tests.transforms.graphs import const, node, normal, placeholder

PAIR = {"T": None, "Tindices": DType.INT64, "Tparams": DType.FLOAT}
COLUMN = np.array([[0], [3], [0], [0], [-1e-6], [-2]], np.float32)


@dataclass(frozen=True)
class Case:
    """A graph, a chain, and the names of inputs and outputs."""

    chain: str
    nodes: tuple[Node, ...]
    inputs: str = "x"
    outputs: str = "out"

    @property
    def graph(self) -> Graph:
        return Graph(self.nodes)


def _case(chain: str, *nodes: Node, **names: str) -> Case:
    return Case(chain, (placeholder(), *nodes), **names)


def _placed(base: Node, device: str) -> Node:
    return replace(base, device=device)


def _gather(name: str, column: str, ids: str = "ids", values: object = COLUMN) -> list[Node]:
    return [
        const(column, values),
        node(f"{column}/read", "Identity", column),
        node(name, "Gather", f"{column}/read {ids}", **PAIR),
    ]


def _gather_v2(name: str, column: str, ids: str = "ids") -> list[Node]:
    gather = node(name, "GatherV2", f"{column}/read {ids} {name}/axis", Taxis=DType.INT32, **PAIR)
    axis = const(f"{name}/axis", 0, np.int32)
    return [const(column, COLUMN), node(f"{column}/read", "Identity", column), axis, gather]


OUT = node("out", "Relu", "a")
IDS = placeholder("ids", DType.INT64)
LAYERS = (
    const("w", normal(40, 30)),
    const("b", normal(30, seed=1)),
    _placed(node("product", "MatMul", "x w"), "/gpu:0"),
    node("biased", "BiasAdd", "product b"),
    node("a", "Identity", "biased ^w"),
    node("unused", "Neg", "a"),
    OUT,
)

PURPOSE_BUILT = {
    "strip: unused": _case("strip_unused_nodes", *LAYERS),
    "strip: fed in the middle": _case(
        'strip_unused_nodes(type=float, shape="1,30")', *LAYERS, inputs="product,x"
    ),
    "strip: by name": _case(
        'strip_unused_nodes(name=a, type_for_name=float, shape_for_name="2,3", '
        'name=b, type_for_name=float, shape_for_name="4")',
        *LAYERS,
        inputs="a,b",
    ),
    "strip: output with index": _case("strip_unused_nodes", *LAYERS, outputs="a:0"),
    "remove_nodes: fan-out": _case(
        "remove_nodes(op=Identity)",
        *(node(f"i{i}", "Identity", "x" if i < 3 else f"i{i - 3}:0") for i in range(9)),
        node("sum", "AddN", " ".join(f"i{i}" for i in range(9)), N=9),
        node("a", "Identity", "sum ^i0 ^i7"),
        OUT,
        outputs="out,i4",
    ),
    "remove_nodes: two ops": _case("remove_nodes(op=Relu, op=Identity)", *LAYERS),
    "remove_nodes: two inputs": _case(
        "remove_nodes(op=Sub, max_inputs=2)",
        const("c", 1.0),
        node("d", "Sub", "x c"),
        node("a", "Sub", "d c2"),
        const("c2", 2.0),
        OUT,
    ),
    "remove_nodes: near miss": _case("remove_nodes(op=MatMul)", *LAYERS),
    "merge: rounds": _case(
        "merge_duplicate_nodes",
        *(const(f"c{i}", float(i % 2)) for i in range(6)),
        *(node(f"m{i}", "Mul", f"x c{i}") for i in range(6)),
        *(node(f"n{i}", "Neg", f"m{i}:0") for i in range(6)),
        node("a", "AddN", " ".join(f"n{i}" for i in range(6)), N=6),
        OUT,
        outputs="out,m3",
    ),
    "merge: output with index": _case(
        "merge_duplicate_nodes",
        const("axis", 0, np.int32),
        *(node(f"m{i}", "Neg", f"x ^n{i}") for i in range(3)),
        *(node(f"n{i}", "Relu", "x") for i in range(3)),
        node("halves", "Split", "axis m0", num_split=2),
        node("a", "AddN", "m0 m1 m2", N=3),
        OUT,
        outputs="out,halves:1",
    ),
    "merge: a computed number": _case(
        "fold_constants merge_duplicate_nodes",
        const("c", 5.0),
        const("d", 2.0),
        const("e", 3.0),
        node("sum", "Add", "d e"),
        node("b", "Mul", "x sum"),
        node("a", "Mul", "b c"),
        OUT,
    ),
    "merge: waiting": _case(
        "merge_duplicate_nodes",
        node("p", "Neg", "x"),
        node("q", "Neg", "x"),
        const("c", 1.0, inputs="^p"),
        const("d", 1.0, inputs="^q"),
        node("a", "Add", "c d ^p ^q"),
        OUT,
    ),
    "sort": _case("sort_by_execution_order", *LAYERS[::-1]),
    "remove_device": _case("remove_device", *LAYERS),
    "remove_control_dependencies": _case("remove_control_dependencies", *LAYERS),
    "obfuscate": _case("obfuscate_names", *LAYERS, outputs="out,b"),
    "obfuscate: used numbers": _case(
        "obfuscate_names",
        *(node(str(i), "Relu", str(i - 1) if i else "x") for i in range(70)),
        node("out", "Relu", "69"),
        outputs="out,3,62",
    ),
    "quantize_weights": _case("quantize_weights", *LAYERS),
    "quantize_weights: all sizes": _case("quantize_weights(minimum_size=2)", *LAYERS),
    "quantize_weights: one sign": _case(
        "quantize_weights(minimum_size=4)",
        const("above", np.linspace(3, 9, 50)),
        const("below", np.linspace(-9, -3, 50)),
        const("wide", [3e20, -2e-20, 1.5, -1e20]),
        const("equal", np.full(50, -7.25)),
        const("doubles", np.linspace(-9, -3, 50), np.float64),
        node("out", "Relu", "above"),
    ),
    "round_weights": _case("round_weights", *LAYERS),
    "round_weights: steps": _case("round_weights(num_steps=13)", *LAYERS),
    "round_weights: one sign": _case(
        "round_weights(num_steps=5)",
        const("above", np.linspace(3, 9, 50)),
        const("below", np.linspace(-9, -3, 50)),
        const("equal", np.full(50, 7.25)),
        const("tiny", np.full(50, 5e-7)),
        const("zeros", np.zeros(50)),
        const("few", np.linspace(3, 9, 15)),
        node("out", "Relu", "above"),
    ),
    "remove_attribute": _case("remove_attribute(attribute_name=T)", *LAYERS),
    "remove_attribute: of an op": _case(
        "remove_attribute(attribute_name=T, op_name=Relu)", *LAYERS
    ),
    "rename_attribute": _case(
        "rename_attribute(old_attribute_name=T, new_attribute_name=kind)", *LAYERS
    ),
    "rename_attribute: used name": _case(
        "rename_attribute(old_attribute_name=T, new_attribute_name=kind, op_name=Relu)",
        node("out", "Relu", "x", kind=3),
    ),
    "rename_op": _case("rename_op(old_op_name=BiasAdd, new_op_name=Add)", *LAYERS),
    "set_device": _case('set_device(device="/cpu:0")', *LAYERS),
    "set_device: default": _case('set_device(device="/cpu:0", if_default=true)', *LAYERS),
    "set_device: none": _case("set_device", *LAYERS),
    "add_default_attributes": _case("add_default_attributes", *LAYERS),
    "insert_logging": _case(
        'insert_logging(op=MatMul, op=Identity, message="see", show_op=true, show_name=1, '
        "first_n=3, summarize=7)",
        *LAYERS,
    ),
    "insert_logging: prefixes": _case("insert_logging(prefix=b, prefix=pro)", *LAYERS),
    "insert_logging: later outputs": _case(
        "insert_logging(op=Split)",
        const("axis", 0, np.int32),
        node("halves", "Split", "axis x", num_split=2),
        node("a", "Add", "halves halves:1 ^halves"),
        OUT,
    ),
    "sparsify_gather": _case("sparsify_gather", IDS, *_gather("a", "w"), OUT, inputs="ids"),
    "sparsify_gather: V2": _case("sparsify_gather", IDS, *_gather_v2("a", "w"), OUT, inputs="ids"),
    "sparsify_gather: shared ids": _case(
        "sparsify_gather(group_init_node=init)",
        IDS,
        *_gather("g", "w"),
        *_gather("h", "v", values=np.zeros((3, 1), np.float32)),
        *_gather_v2("i", "u"),
        node("init", "NoOp", "^ids", T=None),
        node("a", "AddN", "g h i", N=3),
        OUT,
        inputs="ids",
    ),
    "sparsify_gather: near miss": _case("sparsify_gather", *LAYERS),
}

CHAINS = [
    "strip_unused_nodes",
    'strip_unused_nodes(type=float, shape="1,2,3")',
    "remove_nodes(op=Identity, op=CheckNumerics)",
    "remove_nodes(op=Relu, op=Relu6)",
    "merge_duplicate_nodes",
    "sort_by_execution_order",
    "remove_device",
    "remove_control_dependencies",
    "obfuscate_names",
    "quantize_weights",
    "quantize_weights(minimum_size=30)",
    "round_weights",
    "round_weights(num_steps=10)",
    "remove_attribute(attribute_name=_class)",
    "rename_attribute(old_attribute_name=T, new_attribute_name=kind, op_name=MatMul)",
    "rename_op(old_op_name=Relu6, new_op_name=Relu)",
    'set_device(device="/cpu:0")',
    "add_default_attributes",
    "insert_logging(op=Conv2D, op=MatMul, op=BiasAdd, show_name=true)",
    "sparsify_gather",
    (
        "strip_unused_nodes remove_nodes(op=Identity) merge_duplicate_nodes quantize_weights "
        "sort_by_execution_order obfuscate_names"
    ),
]

# The networks are large, and the other chains change single nodes.
NETWORK_CHAINS = [
    "strip_unused_nodes",
    "remove_nodes(op=Identity)",
    "merge_duplicate_nodes",
    "sort_by_execution_order",
    "obfuscate_names",
    "quantize_weights",
    "round_weights",
    CHAINS[-1],
]

RANDOM_CHAINS = [
    "remove_nodes(op=Identity)",
    "remove_nodes(op=Identity, op=CheckNumerics, op=Relu)",
    "merge_duplicate_nodes",
    "sort_by_execution_order",
    "strip_unused_nodes",
    "obfuscate_names",
    "remove_control_dependencies merge_duplicate_nodes remove_nodes(op=Identity)",
]


def random_case(seed: int, chain: str, size: int = 40) -> Case:
    """A random graph with duplicates, control inputs, stateful ops, and several outputs."""
    rng = random.Random(seed)
    nodes = [placeholder("x"), placeholder("z"), const("axis", 0, np.int32)]
    for number in range(size):
        nodes.append(_random_node(rng, f"n{rng.randrange(10**6)}_{number}", nodes))
    used = {r.node for n in nodes for r in n.inputs}
    outputs = [n.name for n in nodes[3:] if n.name not in used][:3]
    outputs.append(rng.choice(nodes[3:]).name)
    if seed % 2:
        rng.shuffle(nodes)
    return Case(chain, tuple(nodes), "x,z", ",".join(dict.fromkeys(outputs)))


def _random_node(rng: random.Random, name: str, nodes: list[Node]) -> Node:
    names = [n.name for n in nodes if n.name != "axis"]
    splits = {n.name for n in nodes if n.op == "Split"}

    def source() -> str:
        picked = rng.choice(names[-12:] if rng.random() < 0.6 else names)
        suffix = ":1" if picked in splits and rng.random() < 0.5 else ""
        return picked + (suffix or (":0" if rng.random() < 0.15 else ""))

    ops = ("Identity", "Identity", "Identity", "Relu", "Add", "Add", "Const", "Split", "Random")
    kind = rng.choice((*ops, "CheckNumerics"))
    if kind == "Const":
        new = const(name, float(rng.randrange(3)))
    elif kind == "Random":
        new = node(name, "RandomUniform", "axis", T=DType.INT32, dtype=DType.FLOAT)
    elif kind == "Split":
        new = node(name, kind, f"axis {source()}", num_split=2)
    elif kind == "Add":
        new = node(name, kind, f"{source()} {source()}")
    else:
        new = node(name, kind, source())
    controls = tuple(control(rng.choice(names)) for _ in range(rng.choice((0, 0, 0, 0, 1, 2))))
    return replace(new, inputs=new.inputs + controls)
