"""Registration headers equal those of the original tools, and work in C++."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.building.transforming import transform
from mobileprep.cli.main import main
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2
from mobileprep.graph import attrs
from mobileprep.graph.attrs import AttrDef, AttrValue, OpDef
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import op_def, op_names
from mobileprep.graph.opdefs.kernel_classes import kernel_class
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.targets.build_files import COMPILER_FLAGS
from mobileprep.targets.op_lists import DEFAULT_OPS
from mobileprep.targets.selective_registration import ops_and_kernels, registration_header
from tests.reference.header_tools import (
    Header,
    KernelFinder,
    header_of_1_15,
    header_of_2,
    without_comment,
)
from tests.reference.native import ops_run_in_115, run_program, tool
from tests.reference.networks import NETWORKS, cached_network
from tests.reference.newest import from_tensorflow
from tests.reference.real_graphs import GRAPHS
from tests.reference.saved_models import v1_control_flow
from tests.reference.shipped import ops_run_in_221

pytestmark = pytest.mark.reference

DEFAULTS = "NoOp:NoOp,_Recv:RecvOp,_Send:SendOp"
RELEASES = ["1.15", "2.21"]
MODELS = [
    *GRAPHS,
    "made-qat-mnist-tf115/eval_graph.pbtxt",
    "sugyan-mnist-v1ckpt/graph_regression.pb",
]
DIGITS = Path(__file__).parents[2] / "recipes/digits/model/graph.pbtxt"
LARGEST_TYPE = {"1.15": DType.UINT64, "2.21": DType.UINT2}
PROBES_PER_OP = 60
Ours = Callable[..., list[str]]


@pytest.fixture(scope="module")
def finder(original: Path) -> Iterator[KernelFinder]:
    with KernelFinder(original) as find:
        yield find


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def theirs(request: pytest.FixtureRequest, release: str) -> Header:
    """The original tool of the release."""
    if release == "1.15":
        home = request.getfixturevalue("original")
        return header_of_1_15(home, request.getfixturevalue("finder"))
    tf: ModuleType = request.getfixturevalue("tf")
    if not tf.__version__.startswith("2.21."):
        pytest.skip(f"the tables are of TensorFlow 2.21, not {tf.__version__}")
    return header_of_2()


@pytest.fixture
def find(request: pytest.FixtureRequest, release: str, theirs: Header) -> KernelFinder:
    """The original kernel lookup of the release."""
    if release == "1.15":
        finder: KernelFinder = request.getfixturevalue("finder")
        return finder
    from tensorflow.python.util import _pywrap_kernel_registry

    lookup: KernelFinder = _pywrap_kernel_registry.TryFindKernelClass
    return lookup


@pytest.fixture
def ours(capsys: pytest.CaptureFixture[str], release: str) -> Ours:
    """Run ``mobileprep header`` with some flags, and return the lines after the comment."""

    def run(*flags: str) -> list[str]:
        capsys.readouterr()
        assert main(["header", f"--tensorflow={release}", *flags]) == 0
        return without_comment(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("name", [*MODELS, "mobilenet", "resnet50", "inceptionv3"])
def test_headers_of_real_models_and_keras_networks_are_equal(
    request: pytest.FixtureRequest, ours: Ours, theirs: Header, name: str
) -> None:
    if name in NETWORKS:
        path = cached_network(name).path
    else:
        path = request.getfixturevalue("models") / name
    file_format = "textproto" if path.suffix == ".pbtxt" else "rawproto"
    expected = without_comment(theirs([path], file_format, DEFAULTS))
    assert ours(f"--graphs={path}") == expected


def test_header_of_a_training_graph_is_equal(ours: Ours, theirs: Header, tmp_path: Path) -> None:
    binary = tmp_path / "digits.pb"
    write_graph(binary, read_graph(DIGITS))
    expected = without_comment(theirs([binary], "rawproto", DEFAULTS))
    assert ours(f"--graphs={DIGITS}") == expected


@pytest.mark.parametrize("defaults", [DEFAULTS, "", "all", "NoOp:NoOp"])
def test_headers_of_several_graphs_are_equal(
    models: Path, ours: Ours, theirs: Header, defaults: str
) -> None:
    paths = [models / "arm-kws/Basic_LSTM_S.pb", models / "mtcnn/mtcnn.pb"]
    expected = without_comment(theirs(paths, "rawproto", defaults))
    assert ours(f"--graphs={paths[0]},{paths[1]}", f"--default_ops={defaults}") == expected


@pytest.mark.parametrize("release", ["2.21"], indirect=True)
def test_headers_of_op_lists_are_equal(ours: Ours, theirs: Header, tmp_path: Path) -> None:
    """Only the tool of 2.x reads such lists."""
    path = tmp_path / "ops.json"
    pairs = [["Transpose", "TransposeCpuOp"], ["AccumulateNV2", ""], ["Mine", "MineOp<float>"]]
    path.write_text(json.dumps(pairs))
    expected = without_comment(theirs([path], "ops_list", DEFAULTS))
    assert ours(f"--graphs={path}", "--proto_fileformat=ops_list") == expected


def test_headers_of_odd_graphs_are_equal(
    ours: Ours, theirs: Header, release: str, tmp_path: Path
) -> None:
    """A function library, an op without kernel, a node without kernel, a symbolic gradient."""

    def node(name: str, op: str, **types: DType) -> Node:
        return Node(name, op, attrs={n: attrs.dtype(t) for n, t in types.items()})

    body = Function(OpDef("grow"), (node("exp", "Exp", T=DType.FLOAT),))
    nodes = [
        node("called", "grow"),
        node("sum", "AccumulateNV2", T=DType.FLOAT),
        node("odd", "Relu", T=DType.STRING),
        node("gradient", "SymbolicGradient"),
        node("fine", "Relu", T=DType.HALF).with_attrs(of_tomorrow=attrs.integer(3)),
        node("old", "GatherNd", Tparams=DType.FLOAT, Tindices=DType.INT64),
        node("depth", "DepthToSpace", T=DType.FLOAT),
    ]
    path = tmp_path / "odd.pb"
    write_graph(path, Graph(nodes, Library({"grow": body})))
    expected = without_comment(theirs([path], "rawproto", DEFAULTS))
    assert ours(f"--graphs={path}") == expected
    assert ('     || isequal(op, "Exp")' in expected) == (release == "2.21")


def test_kernel_classes_of_all_ops_and_types_are_equal(find: KernelFinder, release: str) -> None:
    probes = list(_probes(release))
    protos = graph_pb2.GraphDef.FromString(graph_to_bytes(Graph(probes))).node
    wrong = []
    for probe, proto in zip(probes, protos, strict=True):
        expected = _text(find(proto.SerializeToString())) or None
        own = kernel_class(probe, release)
        if own != expected:
            wrong.append(f"{probe.op} {dict(probe.attrs)}: {own} here, {expected} there")
    assert not wrong, "\n".join(wrong[:20])
    assert len(probes) > 10_000


def _text(answer: bytes | str) -> str:
    return answer.decode() if isinstance(answer, bytes) else answer


def _probes(release: str) -> Iterator[Node]:
    """Nodes of every op, with all values of its attributes, or a random sample."""
    chance = random.Random(7)
    for op in op_names(release):
        definition = op_def(op, release)
        assert definition is not None
        choices = {a.name: c for a in definition.attrs if (c := list(_values(a, release)))}
        total = 1
        for values in choices.values():
            total *= len(values)
        if total <= PROBES_PER_OP:
            picked = itertools.product(*choices.values())
        else:
            picked = iter(
                [tuple(chance.choice(v) for v in choices.values()) for _ in range(PROBES_PER_OP)]
            )
        for values in picked:
            pairs = zip(choices, values, strict=True)
            probe_attrs = {n: v for n, v in pairs if v is not None}
            yield Node("probe", op, device="/cpu:0", attrs=probe_attrs)


def _values(attr: AttrDef, release: str) -> Iterator[AttrValue | None]:
    """Values to try for an attribute; None for its default."""
    if attr.kind == "type":
        allowed = (
            attr.allowed.value if attr.allowed is not None else range(1, LARGEST_TYPE[release] + 1)
        )
        yield from (attrs.dtype(DType(t)) for t in allowed)
    elif attr.kind == "list(type)":
        for types in ((), (DType.FLOAT,), (DType.INT32, DType.STRING)):
            yield AttrValue("list(type)", types)
    elif attr.kind == "string" and attr.allowed is not None:
        yield from (attrs.string(text) for text in attr.allowed.value)
    elif attr.kind == "bool":
        yield from (attrs.boolean(False), attrs.boolean(True))
    else:
        return
    if attr.default is not None:
        yield None


PROGRAM = """\
#include <cstdio>
#include "{registration}"
{checks}
int main() {{
  // At run time as well, as in KernelDefBuilder.
  return SHOULD_REGISTER_OP("{op}") && !SHOULD_REGISTER_OP("Frobnicate") ? 0 : 1;
}}
"""


@pytest.mark.parametrize("standard", ["c++11", "c++14", "c++17"])
def test_header_compiles_and_selects_kernels(
    request: pytest.FixtureRequest, models: Path, tmp_path: Path, release: str, standard: str
) -> None:
    """Compile TensorFlow's own header that includes it."""
    graph = read_graph(models / "mtcnn/mtcnn.pb")
    ops = ops_and_kernels([graph], release, functions=True)
    (tmp_path / "ops_to_register.h").write_text(registration_header(ops, release))
    include, registration = _registration_header(request, release)
    checks = [f'static_assert(SHOULD_REGISTER_OP("{pair.op}"), "");' for pair in ops]
    checks += [f'static_assert(SHOULD_REGISTER_OP_KERNEL("{pair.kernel}"), "");' for pair in ops]
    checks += [
        'static_assert(!SHOULD_REGISTER_OP("Conv3D"), "");',
        'static_assert(!SHOULD_REGISTER_OP("Conv2"), "");',
        'static_assert(!SHOULD_REGISTER_OP("Conv2DD"), "");',
        'static_assert(!SHOULD_REGISTER_OP(""), "");',
        'static_assert(!SHOULD_REGISTER_OP_KERNEL("Conv2DOp<CPUDevice, double>"), "");',
        # Registrations differ in their spaces.
        'static_assert(SHOULD_REGISTER_OP_KERNEL("Conv2DOp< CPUDevice,float >"), "");',
        'static_assert(!SHOULD_REGISTER_OP_GRADIENT, "");',
    ]
    source = tmp_path / "program.cc"
    text = PROGRAM.format(registration=registration, checks="\n".join(checks), op=ops[0].op)
    source.write_text(text)
    program = tmp_path / "program"
    command = [tool("g++"), f"-std={standard}", *COMPILER_FLAGS, f"-I{tmp_path}", f"-I{include}"]
    run_program(*command, source, "-o", program)
    run_program(program)
    assert set(DEFAULT_OPS) <= set(ops)


def _registration_header(request: pytest.FixtureRequest, release: str) -> tuple[Path, str]:
    """An include directory, and its header that includes ``ops_to_register.h``."""
    if release == "1.15":
        home: Path = request.getfixturevalue("original")
        include = home / "tensorflow_core" / "include"
        return include, "tensorflow/core/framework/selective_registration.h"
    tf: ModuleType = request.getfixturevalue("tf")
    include = Path(tf.sysconfig.get_include())
    return include, "tensorflow/core/framework/registration/registration.h"


def _branch(tf: ModuleType, x: Any) -> Any:
    return tf.compat.v1.cond(x[0] > 0, lambda: x * 2, lambda: x - 1)


def _loop(tf: ModuleType, x: Any) -> Any:
    return tf.compat.v1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * x), [0, x])[1]


def _branch_in_loop(tf: ModuleType, x: Any) -> Any:
    body = lambda i, y: (i + 1, _branch(tf, y))  # noqa: E731
    return tf.compat.v1.while_loop(lambda i, _: i < 3, body, [0, x])[1]


REPLACED: dict[str, Callable[[ModuleType, Any], Any]] = {
    "branch": _branch,
    "loop": _loop,
    "branch in a loop": _branch_in_loop,
    "function": lambda tf, x: tf.function(lambda y: tf.exp(y))(x),
    "sum": lambda tf, x: tf.raw_ops.AccumulateNV2(inputs=[x, x * 2], shape=[3]),
    "stack": lambda tf, x: tf.raw_ops.ParallelConcat(values=[x[None], x[None]], shape=[2, 3]),
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("fetched", ["out", "itself"])
def test_ops_that_run_are_registered(
    fetched: str, name: str, release: str, original: Path, tf: ModuleType, tmp_path: Path
) -> None:
    """The runtime replaces some ops by others that are not in the file."""
    with tf.Graph().as_default() as built, v1_control_flow(tf, functional=True):
        x = tf.compat.v1.placeholder(tf.float32, [3], "x")
        output = REPLACED[name](tf, x)
        fetch = tf.identity(output, "out").op.name if fetched == "out" else output.op.name
    graph = transform(from_tensorflow(built), "downgrade", inputs=["x"], outputs=[fetch]).graph
    write_graph(tmp_path / "graph.pb", graph)
    feeds = {"x": np.ones(3, np.float32)}
    if release == "1.15":
        ran = ops_run_in_115(original, tmp_path / "graph.pb", feeds, fetch, tmp_path)
    else:
        ran = ops_run_in_221(tf, tmp_path / "graph.pb", feeds, fetch)
    registered = ops_and_kernels([graph], release, functions=True)
    # Every build registers the ops of arguments.
    assert ran - {"_Arg", "_Retval"} <= {pair.op for pair in registered}
