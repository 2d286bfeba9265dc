"""Observation of tensors during runs, including branches and loops."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.data.calibration.observation import Subject, Watcher, ranges_of
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
    """Batches of given feeds."""

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
    # Use the batch size of the watcher, because matrix products round differently by size.
    parts = [
        Interpreter(layer()).run(names, {"x": rows[at : at + 3]}) for at in range(0, len(rows), 3)
    ]
    arrays = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
    return {t: (a.min(), a.max()) for t, a in zip(TENSORS, arrays, strict=True)}


def test_every_tensor_is_observed_on_every_sample() -> None:
    observation = Watcher(subject("min_max"), samples()).observe(0, 40)
    assert observation.samples == 40
    assert {t: (v.low, v.high) for t, v in observation.values.items()} == expected()
    assert {v.count for v in observation.values.values()} == {160, 120}


def test_watched_arrays_are_not_retained() -> None:
    tensors: list[object] = []
    interpreter = Interpreter(
        layer(), watched=TENSORS, watcher=lambda tensor, array: tensors.append(tensor)
    )
    interpreter.run(["y"], {"x": samples().rows})
    assert tensors == list(TENSORS)


def test_moving_average_continues_across_batches() -> None:
    task = subject("moving_average", tensors=(("x", 0),))
    ranges, _ = ranges_of([Watcher(task, samples()).observe(0, 40)], task.method)
    rows = samples().rows
    average = np.array([rows[:3].min(), rows[:3].max()])
    for at in range(3, 40, 3):
        batch = np.array([rows[at : at + 3].min(), rows[at : at + 3].max()])
        average -= (average - batch) * (np.float32(1) - np.float32(0.9))
    # Float32 sums depend on their order.
    assert list(ranges["x", 0]) == pytest.approx(average.tolist(), rel=1e-6)


def test_fixed_batches_are_filled() -> None:
    fixed = Graph([node if node.name != "x" else placeholder((32, 4)) for node in layer()])
    task = subject("min_max", graph=fixed)
    observation = Watcher(task, samples()).observe(0, 40)
    assert observation.values["x", 0].count == 2 * 32 * 4
    assert observation.samples == 40
    assert observation.values["x", 0].high == samples().rows.max()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["min_max", "percentile", "moving_average"])
def test_nan_and_infinity_are_reported_with_their_sample(method, value) -> None:
    data = samples()
    data.rows[7, 2] = value
    with pytest.raises(AccuracyError) as caught:
        Watcher(subject(method, tensors=(("sum", 0),)), data).observe(0, 40)
    assert caught.value.message == (
        "samples.npz: the tensor 'sum' is NaN or infinite for sample 7; it has no range"
    )
    assert "leave it out" in caught.value.hint


def test_integers_and_empty_tensors_have_no_range() -> None:
    none = np.array([0], np.int32)
    nodes = [p("x"), c("none", none), n("many", "Shape", "x"), n("y", "Slice", "x", "none", "none")]
    graph = Graph(nodes)
    task = of(graph, (("many", 0), ("y", 0), ("x", 0)), ("y", "many"), (2,))
    observation = Watcher(task, Feeds({"x": f32([1, 2])})).observe(0, 1)
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


def test_only_executed_branches_are_observed() -> None:
    tensors = (*tuple((name, 0) for name in ("left", "right", "y")), ("switch", 1))
    task = of(branches(), tensors)
    on, off = np.array(True), np.array(False)
    feeds = Feeds({"x": f32(3), "on": on}, {"x": f32(5), "on": on})
    ranges, _ = ranges_of([Watcher(task, feeds).observe(0, 2)], task.method)
    assert ranges == {("right", 0): (9, 25), ("y", 0): (9, 25), ("switch", 1): (3, 5)}
    both = Feeds({"x": f32(3), "on": on}, {"x": f32(5), "on": off})
    ranges, _ = ranges_of([Watcher(task, both).observe(0, 2)], task.method)
    assert ranges["left", 0] == (-5, -5)
    assert ranges["y", 0] == (-5, 9)


def loop() -> Graph:
    """Double x until it exceeds a hundred."""
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


def test_every_iteration_of_a_loop_is_observed() -> None:
    names = ("enter", "head", "body", "double", "y")
    task = of(loop(), tuple((name, 0) for name in names))
    ranges, _ = ranges_of([Watcher(task, Feeds({"x": f32(3)})).observe(0, 1)], task.method)
    assert {name: ranges[name, 0] for name in names} == {
        "enter": (3, 3),
        "head": (3, 192),
        "body": (3, 96),
        "double": (6, 192),
        "y": (192, 192),
    }


@pytest.mark.parametrize("engine", ["litert", "tensorflow", "openvino", "auto"])
def test_engines_observe_the_same_tensors_as_the_interpreter(engine: str) -> None:
    if engine != "auto":
        pytest.importorskip("ai_edge_litert" if engine == "litert" else engine)
    task = replace(
        subject("min_max"),
        engine=engine,
        among=("litert", "tensorflow", "openvino"),
        convert=tflite_in_memory,
    )
    values = Watcher(task, samples()).observe(0, 40).values
    assert values.keys() == expected().keys()
    for tensor, ends in expected().items():
        np.testing.assert_allclose((values[tensor].low, values[tensor].high), ends, rtol=1e-5)


def test_missing_engine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UnsupportedError, match="OpenVINO is not installed"):
        Watcher(replace(subject("min_max"), engine="openvino"), samples())
