"""Graphs print the same bytes to standard error as in TensorFlow 2.21 and 1.15."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.cli.main import main
from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import control, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.kernel import Printed
from mobileprep.ops.numerics.texts import as_texts
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.logged_ranges import read_range_log
from tests.cli.inception import EIGHT_BIT, inception
from tests.ops.pictures import encoded
from tests.reference.native import run_memmapped, write_as_memmapped
from tests.reference.newest import session
from tests.transforms.graphs import node, placeholder

pytestmark = pytest.mark.reference

X = np.float32([1.0])
SHAPES = [(), (0,), (1,), (7,), (2, 3), (3, 0), (0, 3), (1, 2, 3), (2, 1, 2, 2)]
COUNTS = (-1, 0, 1, 2, 3, 4, 5, 100)
KINDS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
UNSHOWN = ["complex64", "complex128"]
# 1.15 prints bfloat16 as question marks, so only the tests of 2.21 include it.
FLOATS = ["float16", "float32", "float64"]
QUANTIZED = [DType.QINT8, DType.QUINT8, DType.QINT16, DType.QUINT16, DType.QINT32]
ODD = [
    *(0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-40, 1.2e-38),
    *(1e5, 1e6, 1e15, 1e17, 0.1, 1 / 3, 16777217, 65504),
]


def arrays() -> Iterator[tuple[np.ndarray, DType]]:
    """Tensors of every type and of many shapes."""
    generator = np.random.default_rng(0)
    for shape in SHAPES:
        yield generator.normal(size=shape).astype(np.float32), DType.FLOAT
    for name in FLOATS:
        exponents = generator.integers(-30, 30, 40)
        with np.errstate(all="ignore"):
            values = np.array([*ODD, *(generator.normal(size=40) * 10.0**exponents)]).astype(name)
        yield values, _type(values)
    for name in (*KINDS, *UNSHOWN):
        values = generator.integers(0, 100, (2, 3)).astype(name)
        yield values, _type(values)
    for dtype in QUANTIZED:
        yield generator.integers(0, 100, (2, 3)).astype(dtype.numpy), dtype
    yield as_texts([bytes(range(256)), "é'\"".encode()], (2,)), DType.STRING
    yield as_texts([b"a", b"", b"c d", b"e"], (2, 2)), DType.STRING


def _type(array: np.ndarray) -> DType:
    return Tensor.of(array).dtype


def typed(name: str, array: np.ndarray, dtype: DType) -> Node:
    tensor = Tensor.of(array)
    return constant(name, Tensor.packed(array, dtype) if tensor.dtype is not dtype else tensor)


def printing_graph(
    listed: list[tuple[np.ndarray, DType]], op: str, counts: tuple[int, ...] = COUNTS
) -> Graph:
    """A graph that prints each tensor with each count in order."""
    nodes = [placeholder("x").with_attrs(shape=attr.shape((1,)))]
    last = ""
    for i, (array, dtype) in enumerate(listed):
        nodes.append(typed(f"c{i}", array, dtype))
        for count in counts:
            name = f"{dtype.short}{list(array.shape)}_{count}_{i}".translate(_PLAIN)
            printers = (_print if op == "Print" else _text)(name, i, dtype, count)
            if last:
                inputs = (*printers[0].inputs, control(last))
                printers[0] = replace(printers[0], inputs=inputs)
            nodes += printers
            last = printers[-1].name
    return Graph([*nodes, node("y", "Identity", f"x ^{last}")])


_PLAIN = str.maketrans("[], ", "....")


def _print(name: str, i: int, dtype: DType, count: int) -> list[Node]:
    attrs = {
        "T": attr.dtype(DType.FLOAT),
        "U": AttrValue("list(type)", (dtype,)),
        "message": attr.string(f";{name}__print__;"),
        "first_n": attr.integer(-1),
        "summarize": attr.integer(count),
    }
    return [Node(name, "Print", (parse_ref("x"), parse_ref(f"c{i}")), attrs=attrs)]


def _text(name: str, i: int, dtype: DType, count: int) -> list[Node]:
    attrs = {
        "T": AttrValue("list(type)", (dtype,)),
        "template": attr.string(f"{name}: {{}}."),
        "placeholder": attr.string("{}"),
        "summarize": attr.integer(count),
    }
    text = Node(f"{name}_text", "StringFormat", (parse_ref(f"c{i}"),), attrs=attrs)
    shown = {"output_stream": attr.string("stderr"), "end": attr.string("!\n")}
    return [text, Node(name, "PrintV2", (parse_ref(text.name),), attrs=shown)]


def ours(graph: Graph) -> list[str]:
    outputs: list[Printed] = []
    Interpreter(graph, printer=outputs.append).run(["y"], {"x": X})
    assert {o.stream for o in outputs} == {"stderr"}
    return "".join(o.text for o in outputs).splitlines()


def newest(tf: ModuleType, graph: Graph, capfd: pytest.CaptureFixture[str]) -> list[str]:
    with session(tf, graph) as opened:
        capfd.readouterr()
        opened.run("y:0", {"x:0": X})
    return capfd.readouterr().err.splitlines()


def oldest(original: Path, graph: Graph, folder: Path) -> str:
    """Run TensorFlow 1.15, and return its standard error."""
    write_as_memmapped(folder / "model", graph)
    return run_memmapped(original, folder / "model", "x", "y", X).stderr


@pytest.mark.parametrize("op", ["Print", "PrintV2"])
def test_printed_tensors_match_tensorflow_2(
    tf: ModuleType, capfd: pytest.CaptureFixture[str], op: str
) -> None:
    narrow = np.random.default_rng(1).normal(size=(3, 4)).astype(DType.BFLOAT16.numpy)
    # 2.21 prints no ellipsis when none of the booleans are requested.
    counts = tuple(c for c in COUNTS if c)
    # 2.21 does not escape strings, so their lines look like log lines.
    listed = [(a, t) for a, t in arrays() if t is not DType.STRING or a.ndim == 2]
    graph = printing_graph([*listed, (narrow, DType.BFLOAT16)], op, counts)
    assert ours(graph) == newest(tf, graph, capfd)


@pytest.mark.parametrize("op", ["Print", "PrintV2"])
def test_printed_tensors_match_tensorflow_1_15(original: Path, tmp_path: Path, op: str) -> None:
    graph = printing_graph(list(arrays()), op)
    assert ours(graph) == oldest(original, graph, tmp_path).splitlines()


def test_assertion_message_matches_tensorflow_1_15(original: Path, tmp_path: Path) -> None:
    listed = [(a, t) for a, t in arrays() if t is not DType.STRING or a.ndim == 2]
    nodes = [placeholder("x").with_attrs(shape=attr.shape((1,)))]
    nodes += [typed(f"c{i}", a, t) for i, (a, t) in enumerate(listed)]
    types = AttrValue("list(type)", tuple(t for _, t in listed))
    check = node("check", "Assert", " ".join(["no", *(f"c{i}" for i in range(len(listed)))]))
    check = check.with_attrs(T=types, summarize=attr.integer(4))
    nodes += [typed("no", np.array(False), DType.BOOL), check, node("y", "Identity", "x ^check")]
    with pytest.raises(InvalidGraphError) as caught:
        Interpreter(Graph(nodes)).run(["y"], {"x": X})
    message = caught.value.message.removeprefix("node 'check' (Assert): ")
    printed = oldest(original, Graph(nodes), tmp_path)
    assert printed.split("\n")[0] == f"ERROR Invalid argument: {message}"


@pytest.mark.usefixtures("tf")
def test_logged_ranges_match_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")  # to log lines of TensorFlow, too
    write_graph(Path("g.pb"), inception())
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Path("photo.png").write_bytes(encoded(pixels, "PNG"))
    logging = 'insert_logging(op=RequantizationRange, show_name=true, message="__requant_min_max:")'
    flags = ["--in_graph=g.pb", "--out_graph=logged.pb", "--inputs=Mul", "--outputs=softmax"]
    assert main(["transform_graph", *flags, f"--transforms={EIGHT_BIT} {logging}"]) == 0
    code = "import sys; from mobileprep.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "label_image", "--graph=logged.pb", "--image=photo.png"]
    ranges = {}
    for engine in ("numpy", "tensorflow"):
        more = ["--input_layer=Mul", "--output_layer=softmax", f"--engine={engine}"]
        with Path("log").open("wb") as log:
            subprocess.run([*command, *more], stderr=log, check=True, timeout=300)
        ranges[engine] = read_range_log(Path("log"))
    assert "conv/Conv2D/eightbit/requant_range" in ranges["numpy"]
    assert ranges["numpy"].keys() == ranges["tensorflow"].keys()
    for name, (own,) in ranges["numpy"].items():
        (theirs,) = ranges["tensorflow"][name]
        # A mean that differs in its last digit can be quantized to the next level.
        close = 3 / 255 * (theirs.high - theirs.low) if name.startswith("biased") else 0
        np.testing.assert_allclose(own, theirs, rtol=1e-6, atol=close)
