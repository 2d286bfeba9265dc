"""quantize_nodes with ranges: pads between eight-bit layers, in releases that have kernels."""

from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.range_file import RangeFile, TensorRange, range_file_text
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import apply, const, conv, node, normal, op_counts, placeholder, run

NAME = "quantize_nodes"
X = normal(1, 8, 8, 4, seed=3)
PADDINGS = np.array([[0, 0], [1, 2], [2, 1], [0, 0]], np.int32)


def _network(activation="Relu", pad="Pad", tail=(), **attrs):
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 6, seed=1) / 8),
            conv("first", "x w"),
            node("act", activation, "first"),
            const("paddings", PADDINGS, np.int32),
            node("pad", pad, "act paddings", Tpaddings=DType.INT32, **attrs),
            const("w2", normal(3, 3, 6, 5, seed=4) / 4),
            conv("second", "pad w2", padding="VALID"),
            node("out", "Tanh", "second"),
            *tail,
        ]
    )


def _ranges(folder: Path, graph: Graph, *names: str) -> str:
    found = dict(zip(names, Interpreter(graph).run(list(names), {"x": X}), strict=True))
    limits = {n: TensorRange(float(v.min()), float(v.max())) for n, v in found.items()}
    path = folder / "ranges.yaml"
    path.write_text(range_file_text(RangeFile(limits)))
    return str(path)


def _quantized(graph, release="2.21", **options):
    return apply(NAME, graph, tensorflow=release, **options).graph


def _share(graph, before):
    want = run(before, X)
    return np.abs(run(graph, X) - want).max() / np.abs(want).max()


# Tanh gives numbers on both sides of zero, so that zero is some integer in between.
@pytest.mark.parametrize("activation", ["Relu", "Tanh"])
@pytest.mark.parametrize("known", [(), ("x", "pad"), ("x", "act", "pad")])
def test_zeros_around_eight_bit_numbers_are_their_zero_point(activation, known, tmp_path):
    graph = _network(activation)
    given = {"range_file": _ranges(tmp_path, graph, *known)} if known else {"ranges": "dynamic"}
    found = _quantized(graph, **given)
    check_graph(found, "")
    assert found["pad/eightbit"].op == "PadV2"
    assert "Pad" not in op_counts(found)
    # The pad of floats is rounded as the other is, so that the two are the same to a float's last
    # bits where it has the same range.
    assert _share(found, _quantized(graph, "1.15", **given)) < 1e-5
    assert _share(found, graph) < 0.05


def test_activation_inside_the_range_is_removed(tmp_path):
    graph = _network()
    found = _quantized(graph, range_file=_ranges(tmp_path, graph, "x", "act", "pad"))
    assert "Relu" not in op_counts(found)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirrored_borders_are_numbers_that_were_there(mode, tmp_path):
    graph = _network(pad="MirrorPad", mode=mode)
    given = {"range_file": _ranges(tmp_path, graph, "x", "act", "pad")}
    found = _quantized(graph, **given)
    assert found["pad/eightbit"].op == "MirrorPad"
    assert _share(found, _quantized(graph, "1.15", **given)) < 1e-5


def test_padded_and_unpadded_uses_are_quantized_once():
    tail = [const("w3", normal(1, 1, 6, 5, seed=5)), conv("third", "act w3")]
    graph = _network(tail=tail)
    found = apply(NAME, graph, ranges="dynamic", tensorflow="2.21", outputs=("out", "third")).graph
    # Input, activation, and the zero of it.
    assert op_counts(found)["QuantizeV2"] == 3
    old = apply(NAME, graph, ranges="dynamic", outputs=("out", "third")).graph
    assert op_counts(old)["Pad"] == 1
    assert op_counts(old)["QuantizeV2"] == 3


def test_a_pad_whose_floats_are_needed_stays(tmp_path):
    graph = _network(tail=[node("more", "Tanh", "pad")])
    found = apply(NAME, graph, ranges="dynamic", tensorflow="2.21", outputs=("out", "more")).graph
    assert op_counts(found)["Pad"] == 1
    assert op_counts(found)["PadV2"] == 0


def test_without_the_release_pads_stay_float():
    assert op_counts(_quantized(_network(), "1.15", ranges="dynamic"))["Pad"] == 1
