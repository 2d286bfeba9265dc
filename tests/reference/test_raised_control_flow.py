"""Raised control flow: TensorFlow, the interpreter, and LiteRT match TensorFlow on the original."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import GATES
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.engines.graph_engines import NumpyEngine, TensorFlowEngine
from mobileprep.transforms.base import Context, make_transform
from tests.litert.graphs import answered
from tests.reference.golden import assert_close
from tests.reference.loop_builds import BUILDS, Build
from tests.reference.newest import from_tensorflow
from tests.reference.test_control_flow import BUILDS as OLDER_BUILDS
from tests.reference.test_control_flow import first, switch_case

pytestmark = pytest.mark.reference

TOLERANCE = 1e-5
INPUTS = [np.array(v, np.float32) for v in ([7, 1, 2], [-1, 2, 2])]
ALL_BUILDS = [*(b for b in OLDER_BUILDS if b is not switch_case), *BUILDS]


def raised(graph: Graph, feeds: dict[str, Array], outputs: list[str], unroll: int = 0) -> Graph:
    context = Context(tuple(feeds), tuple(outputs))
    result = make_transform("raise_control_flow", {"unroll": unroll}).apply(graph, context)
    assert result.matched
    bodies = [n for f in result.graph.library.functions.values() for n in f.nodes]
    ops = {n.op for n in (*result.graph, *bodies)}
    assert not ops & GATES
    assert not any(op.startswith("TensorArray") for op in ops)
    return result.graph


def compare(outputs: list[Array], expected: list[Array]) -> None:
    assert_close(outputs, expected, TOLERANCE)


def litert_file(graph: Graph, inputs: Iterable[str], outputs: list[str]) -> bytes:
    return model_bytes(converted(graph, [CutInput(name) for name in inputs], outputs))


def built(tf: ModuleType, build: Build) -> Graph:
    tf.compat.v1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3], name="x")
        tf.identity(first(build(tf, x)), name="y")
    return from_tensorflow(graph)


@pytest.mark.parametrize("build", ALL_BUILDS, ids=lambda build: build.__name__)
def test_raised_loops_and_branches(build: Build, tf: ModuleType) -> None:
    graph = built(tf, build)
    before = TensorFlowEngine(graph, "before")
    content = litert_file(graph, ["x"], ["y"])
    for unroll in (0, 8):
        after = raised(graph, {"x": INPUTS[0]}, ["y"], unroll)
        engines = [TensorFlowEngine(after, "raised"), NumpyEngine(after, "raised")]
        for array in INPUTS:
            expected = before.run(["y"], {"x": array})
            for engine in engines:
                compare(engine.run(["y"], {"x": array}), expected)
            compare(answered(content, [array]), expected)


@pytest.mark.parametrize("chosen", [-3.0, 0.0, 1.0, 2.0, 7.0])
def test_switch_case(chosen: float, tf: ModuleType) -> None:
    graph = built(tf, switch_case)
    array = np.array([chosen, 1, 2], np.float32)
    expected = TensorFlowEngine(graph, "case").run(["y"], {"x": array})
    content = litert_file(graph, ["x"], ["y"])
    compare(answered(content, [array]), expected)


def recurrent(
    tf: ModuleType,
    kind: str,
    *,
    lengths: bool,
    both: bool,
    batch: int | None,
    time: int | None = 6,
    time_major: bool = False,
) -> Graph:
    """A frozen network of TensorFlow 1 from "x" and "lengths" to "y" and "state"."""
    rnn = pytest.importorskip("tensorflow.python.ops.rnn")
    cells = pytest.importorskip("tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl")
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        sizes = [time, batch] if time_major else [batch, time]
        x = v1.placeholder(tf.float32, [*sizes, 4], name="x")
        fed_lengths = v1.placeholder(tf.int32, [batch], name="lengths") if lengths else None
        layers = [getattr(cells, kind)(5) for _ in range(1 + both)]
        run: Any = rnn.bidirectional_dynamic_rnn if both else rnn.dynamic_rnn
        with v1.variable_scope("net", use_resource=False):
            outputs, state = run(
                *layers, x, sequence_length=fed_lengths, dtype=tf.float32, time_major=time_major
            )
        tf.identity(tf.concat(outputs, 2) if both else outputs, name="y")
        tf.identity(tf.concat(tf.nest.flatten(state), 1), name="state")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            frozen = v1.graph_util.convert_variables_to_constants(
                session, graph.as_graph_def(), ["y", "state"]
            )
    return graph_from_bytes(frozen.SerializeToString(), "recurrent")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", [2, None], ids=["batch-2", "batch-open"])
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both-ways"])
@pytest.mark.parametrize("lengths", [False, True], ids=["full", "lengths"])
@pytest.mark.parametrize("kind", ["BasicRNNCell", "BasicLSTMCell", "LSTMCell", "GRUCell"])
def test_recurrent_networks(
    kind: str, lengths: bool, both: bool, batch: int | None, tf: ModuleType
) -> None:
    graph = recurrent(tf, kind, lengths=lengths, both=both, batch=batch)
    feeds: dict[str, Array] = {
        "x": np.random.default_rng(3).normal(size=(2, 6, 4)).astype(np.float32)
    }
    if lengths:
        feeds["lengths"] = np.array([4, 6], np.int32)
    outputs = ["y", "state"]
    expected = TensorFlowEngine(graph, "before").run(outputs, feeds)
    after = raised(graph, feeds, outputs)
    for engine in (TensorFlowEngine(after, "raised"), NumpyEngine(after, "raised")):
        compare(engine.run(outputs, feeds), expected)
    content = litert_file(graph, feeds, outputs)
    compare(answered(content, list(feeds.values())), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", [2, None], ids=["batch-2", "batch-open"])
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both-ways"])
@pytest.mark.parametrize("lengths", [False, True], ids=["full", "lengths"])
@pytest.mark.parametrize("time_major", [False, True], ids=["batch-first", "time-first"])
def test_recurrent_networks_of_unknown_length(
    time_major: bool, lengths: bool, both: bool, batch: int | None, tf: ModuleType
) -> None:
    graph = recurrent(
        tf,
        "GRUCell" if lengths else "BasicLSTMCell",
        lengths=lengths,
        both=both,
        batch=batch,
        time=None,
        time_major=time_major,
    )
    names, outputs = ["x", *["lengths"] * lengths], ["y", "state"]
    content = litert_file(graph, names, outputs)
    for time, rows in ((6, 2), (1, 2), (9, 2 if batch else 3)):
        shape = (time, rows, 4) if time_major else (rows, time, 4)
        x = np.random.default_rng(time).normal(size=shape).astype(np.float32)
        feeds: dict[str, Array] = {"x": x}
        if lengths:
            feeds["lengths"] = np.array([max(time - 2, 1), time, 1][:rows], np.int32)
        expected = TensorFlowEngine(graph, "before").run(outputs, feeds)
        compare(answered(content, list(feeds.values())), expected)


def doubled(tf: ModuleType, x: Any) -> Any:
    """Elements twice as long as the input."""
    return tf.compat.v1.map_fn(lambda row: tf.concat([row, -row], 0), x)


def pooled(tf: ModuleType, x: Any) -> Any:
    """Elements of half the input's length, written in two branches."""
    halves = tf.nn.avg_pool1d(x, 2, 2, "SAME")
    array = tf.TensorArray(tf.float32, size=tf.shape(x)[1])

    def turn(t: Any, array: Any) -> Any:
        even = tf.equal(t % 2, 0)
        ways = (lambda: array.write(t, halves), lambda: array.write(t, -halves))
        return t + 1, tf.cond(even, *ways)

    goes_on = lambda t, _: t < tf.shape(x)[1]  # noqa: E731
    return tf.compat.v1.while_loop(goes_on, turn, [0, array])[1].stack()


def nested(tf: ModuleType, x: Any) -> Any:
    """A loop in a loop, each with outputs longer than its inputs."""
    inner = lambda row: tf.concat([row, row[:1]], 0)  # noqa: E731
    outer = lambda rows: tf.compat.v1.map_fn(inner, tf.concat([rows, rows], 0))  # noqa: E731
    return tf.compat.v1.map_fn(outer, x)


def masked(tf: ModuleType, x: Any) -> Any:
    """Elements of two inputs, one of them bool."""
    steps = tf.transpose(x, [1, 0, 2])
    turn = lambda total, pair: tf.where(pair[1], total + pair[0], total)  # noqa: E731
    return tf.compat.v1.scan(turn, (steps, steps > 0), initializer=tf.zeros_like(x[:, 0]))


def growing(tf: ModuleType, x: Any) -> Any:
    """An array that grows, of padded elements, until a sum is reached."""
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    padded = tf.pad(x, [[0, 0], [0, 3], [0, 0]])

    def turn(t: Any, array: Any) -> Any:
        return t + 1, array.write(t, padded * tf.cast(t, tf.float32))

    goes_on = lambda t, _: t * 2 < tf.shape(x)[1]  # noqa: E731
    return tf.compat.v1.while_loop(goes_on, turn, [0, array])[1].stack()


@pytest.mark.parametrize("batch", [2, None], ids=["batch-2", "batch-open"])
@pytest.mark.parametrize(
    "build", [doubled, pooled, nested, masked, growing], ids=lambda build: build.__name__
)
def test_elements_of_computed_sizes(build: Build, batch: int | None, tf: ModuleType) -> None:
    tf.compat.v1.disable_control_flow_v2()
    with tf.Graph().as_default() as definition:
        x = tf.compat.v1.placeholder(tf.float32, [batch, None, 4], name="x")
        tf.identity(build(tf, x), name="y")
    graph = from_tensorflow(definition)
    content = litert_file(graph, ["x"], ["y"])
    for time, rows in ((6, 2), (1, 2), (9, 2 if batch else 3)):
        array = np.random.default_rng(time).normal(size=(rows, time, 4)).astype(np.float32)
        expected = TensorFlowEngine(graph, "before").run(["y"], {"x": array})
        compare(answered(content, [array]), expected)
        after = raised(graph, {"x": array}, ["y"])
        compare(NumpyEngine(after, "raised").run(["y"], {"x": array}), expected)
