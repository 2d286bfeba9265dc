"""Graphs converted to and run by LiteRT."""

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
from tests.ops.strings.test_conversion import texts
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


def engine_pair(graph: Graph) -> tuple[Engine, Engine]:
    return open_litert(graph), open_engine("numpy", graph, None)


def open_litert(graph: Graph, threads: int = 0) -> Engine:
    return open_engine("litert", graph, None, convert=tflite_in_memory, threads=threads)


def load_recipe_model(name: str) -> Graph:
    """The frozen model of a recipe."""
    graph, checkpoint, _, _, output = TRAINED[name]
    folder = RECIPES / name / "model"
    options = ModelOptions((output,), checkpoint=str(folder / checkpoint))
    return load_model(folder / graph, options, lambda _: None).graph


@pytest.mark.parametrize("shape", [(1, 8, 8, 3), (4, 5, 9, 3)])
def test_agrees_with_the_interpreter(shape: tuple[int, ...]) -> None:
    fetches = ["out", "relu", "sum", "conv", "x", "b"]
    agreement = check_agreement(*engine_pair(GRAPH), fetches, {"x": normal(*shape)})
    assert agreement.largest < 1e-6
    assert (agreement.engine, agreement.reference) == ("litert", "numpy")


@pytest.mark.parametrize("name", TRAINED)
def test_agrees_on_trained_models(name: str) -> None:
    _, _, image, shape, output = TRAINED[name]
    feeds = {image: np.random.default_rng(3).random((5, *shape), np.float32)}
    assert check_agreement(*engine_pair(load_recipe_model(name)), [output], feeds).largest < 1e-5


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
        pytest.param(
            Graph(CHOICE), ["c/merge"], {"x": ROWS, "flag": np.array(True)}, id="true branch"
        ),
        pytest.param(
            Graph(CHOICE), ["c/merge"], {"x": ROWS, "flag": np.array(False)}, id="false branch"
        ),
        pytest.param(Graph(LOOP), ["v/out"], {"x": ROWS}, id="loop"),
        pytest.param(layer("BlockLSTM", 3, 6), ["y"], {"x": sequence(3)}, id="LSTM"),
        pytest.param(filled(), ["find", "size"], WORDS, id="table"),
        pytest.param(GRAPH, ["out:0", "out"], {"relu:0": normal(2, 4, 4, 8)}, id="inner feed"),
    ],
)
def test_agrees_on_other_graphs(
    graph: Graph, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> None:
    assert check_agreement(*engine_pair(graph), fetches, feeds).largest < 1e-6


def test_float64_is_computed_in_float32() -> None:
    graph = Graph([placeholder("x", DType.DOUBLE), node("out", "Exp", "x", T=DType.DOUBLE)])
    agreement = check_agreement(*engine_pair(graph), ["out"], {"x": normal(4).astype(np.float64)})
    assert 0 < agreement.largest < 1e-6


def test_results_are_not_shared_between_runs() -> None:
    engine = open_litert(GRAPH)
    [first] = engine.run(["out"], {"x": normal(1, 8, 8, 3)})
    expected = first.copy()
    engine.run(["out"], {"x": normal(1, 8, 8, 3, seed=1)})
    np.testing.assert_array_equal(first, expected)


def test_conversion_is_cached_by_fetches_and_shapes() -> None:
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
    result = [(*fetches, shape[0]) for fetches, [shape] in conversions]
    assert result == [("out", 1), ("out", 2), ("mean", 1), ("out", 1), ("out", 2)]


@pytest.mark.parametrize(("threads", "expected"), [(3, 3), (0, cores())])
def test_number_of_threads(monkeypatch: pytest.MonkeyPatch, threads: int, expected: int) -> None:
    counts: list[int] = []

    def model(_path: Path, _content: bytes, count: int) -> SimpleNamespace:
        counts.append(count)
        return SimpleNamespace(run=lambda fetches, _feeds: [normal(1) for _ in fetches])

    monkeypatch.setattr(litert_engine, "LiteRtModel", model)
    open_litert(GRAPH, threads).run(["out"], {"x": normal(1, 8, 8, 3)})
    assert counts == [expected]


def test_unsupported_op_is_reported_with_its_node() -> None:
    with pytest.raises(UnsupportedError) as error:
        open_litert(ODD).run(["out"], {"x": normal(3)})
    assert error.value.exit_code == 6
    assert error.value.message == (
        "LiteRT cannot run the graph: Frobnicate 'odd': LiteRT has no such operator"
    )
    assert error.value.hint == "run the graph with another engine"


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
def test_unsupported_graph_is_refused(
    graph: Graph, fetch: str, feeds: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        open_litert(graph).run([fetch], feeds)


@pytest.mark.parametrize(
    ("fetch", "feeds", "message"),
    [
        ("outt", {"x": normal(1, 8, 8, 3)}, "the fetch 'outt' is not in the graph"),
        ("out", {"y": normal(1)}, "the feed 'y' is not in the graph"),
        ("out", {}, "nothing is fed to the placeholder 'x'"),
    ],
)
def test_unknown_names_are_usage_errors(
    fetch: str, feeds: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        open_litert(GRAPH).run([fetch], feeds)


def test_auto_uses_litert_if_it_can_run_the_graph() -> None:
    reasons: list[str] = []
    options = {"among": ["litert"], "convert": tflite_in_memory, "tell": reasons.append}
    engine = open_engine("auto", GRAPH, None, **options)
    engine.run(["out"], {"x": normal(1, 8, 8, 3)})
    assert (engine.name, reasons) == ("litert", [])
    inverse = Graph([placeholder(), node("out", "MatrixInverse", "x")])
    engine = open_engine("auto", inverse, None, **options)
    [result] = engine.run(["out"], {"x": np.diag(np.float32([2, 4]))})
    assert (engine.name, result.tolist()) == ("numpy", [[0.5, 0], [0, 0.25]])
    [reason] = reasons
    assert reason.startswith("litert is not taken: LiteRT cannot run the graph: MatrixInverse ")


def test_auto_skips_litert_if_conversion_fails() -> None:
    def convert(*_: object) -> bytes:
        message = "no good"
        raise InvalidGraphError(message)

    engine = open_engine("auto", GRAPH, None, among=["litert"], convert=convert)
    engine.run(["out"], {"x": normal(1, 8, 8, 3)})
    assert engine.name == "numpy"


@pytest.mark.parametrize("name", TRAINED)
def test_observed_ranges_match_the_interpreter(name: str) -> None:
    graph = load_recipe_model(name)
    tensors = ranged_tensors(graph)
    assert len(tensors) >= 4
    expected, ranges = (observed_ranges(graph, name, tensors, e) for e in ("numpy", "litert"))
    assert ranges.keys() == expected.keys() == set(tensors)
    for tensor, ends in expected.items():
        largest = max(map(abs, ends))
        np.testing.assert_allclose(ranges[tensor], ends, rtol=0, atol=1e-6 * largest)


def observed_ranges(
    graph: Graph, name: str, tensors: tuple[Edge, ...], engine: str
) -> dict[Edge, tuple[float, float]]:
    """The minimum and maximum of each tensor on the samples of a recipe."""
    _, _, image, _, output = TRAINED[name]
    inputs = tuple(data_inputs(graph, [image], {}))
    files = DataFiles("calibration.npz", RECIPES / name / "data" / "calibration.npz")
    data = open_dataset(files, inputs, SampleChoice(100))
    method = Method("min_max", 0, 0)
    subject = Subject(
        graph, (output,), tensors, method, inputs, 16, engine, convert=tflite_in_memory
    )
    values = Watcher(subject, data).observe(0, 100).values
    return {tensor: (observed.low, observed.high) for tensor, observed in values.items()}
