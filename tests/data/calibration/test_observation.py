"""What a run shows of tensors: all of them, in branches and loops too, and what is wrong."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.data.calibration.observation import Subject, Watcher
from mobileprep.data.calibration.ranges import ranges_of
from mobileprep.data.options import Method
from mobileprep.data.source import Batch
from mobileprep.errors import AccuracyError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.building.stages.jobs import placeholder
from tests.data.calibration.graphs import TENSORS, layer, samples, subject
from tests.ops.graphs import c, f32, n, p


class Feeds:
    """Batches that are given as they are to be fed."""

    name = "data"

    def __init__(self, *feeds: dict[str, np.ndarray]) -> None:
        self.feeds = feeds

    def __len__(self) -> int:
        return len(self.feeds)

    def batches(self, size: int, start: int = 0, stop: int | None = None, unread=None):
        for number in range(len(self.feeds))[start:stop]:
            feeds = {name: array[np.newaxis] for name, array in self.feeds[number].items()}
            yield Batch(feeds, None, (f"sample {number}",))


def of(graph: Graph, tensors, fetches=("y",), shape=()) -> Subject:
    """A subject whose placeholders take one sample a run."""
    names = [node.name for node in graph if node.op == "Placeholder"]
    fed = [FedTensor(name, DType.BOOL if name == "on" else DType.FLOAT, shape) for name in names]
    return Subject(graph, fetches, tensors, Method("min_max", 0, 0), tuple(fed), 1)


def expected() -> dict[tuple[str, int], tuple[float, float]]:
    names = [str(Ref(*tensor)) for tensor in TENSORS]
    rows = samples().rows
    # In batches of three, as products of matrices may round by their sizes.
    parts = [
        Interpreter(layer()).run(names, {"x": rows[at : at + 3]}) for at in range(0, len(rows), 3)
    ]
    found = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
    return {t: (a.min(), a.max()) for t, a in zip(TENSORS, found, strict=True)}


def test_every_tensor_is_seen_on_every_sample() -> None:
    observation = Watcher(subject("min_max"), samples()).observe(0, 40)
    assert observation.samples == 40
    assert {t: (v.low, v.high) for t, v in observation.values.items()} == expected()
    assert {v.count for v in observation.values.values()} == {160, 120}


def test_nothing_is_kept_of_what_was_watched() -> None:
    held: list[object] = []
    interpreter = Interpreter(
        layer(), watched=TENSORS, watcher=lambda tensor, array: held.append(tensor)
    )
    interpreter.run(["y"], {"x": samples().rows})
    assert held == list(TENSORS)


def test_a_moving_average_goes_on_from_batch_to_batch() -> None:
    wanted = subject("moving_average", tensors=(("x", 0),))
    found, _ = ranges_of([Watcher(wanted, samples()).observe(0, 40)], wanted.method)
    rows = samples().rows
    average = np.array([rows[:3].min(), rows[:3].max()])
    for at in range(3, 40, 3):
        batch = np.array([rows[at : at + 3].min(), rows[at : at + 3].max()])
        average -= (average - batch) * (np.float32(1) - np.float32(0.9))
    assert list(found["x", 0]) == pytest.approx(
        average.tolist(), rel=1e-6
    )  # of float32 and its order


def test_a_graph_of_a_fixed_batch_is_given_full_ones() -> None:
    fixed = Graph([node if node.name != "x" else placeholder((32, 4)) for node in layer()])
    wanted = subject("min_max", graph=fixed)
    observation = Watcher(wanted, samples()).observe(0, 40)
    assert observation.values["x", 0].count == 2 * 32 * 4
    assert observation.samples == 40
    assert observation.values["x", 0].high == samples().rows.max()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["min_max", "percentile", "moving_average"])
def test_a_tensor_without_a_range_names_its_sample(method, value) -> None:
    data = samples()
    data.rows[7, 2] = value
    with pytest.raises(AccuracyError) as told:
        Watcher(subject(method, tensors=(("sum", 0),)), data).observe(0, 40)
    assert told.value.message == (
        "samples.npz: the tensor 'sum' is NaN or infinite for sample 7; it has no range"
    )
    assert "leave it out" in told.value.hint


def test_whole_numbers_and_empty_tensors_have_no_range() -> None:
    none = np.array([0], np.int32)
    nodes = [p("x"), c("none", none), n("many", "Shape", "x"), n("y", "Slice", "x", "none", "none")]
    graph = Graph(nodes)
    wanted = of(graph, (("many", 0), ("y", 0), ("x", 0)), ("y", "many"), (2,))
    observation = Watcher(wanted, Feeds({"x": f32([1, 2])})).observe(0, 1)
    assert list(observation.values) == [("x", 0)]


def branches() -> Graph:
    return Graph(
        [
            p("x"),
            p("on", np.bool_),
            n("switch", "Switch", "x", "on"),
            n("left", "Neg", "switch:0"),
            n("right", "Square", "switch:1"),
            n("y", "Merge", "left", "right"),
        ]
    )


def test_a_branch_is_seen_where_it_is_taken() -> None:
    tensors = (*tuple((name, 0) for name in ("left", "right", "y")), ("switch", 1))
    wanted = of(branches(), tensors)
    on, off = np.array(True), np.array(False)
    taken = Feeds({"x": f32(3), "on": on}, {"x": f32(5), "on": on})
    found, _ = ranges_of([Watcher(wanted, taken).observe(0, 2)], wanted.method)
    assert found == {("right", 0): (9, 25), ("y", 0): (9, 25), ("switch", 1): (3, 5)}
    both = Feeds({"x": f32(3), "on": on}, {"x": f32(5), "on": off})
    found, _ = ranges_of([Watcher(wanted, both).observe(0, 2)], wanted.method)
    assert found["left", 0] == (-5, -5)
    assert found["y", 0] == (-5, 9)


def loop() -> Graph:
    """y = x doubled until it is above a hundred."""
    return Graph(
        [
            p("x"),
            c("hundred", 100.0),
            n("enter", "Enter", "x", frame_name="f"),
            n("limit", "Enter", "hundred", frame_name="f", is_constant=True),
            n("head", "Merge", "enter", "next"),
            n("more", "Less", "head", "limit"),
            n("cond", "LoopCond", "more"),
            n("switch", "Switch", "head", "cond"),
            n("body", "Identity", "switch:1"),
            n("double", "Add", "body", "body"),
            n("next", "NextIteration", "double"),
            n("y", "Exit", "switch:0"),
        ]
    )


def test_a_loop_is_seen_in_every_iteration() -> None:
    names = ("enter", "head", "body", "double", "y")
    wanted = of(loop(), tuple((name, 0) for name in names))
    found, _ = ranges_of([Watcher(wanted, Feeds({"x": f32(3)})).observe(0, 1)], wanted.method)
    assert {name: found[name, 0] for name in names} == {
        "enter": (3, 3),
        "head": (3, 192),
        "body": (3, 96),
        "double": (6, 192),
        "y": (192, 192),
    }


@pytest.mark.parametrize("engine", ["litert", "tensorflow", "openvino", "auto"])
def test_an_engine_shows_the_tensors_that_the_interpreter_shows(engine: str) -> None:
    if engine != "auto":
        pytest.importorskip("ai_edge_litert" if engine == "litert" else engine)
    asked = replace(
        subject("min_max"),
        engine=engine,
        among=("litert", "tensorflow", "openvino"),
        convert=tflite_in_memory,
    )
    values = Watcher(asked, samples()).observe(0, 40).values
    assert values.keys() == expected().keys()
    for tensor, ends in expected().items():
        np.testing.assert_allclose((values[tensor].low, values[tensor].high), ends, rtol=1e-5)


def test_an_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UnsupportedError, match="OpenVINO is not installed"):
        Watcher(replace(subject("min_max"), engine="openvino"), samples())
