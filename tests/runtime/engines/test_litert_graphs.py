"""Graphs run by LiteRT, which they are converted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mobileprep.core.parallel import cores
from mobileprep.data.calibration.observation import Subject, Watcher
from mobileprep.data.opening import DataFiles, open_dataset
from mobileprep.data.options import Method
from mobileprep.data.source import SampleChoice, data_inputs
from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.loading import ModelOptions, load_model
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.runtime.engines import litert_engine
from mobileprep.runtime.engines.agreement import Engine, check_agreement
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.transforms.quantize_nodes import ranged_tensors
from tests.litert.test_convert import network
from tests.litert.test_recurrent import layer, sequence
from tests.ops.lookup.test_tables import filled
from tests.ops.strings.test_joining import texts
from tests.transforms.graphs import const, conv, node, normal, placeholder
from tests.transforms.test_raise_control_flow import FLAG, choice, doubling

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")

RECIPES = Path(__file__).parents[3] / "recipes"
GRAPH = Graph(
    [
        placeholder(),
        const("w", normal(3, 3, 3, 8)),
        conv("conv", "x w"),
        const("b", normal(8, seed=1)),
        node("sum", "BiasAdd", "conv b"),
        node("relu", "Relu", "sum"),
        const("axes", [1, 2], np.int32),
        node("mean", "Mean", "relu axes", Tidx=DType.INT32, keep_dims=False),
        node("out", "Softmax", "mean"),
    ]
)
ODD = Graph([placeholder(), node("odd", "Frobnicate", "x"), node("out", "Relu", "odd")])
TRAINED = {
    "digits": ("graph.pbtxt", "model.ckpt-1000", "image", (8, 8, 1), "probabilities"),
    "mnist": ("graph.pbtxt", "model.ckpt-4000", "image", (28, 28, 1), "probabilities"),
}


def engines(graph: Graph) -> tuple[Engine, Engine]:
    return opened(graph), open_engine("numpy", graph, None)


def opened(graph: Graph, threads: int = 0) -> Engine:
    return open_engine("litert", graph, None, convert=tflite_in_memory, threads=threads)


def trained(name: str) -> Graph:
    """The frozen graph of a recipe."""
    graph, checkpoint, _, _, output = TRAINED[name]
    folder = RECIPES / name / "model"
    options = ModelOptions((output,), checkpoint=str(folder / checkpoint))
    return load_model(folder / graph, options, lambda _: None).graph


@pytest.mark.parametrize("shape", [(1, 8, 8, 3), (4, 5, 9, 3)])
def test_it_agrees_with_the_interpreter(shape: tuple[int, ...]) -> None:
    fetches = ["out", "relu", "sum", "conv", "x", "b"]
    agreement = check_agreement(*engines(GRAPH), fetches, {"x": normal(*shape)})
    assert agreement.largest < 1e-6
    assert (agreement.engine, agreement.reference) == ("litert", "numpy")


@pytest.mark.parametrize("name", TRAINED)
def test_it_agrees_on_trained_networks(name: str) -> None:
    _, _, image, shape, output = TRAINED[name]
    feeds = {image: np.random.default_rng(3).random((5, *shape), np.float32)}
    assert check_agreement(*engines(trained(name)), [output], feeds).largest < 1e-5


ROWS = normal(3)
CHOICE = [placeholder(), FLAG, *choice()]
LOOP = [placeholder(), *doubling()]
WORDS = {"words": texts("no", "?")}


@pytest.mark.parametrize(
    ("graph", "fetches", "feeds"),
    [
        pytest.param(
            network(), ["probabilities", "norm"], {"image": normal(1, 8, 8, 3)}, id="network"
        ),
        pytest.param(Graph(CHOICE), ["c/merge"], {"x": ROWS, "flag": np.array(True)}, id="taken"),
        pytest.param(
            Graph(CHOICE), ["c/merge"], {"x": ROWS, "flag": np.array(False)}, id="not taken"
        ),
        pytest.param(Graph(LOOP), ["v/out"], {"x": ROWS}, id="loop"),
        pytest.param(layer("BlockLSTM", 3, 6), ["y"], {"x": sequence(3)}, id="LSTM"),
        pytest.param(filled(), ["find", "size"], WORDS, id="table"),
        pytest.param(GRAPH, ["out:0", "out"], {"relu:0": normal(2, 4, 4, 8)}, id="inner feed"),
    ],
)
def test_it_agrees_on_other_graphs(
    graph: Graph, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> None:
    assert check_agreement(*engines(graph), fetches, feeds).largest < 1e-6


def test_double_precision_is_computed_in_single() -> None:
    graph = Graph([placeholder("x", DType.DOUBLE), node("out", "Exp", "x", T=DType.DOUBLE)])
    agreement = check_agreement(*engines(graph), ["out"], {"x": normal(4).astype(np.float64)})
    assert 0 < agreement.largest < 1e-6


def test_runs_do_not_share_their_results() -> None:
    engine = opened(GRAPH)
    [first] = engine.run(["out"], {"x": normal(1, 8, 8, 3)})
    kept = first.copy()
    engine.run(["out"], {"x": normal(1, 8, 8, 3, seed=1)})
    np.testing.assert_array_equal(first, kept)


def test_a_graph_is_converted_once_for_its_fetches_and_shapes() -> None:
    conversions: list[tuple[Sequence[str], list[tuple[int, ...]]]] = []

    def convert(
        graph: Graph, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], where: str
    ) -> bytes:
        conversions.append((fetches, [array.shape for array in feeds.values()]))
        return tflite_in_memory(graph, feeds, fetches, where)

    engine = open_engine("litert", GRAPH, None, convert=convert)
    runs = [("out", 1), ("out", 2), ("out", 1), ("mean", 1), ("out", 1), ("out", 2)]
    for fetch, count in runs:
        engine.run([fetch], {"x": normal(count, 8, 8, 3)})
    found = [(*fetches, shape[0]) for fetches, [shape] in conversions]
    assert found == [("out", 1), ("out", 2), ("mean", 1), ("out", 1), ("out", 2)]


@pytest.mark.parametrize(("threads", "expected"), [(3, 3), (0, cores())])
def test_it_takes_as_many_threads_as_asked_for_or_all(
    monkeypatch: pytest.MonkeyPatch, threads: int, expected: int
) -> None:
    made: list[int] = []

    def model(_path: Path, _content: bytes, count: int) -> SimpleNamespace:
        made.append(count)
        return SimpleNamespace(run=lambda fetches, _feeds: [normal(1) for _ in fetches])

    monkeypatch.setattr(litert_engine, "LiteRtModel", model)
    opened(GRAPH, threads).run(["out"], {"x": normal(1, 8, 8, 3)})
    assert made == [expected]


def test_an_op_that_it_lacks_is_refused_with_its_node() -> None:
    with pytest.raises(UnsupportedError) as caught:
        opened(ODD).run(["out"], {"x": normal(3)})
    assert caught.value.exit_code == 6
    assert caught.value.message == (
        "LiteRT cannot run the graph: Frobnicate 'odd': LiteRT has no such operator"
    )
    assert caught.value.hint == "run the graph with another engine"


@pytest.mark.parametrize(
    ("graph", "fetch", "feeds", "message"),
    [
        (
            Graph([placeholder("x", DType.STRING), node("out", "Identity", "x", T=DType.STRING)]),
            "out",
            {"x": texts("a")},
            "LiteRT has no operators on string",
        ),
        (GRAPH, "out", {"x": normal(3)}, r"shape \[3\] must have rank 4"),
        (Graph(LOOP), "v/twice", {"x": ROWS}, "LiteRT cannot run the graph: "),
        (GRAPH, "out:3", {"x": normal(1, 8, 8, 3)}, "'out:3' puts nothing out"),
    ],
)
def test_what_cannot_be_converted_is_refused(
    graph: Graph, fetch: str, feeds: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        opened(graph).run([fetch], feeds)


@pytest.mark.parametrize(
    ("fetch", "feeds", "message"),
    [
        ("outt", {"x": normal(1, 8, 8, 3)}, "the fetch 'outt' is not in the graph"),
        ("out", {"y": normal(1)}, "the feed 'y' is not in the graph"),
        ("out", {}, "nothing is fed to the placeholder 'x'"),
    ],
)
def test_wrong_names_are_the_users(fetch: str, feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opened(GRAPH).run([fetch], feeds)


def test_auto_takes_it_and_goes_on_where_it_cannot_run_the_graph() -> None:
    reasons: list[str] = []
    options = {"among": ["litert"], "convert": tflite_in_memory, "tell": reasons.append}
    engine = open_engine("auto", GRAPH, None, **options)
    engine.run(["out"], {"x": normal(1, 8, 8, 3)})
    assert (engine.name, reasons) == ("litert", [])
    inverse = Graph([placeholder(), node("out", "MatrixInverse", "x")])
    engine = open_engine("auto", inverse, None, **options)
    [found] = engine.run(["out"], {"x": np.diag(np.float32([2, 4]))})
    assert (engine.name, found.tolist()) == ("numpy", [[0.5, 0], [0, 0.25]])
    [reason] = reasons
    assert reason.startswith("litert is not taken: LiteRT cannot run the graph: MatrixInverse ")


def test_auto_goes_on_where_the_converter_calls_the_graph_invalid() -> None:
    def convert(*_: object) -> bytes:
        message = "no good"
        raise InvalidGraphError(message)

    engine = open_engine("auto", GRAPH, None, among=["litert"], convert=convert)
    engine.run(["out"], {"x": normal(1, 8, 8, 3)})
    assert engine.name == "numpy"


@pytest.mark.parametrize("name", TRAINED)
def test_calibrated_ranges_are_those_of_the_interpreter(name: str) -> None:
    graph = trained(name)
    tensors = ranged_tensors(graph)
    assert len(tensors) >= 4
    expected, found = (calibrated(graph, name, tensors, e) for e in ("numpy", "litert"))
    assert found.keys() == expected.keys() == set(tensors)
    for tensor, ends in expected.items():
        largest = max(map(abs, ends))
        np.testing.assert_allclose(found[tensor], ends, rtol=0, atol=1e-6 * largest)


def calibrated(
    graph: Graph, name: str, tensors: tuple[Edge, ...], engine: str
) -> dict[Edge, tuple[float, float]]:
    """The least and the greatest value of each tensor on the samples of a recipe."""
    _, _, image, _, output = TRAINED[name]
    inputs = tuple(data_inputs(graph, [image], {}))
    files = DataFiles("calibration.npz", RECIPES / name / "data" / "calibration.npz")
    data = open_dataset(files, inputs, SampleChoice(100))
    method = Method("min_max", 0, 0)
    subject = Subject(
        graph, (output,), tensors, method, inputs, 16, engine, convert=tflite_in_memory
    )
    values = Watcher(subject, data).observe(0, 100).values
    return {tensor: (seen.low, seen.high) for tensor, seen in values.items()}
