"""Loops, branches, and calls of both control flow versions match TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.runtime.interpreter import Interpreter
from tests.reference.newest import from_tensorflow

pytestmark = pytest.mark.reference

Feeds = dict[str, np.ndarray]
Build = Callable[[Any, Any], Any]
"""From TensorFlow and the placeholder "x" to the output tensor."""


def first(results: Any) -> Any:
    """The first of several tensors, or the only one."""
    return results[0] if isinstance(results, list | tuple) else results


def collatz(tf: Any, x: Any) -> Any:
    """Branches in a loop: halve or triple, counting the steps."""

    def body(value: Any, steps: Any) -> Any:
        even = tf.equal(value % 2, 0)
        return tf.cond(even, lambda: value // 2, lambda: 3 * value + 1), steps + 1

    return tf.while_loop(lambda v, s: tf.greater(v, 1), body, [tf.cast(x[0], tf.int32), 0])[1]


def nested_loops(tf: Any, x: Any) -> Any:
    """A loop in a loop, reading a tensor from outside both."""

    def outer(i: Any, total: Any) -> Any:
        def inner(j: Any, part: Any) -> Any:
            return j + 1, part + x[0] * tf.cast(i * j, tf.float32)

        _, part = tf.while_loop(lambda j, _: j < i, inner, [0, tf.zeros([])])
        return i + 1, total + part

    return tf.while_loop(lambda i, _: i < 5, outer, [0, tf.zeros([])])[1]


def loop_in_branch(tf: Any, x: Any) -> Any:
    """A loop in one branch, a constant in the other."""

    def doubled() -> Any:
        return first(tf.while_loop(lambda v: v < 100.0, lambda v: [v * 2.0], [x[0]]))

    return tf.cond(x[0] > 0, doubled, lambda: -1.0)


def branches_in_branches(tf: Any, x: Any) -> Any:
    """Four leaves."""
    return tf.cond(
        x[0] > 0,
        lambda: tf.cond(x[0] > 2, lambda: x * 2, lambda: x + 10),
        lambda: tf.cond(x[0] < -2, lambda: -x, lambda: tf.zeros_like(x)),
    )


def no_iterations(tf: Any, x: Any) -> Any:
    """A loop whose condition is false at first."""
    return tf.while_loop(lambda v: v > 1e9, lambda v: [v * 2.0], [x[0]])


def array_of_squares(tf: Any, x: Any) -> Any:
    """A TensorArray that is written and stacked."""
    count = tf.shape(x)[0]
    squares = tf.TensorArray(tf.float32, size=count)

    def body(i: Any, array: Any) -> Any:
        return i + 1, array.write(i, x[i] * x[i])

    _, squares = tf.while_loop(lambda i, _: i < count, body, [0, squares])
    return squares.stack()


def convolution_in_a_loop(tf: Any, x: Any) -> Any:
    """Weights from outside, and an activation in each iteration."""
    filters = tf.constant(np.random.default_rng(1).normal(0, 0.3, (3, 3, 1, 1)).astype(np.float32))
    image = tf.reshape(tf.tile(x[:1], [25]), [1, 5, 5, 1])
    body = lambda i, v: (i + 1, tf.nn.relu(tf.nn.conv2d(v, filters, 1, "SAME") + 0.1))  # noqa: E731
    return tf.while_loop(lambda i, _: i < 3, body, [0, image])[1]


def constant_results(tf: Any, x: Any) -> Any:
    """Both branches give constants."""
    return tf.cond(x[0] > 0, lambda: tf.constant([1.0, 2.0]), lambda: tf.constant([3.0, 4.0]))


def switch_case(tf: Any, x: Any) -> Any:
    """One of three branches by number."""
    index = tf.cast(tf.clip_by_value(x[0], 0, 2), tf.int32)
    return tf.switch_case(index, [lambda: x, lambda: x * 2, lambda: x * 3])


BUILDS: list[Build] = [
    *(collatz, nested_loops, loop_in_branch, branches_in_branches, no_iterations),
    *(array_of_squares, convolution_in_a_loop, constant_results, switch_case),
]
INPUTS = [
    np.array(v, np.float32) for v in ([7, 1, 2], [1, 5, 3], [-1, 2, 2], [-3, 0, 1], [97, 9, 9])
]


CASES = [
    pytest.param(build, generation, id=f"{build.__name__}-v{generation}")
    for build in BUILDS
    for generation in (1, 2)
]


@pytest.mark.parametrize("combine", [True, False], ids=["combined", "plain"])
@pytest.mark.parametrize(("build", "generation"), CASES)
def test_control_flow(build: Build, generation: int, combine: bool, tf: ModuleType) -> None:
    with tf.Graph().as_default() as graph:
        switch = (
            tf.compat.v1.enable_control_flow_v2
            if generation == 2
            else tf.compat.v1.disable_control_flow_v2
        )
        switch()
        x = tf.compat.v1.placeholder(tf.float32, [3], name="x")
        tf.identity(first(build(tf, x)), name="y")
        runner = Interpreter(from_tensorflow(graph), combine=combine)
        with tf.compat.v1.Session(graph=graph) as session:
            for array in INPUTS:
                (ours,) = runner.run(["y"], {"x": array})
                compare(ours, session.run("y:0", {"x:0": array}))


def test_nested_function_calls(tf: ModuleType) -> None:
    @tf.function
    def inner(v: Any) -> Any:
        return v * 2 + 1, v - 1

    @tf.function
    def outer(v: Any) -> Any:
        a, b = inner(v)
        c, d = inner(a)
        return a + b + c * d

    check_function(tf, outer, [tf.TensorSpec([3], tf.float32)])


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("unroll", [False, True])
def test_recurrent_layer(cell: str, unroll: bool, tf: ModuleType) -> None:
    layer = getattr(tf.keras.layers, cell)(4, return_sequences=True, unroll=unroll)
    spec = tf.TensorSpec([2, 5, 3], tf.float32)
    layer(tf.zeros(spec.shape))
    run = tf.function(lambda v: layer(v))
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2 as freeze,
    )

    frozen = freeze(run.get_concrete_function(spec), lower_control_flow=False)
    x = np.random.default_rng(2).normal(size=spec.shape).astype(np.float32)
    graph = from_tensorflow(frozen.graph)
    (ours,) = Interpreter(graph).run([frozen.outputs[0].name], {frozen.inputs[0].op.name: x})
    compare(ours, run(x).numpy())


def check_function(tf: ModuleType, run: Any, specs: list[Any]) -> None:
    with tf.Graph().as_default() as graph:
        inputs = [
            tf.compat.v1.placeholder(s.dtype, s.shape, name=f"x{i}") for i, s in enumerate(specs)
        ]
        tf.identity(run(*inputs), name="y")
        rng = np.random.default_rng(3)
        arrays = [rng.normal(size=s.shape).astype(np.float32) for s in specs]
        with tf.compat.v1.Session(graph=graph) as session:
            theirs = session.run("y:0", {f"x{i}:0": a for i, a in enumerate(arrays)})
        (ours,) = Interpreter(from_tensorflow(graph)).run(
            ["y"], {f"x{i}": a for i, a in enumerate(arrays)}
        )
    compare(ours, theirs)


def compare(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
