"""The graph interpreter."""

from __future__ import annotations

import gc
import pickle
import time
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, MobileprepError, UnsupportedError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.kernel import kernel, registry
from mobileprep.runtime.executor import described
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.regions import fold
from tests.ops.graphs import c, f32, i32, n, p
from tests.transforms.graphs import const, node, placeholder


def two_branches() -> Graph:
    return Graph(
        [
            p("x", shape=(-1, 2)),
            c("two", 2.0),
            n("double", "Mul", "x", "two", T=np.float32),
            n("halves", "Split", "axis", "double", num_split=2, T=np.float32),
            c("axis", 1),
            n("sum", "Add", "halves", "halves:1"),
            n("unused", "NoSuchOp", "x"),
        ]
    )


X = f32([[1, 2], [3, 4]])


def test_any_tensor_can_be_fetched() -> None:
    out = Interpreter(two_branches()).run(["sum", "halves:1", "double", "x", "two"], {"x": X})
    assert [a.tolist() for a in out] == [[[6], [14]], [[4], [8]], [[2, 4], [6, 8]], X.tolist(), 2]


def test_any_tensor_can_be_fed() -> None:
    runner = Interpreter(two_branches())
    assert runner.run(["sum"], {"double": X})[0].tolist() == [[3], [7]]
    assert runner.run(["sum"], {"halves:1": f32([[10]]), "x": X[:1]})[0].tolist() == [[12]]
    assert runner.run(["sum"], {"x": X, "two": f32(3)})[0].tolist() == [[9], [21]]


def test_feed_can_be_fetched() -> None:
    assert Interpreter(two_branches()).run(["x"], {"x": X})[0].tolist() == X.tolist()


def test_unused_feed_is_allowed() -> None:
    assert Interpreter(two_branches()).run(["two"], {"x": X})[0].tolist() == 2


def test_runs_are_independent() -> None:
    runner = Interpreter(two_branches())
    first = runner.run(["sum"], {"x": X})[0]
    runner.run(["sum"], {"x": -X})
    assert first.tolist() == [[6], [14]]
    assert X.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("combine", [False, True])
def test_result_is_independent_of_combine(combine: bool) -> None:
    runner = Interpreter(two_branches(), combine=combine)
    assert runner.run(["sum"], {"x": X})[0].tolist() == [[6], [14]]


def failure(graph: Graph, fetches: list[str], feeds: dict[str, Any]) -> MobileprepError:
    with pytest.raises(MobileprepError) as caught:
        Interpreter(graph, where="net.pb").run(fetches, feeds)
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error).startswith("net.pb: ")
    return error


def test_misspelled_name_suggests_closest_name() -> None:
    for fetches, feeds in ((["summ"], {"x": X}), (["sum"], {"X": X, "doubel": X})):
        error = failure(two_branches(), fetches, feeds)
        assert isinstance(error, UsageError)
        assert "is not in the graph" in error.message
    assert failure(two_branches(), ["summ"], {"x": X}).hint == "did you mean 'sum'?"


def test_missing_feed_is_named() -> None:
    error = failure(two_branches(), ["sum"], {})
    assert (type(error), error.message) == (UsageError, "nothing is fed to the placeholder 'x'")


def test_feed_of_wrong_dtype_names_both_dtypes() -> None:
    error = failure(two_branches(), ["sum"], {"x": i32([[1, 2]])})
    assert (type(error), error.message) == (UsageError, "'x' takes float32, and is fed int32")


def test_feed_of_wrong_shape_names_both_shapes() -> None:
    error = failure(two_branches(), ["sum"], {"x": f32([[1, 2, 3]])})
    assert error.message == "'x' takes the shape [?, 2], and is fed [1, 3]"


def test_unknown_ops_are_counted_and_named() -> None:
    graph = Graph(
        [p("x"), n("a", "Frobnicate", "x"), n("b", "Mystify", "a"), n("c", "Mystify", "b")]
    )
    error = failure(graph, ["c"], {"x": X})
    assert isinstance(error, UnsupportedError)
    assert error.message == (
        "node 'a' has the op 'Frobnicate', which cannot be run here "
        "(of the 3 nodes that cannot, the ops are Frobnicate, Mystify)"
    )


def test_variables_hint_at_freeze() -> None:
    error = failure(Graph([n("v", "VariableV2", dtype=np.float32)]), ["v"], {})
    assert "mobileprep freeze" in error.hint


def test_unused_unknown_ops_are_allowed() -> None:
    assert Interpreter(two_branches()).run(["sum"], {"x": X})


def test_failure_names_node_op_and_shapes() -> None:
    graph = Graph([p("x"), c("w", np.ones((3, 2))), n("product", "MatMul", "x", "w")])
    error = failure(graph, ["product"], {"x": X})
    assert isinstance(error, InvalidGraphError)
    assert "node 'product' (MatMul) cannot run on float32[2, 2], float32[3, 2]" in error.message


def test_kernel_error_names_the_node() -> None:
    graph = Graph([p("x"), c("i", 1), n("sum", "Add", "x", "i")])
    assert "node 'sum' (Add) mixes float32 with int32" in failure(graph, ["sum"], {"x": X}).message


def test_missing_attribute_is_an_error() -> None:
    graph = Graph([p("x"), c("axis", 0), n("parts", "Split", "axis", "x")])
    assert "no int attribute 'num_split'" in failure(graph, ["parts"], {"x": X}).message


def test_missing_output_is_an_error() -> None:
    error = failure(two_branches(), ["double:1"], {"x": X})
    assert "has no output 1" in error.message


@pytest.mark.parametrize("combine", [True, False])
def test_missing_output_of_a_constant_is_an_error(*, combine: bool) -> None:
    graph = Graph([p("x"), c("w", 1.0), n("sum", "Add", "x", "w:9")])
    with pytest.raises(InvalidGraphError, match="node 'w' has no output 9"):
        Interpreter(graph, combine=combine).run(["sum"], {"x": X})


def test_missing_input_is_an_error() -> None:
    error = failure(Graph([n("a", "Identity", "gone")]), ["a"], {})
    assert (type(error), error.message) == (
        InvalidGraphError,
        "node 'a' (Identity) takes 'gone', which does not exist",
    )


def test_cycle_is_an_error() -> None:
    error = failure(Graph([n("a", "Identity", "b"), n("b", "Identity", "a")]), ["a"], {})
    assert "feed each other in a circle" in error.message


def test_wrong_number_of_inputs_is_an_error() -> None:
    error = failure(Graph([p("x"), n("y", "MatMul", "x")]), ["y"], {"x": X})
    assert "node 'y' (MatMul)" in error.message


def test_long_chain_does_not_overflow_the_stack() -> None:
    nodes = [p("x"), *(n(f"n{i}", "Neg", f"n{i - 1}" if i else "x") for i in range(20_001))]
    assert Interpreter(Graph(nodes)).run(["n20000"], {"x": X})[0].tolist() == (-X).tolist()


def test_infinities_do_not_warn() -> None:
    graph = Graph([p("x"), c("zero", 0.0), n("q", "RealDiv", "x", "zero"), n("r", "Log", "q")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(Interpreter(graph).run(["r"], {"x": -X})[0]).all()


def test_control_inputs_run() -> None:
    graph = Graph(
        [
            p("x"),
            c("no", False, dtype=bool),
            n("check", "Assert", "no", "x", T=()),
            n("y", "Neg", "x", "^check"),
        ]
    )
    message = failure(graph, ["y"], {"x": X}).message
    assert message == "node 'check' (Assert): assertion failed: [[1 2][3...]...]"


def test_strings_are_fed_as_bytes() -> None:
    graph = Graph([p("s", np.object_)])
    for value in (["a", "bc"], np.array([b"a", b"bc"], dtype=object), np.array(["a", "bc"])):
        out = Interpreter(graph).run(["s"], {"s": np.asarray(value)})[0]
        assert (out.dtype, out.tolist()) == (object, [b"a", b"bc"])


def test_trailing_zeros_of_bytes_are_preserved() -> None:
    out = Interpreter(Graph([p("s", np.object_)])).run(["s"], {"s": np.array(b"ab\0\0")})[0]
    assert out.item() == b"ab\0\0"


def test_constants_are_not_copied() -> None:
    weights = np.ones((100, 100), np.float32)
    graph = Graph([p("x"), c("w", weights), n("y", "MatMul", "x", "w")])
    runner = Interpreter(graph)
    (weights_,) = runner.run(["w"], {})
    assert np.shares_memory(weights_, graph["w"].attr_tensor("value").array())


@pytest.mark.slow
def test_tensors_are_freed_after_their_last_use() -> None:
    alive: list[int] = []
    references: list[weakref.ref[np.ndarray]] = []

    @kernel("TestFresh")
    def fresh(node: Any, x: np.ndarray) -> np.ndarray:
        gc.collect()
        alive.append(sum(r() is not None for r in references))
        out = x + 1
        references.append(weakref.ref(out))
        return out

    try:
        nodes = [p("x"), *(n(f"n{i}", "TestFresh", f"n{i - 1}" if i else "x") for i in range(6))]
        Interpreter(Graph(nodes)).run(["n5"], {"x": X})
    finally:
        registry._entries.pop("TestFresh")
    # The input of the step, and at most one tensor held by the previous step.
    assert max(alive) <= 2


def test_observer_gets_every_step() -> None:
    steps: list[tuple[str, list[tuple[int, ...]]]] = []

    def observer(nodes: Any, start: float, seconds: float, outputs: Any) -> None:
        assert seconds >= 0
        steps.append((nodes[0].name, [a.shape for a in outputs]))

    Interpreter(two_branches(), observer=observer, combine=False).run(["sum"], {"x": X})
    assert steps == [("double", [(2, 2)]), ("halves", [(2, 1), (2, 1)]), ("sum", [(2, 1)])]


def random_graph(**seeds: int) -> Graph:
    return Graph([c("shape", [3]), n("r", "RandomUniform", "shape", dtype=np.float32, **seeds)])


def test_random_ops_need_a_seed() -> None:
    error = failure(random_graph(), ["r"], {})
    assert isinstance(error, UnsupportedError)
    assert "node 'r' (RandomUniform) draws random numbers and has no seed" in error.message


def dropout(version: int, *, keep: bool) -> Graph:
    """Dropout as in TensorFlow 1.x, with the keep probability or rate as an input."""
    mask = {
        1: [n("sum", "AddV2", "rate", "random"), n("mask", "Floor", "sum")],
        2: [
            n("chosen", "Less" if keep else "GreaterEqual", "random", "rate"),
            n("mask", "Cast", "chosen", SrcT=np.bool_, DstT=np.float32),
        ],
    }
    return Graph(
        [
            n("x", "Placeholder", dtype=np.float32),
            n("rate", "Placeholder", dtype=np.float32),
            c("shape", [3]),
            n("drawn", "RandomUniform", "shape", dtype=np.float32),
            c("width", np.float32(1)),
            c("least", np.float32(0)),
            n("wide", "Mul", "drawn", "width"),
            n("random", "Add", "wide", "least"),
            *mask[version],
            n("y", "Mul", "x", "mask"),
        ]
    )


@pytest.mark.parametrize(("version", "keep"), [(1, True), (2, False), (2, True)])
def test_dropout_without_effect_needs_no_seed(version: int, *, keep: bool) -> None:
    runner = Interpreter(dropout(version, keep=keep))
    feeds = {"x": np.float32([1, 2, 3]), "rate": np.float32(1 if keep else 0)}
    assert runner.run(["y"], feeds)[0].tolist() == [1, 2, 3]
    with pytest.raises(UnsupportedError, match="has no seed"):
        runner.run(["y"], {**feeds, "rate": np.float32(0.5)})
    with pytest.raises(UnsupportedError, match="has no seed"):
        runner.run(["y", "drawn"], feeds)


def test_random_values_with_other_readers_need_a_seed() -> None:
    graph = dropout(1, keep=True)
    graph = graph.with_nodes([*graph, n("z", "Neg", "random")])
    feeds = {"x": np.float32([1]), "rate": np.float32(1)}
    assert Interpreter(graph).run(["y"], feeds)[0].tolist() == [1, 1, 1]
    with pytest.raises(UnsupportedError, match="has no seed"):
        Interpreter(graph).run(["y", "z"], feeds)


def test_seeded_random_values_are_equal_in_every_run() -> None:
    for runner in (Interpreter(random_graph(), seed=4), Interpreter(random_graph(seed=1, seed2=2))):
        first, second = (runner.run(["r"], {})[0] for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert (first.dtype, first.shape) == (np.float32, (3,))
        assert ((first >= 0) & (first < 1)).all()


def test_random_values_can_be_fed() -> None:
    assert Interpreter(random_graph()).run(["r"], {"r": f32(1, 2, 3)})[0].tolist() == [1, 2, 3]


Step = tuple[list[str], float, float, list[list[float]]]


def test_observer_gets_nodes_time_and_outputs_in_order() -> None:
    graph = Graph([placeholder(), node("a", "Neg", "x"), node("b", "Relu", "a")])
    steps: list[Step] = []

    def observer(
        nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        steps.append(([n.name for n in nodes], start, seconds, [x.tolist() for x in outputs]))

    begin = time.perf_counter()
    Interpreter(graph, observer=observer).run(["b"], {"x": np.array([-2, 1], np.float32)})
    end = time.perf_counter()
    assert [(names, outputs) for names, _, _, outputs in steps] == [
        (["a"], [[2, -1]]),
        (["b"], [[2, 0]]),
    ]
    for _, start, seconds, _ in steps:
        assert begin <= start
        assert seconds >= 0
        assert start + seconds <= end
    assert steps[0][1] + steps[0][2] <= steps[1][1]


def controlled_by(op: str, value: float) -> Graph:
    """A graph whose output has a control input from a node that reads a constant."""
    nodes = [const("value", [value]), node("read", op, "value"), node("all", "NoOp", "^read")]
    return Graph([placeholder(), *nodes, node("out", "Neg", "x ^all")])


def test_constant_control_input_is_folded() -> None:
    names: list[str] = []
    graph = controlled_by("Identity", 1.0)
    runner = Interpreter(graph, observer=lambda nodes, *_: names.extend(n.name for n in nodes))
    runner.run(["out"], {"x": np.array([1], np.float32)})
    assert names == ["out"]


def test_failing_control_input_is_reported() -> None:
    runner = Interpreter(controlled_by("CheckNumerics", np.nan))
    with pytest.raises(InvalidGraphError, match="read"):
        runner.run(["out"], {"x": np.array([1], np.float32)})


def test_arrays_are_described_by_type_and_shape() -> None:
    assert described(np.zeros((1, 2), np.float32)) == "float32[1, 2]"
    assert described(np.array(b"a", object)) == "object[]"
    assert described(None) == "nothing"


WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


def at_offset(values: Array, offset: int) -> memoryview:
    """The bytes of an array at an offset in a buffer."""
    return memoryview(bytes(offset) + values.tobytes())[offset:]


def folded(value: Any) -> Any:
    _, constants = fold([], {("w", 0): value}, [("w", 0)], "graph")
    return constants["w", 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.complex64])
def test_unaligned_constants_are_copied(dtype: type) -> None:
    unaligned: Array = np.frombuffer(at_offset(WEIGHTS.astype(dtype), 1), dtype).reshape(2, 3)
    assert not unaligned.flags.aligned
    result = folded(unaligned)
    assert result.flags.aligned
    assert not result.flags.writeable
    np.testing.assert_array_equal(result, WEIGHTS.astype(dtype))


def test_aligned_constants_are_not_copied() -> None:
    assert folded(WEIGHTS) is WEIGHTS


def test_copies_use_at_most_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    unaligned: Array = np.frombuffer(at_offset(WEIGHTS, 1), np.float32)
    monkeypatch.setattr("mobileprep.runtime.regions.memory_limit", lambda: 8 * unaligned.nbytes)
    values = {(name, 0): unaligned for name in "abc"}
    _, constants = fold([], values, list(values), "graph")
    assert [constants[tensor].flags.aligned for tensor in values] == [True, True, False]


@pytest.mark.parametrize("offset", range(4))
def test_product_with_unaligned_constant(offset: int) -> None:
    constant = c("w", WEIGHTS)
    tensor = constant.attrs["value"].value
    assert isinstance(tensor, Tensor)
    tensor.lying_at(at_offset(WEIGHTS, offset), tensor.digest())
    graph = Graph([p("x"), constant, n("product", "MatMul", "x", "w")])
    x = np.ones((1, 2), np.float32)
    (result,) = Interpreter(graph).run(["product"], {"x": x})
    np.testing.assert_array_equal(result, x @ WEIGHTS)


def test_constants_are_computed_once() -> None:
    graph = Graph([p("x"), c("a", 4.0), n("root", "Sqrt", "a"), n("y", "Mul", "x", "root")])
    names: list[str] = []
    runner = Interpreter(graph, observer=lambda nodes, *rest: names.append(nodes[0].name))
    for _ in range(2):
        runner.run(["y"], {"x": WEIGHTS})
    assert names == ["y", "y"]
