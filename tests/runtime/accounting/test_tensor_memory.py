"""Peak memory of tensors."""

from __future__ import annotations

from mobileprep.runtime.accounting.costs import Executed, TensorLayout, peak_bytes
from tests.transforms.graphs import node


def executed(name: str, op: str, inputs: str, nbytes: int) -> Executed:
    return Executed(node(name, op, inputs), (TensorLayout((nbytes,), 1),))


CHAIN = [
    executed("a", "Relu", "x", 10),
    executed("b", "Relu", "a", 10),
    executed("c", "Relu", "b", 10),
]
FED = {("x", 0): TensorLayout((10,), 1)}


def test_chain_needs_two_tensors() -> None:
    assert peak_bytes(CHAIN, FED, [("c", 0)]) == 20


def test_tensor_is_held_until_its_last_use() -> None:
    late = [*CHAIN, executed("d", "AddV2", "c a", 1)]
    assert peak_bytes(late, FED, [("d", 0)]) == 30


def test_fetched_tensors_are_held() -> None:
    assert peak_bytes(CHAIN, FED, [("a", 0), ("c", 0)]) == 30


def test_views_share_memory() -> None:
    viewed = [
        executed("a", "Relu", "x", 10),
        executed("v", "Reshape", "a s", 10),
        executed("b", "Relu", "v", 10),
    ]
    assert peak_bytes(viewed, FED, [("b", 0)]) == 20


def test_views_of_constants_are_free() -> None:
    assert peak_bytes([executed("v", "Identity", "weights", 1000)], {}, [("v", 0)]) == 0


def test_next_iteration_frees_the_previous() -> None:
    twice = [executed("a", "Relu", "x", 10), executed("a", "Relu", "x", 10)]
    assert peak_bytes(twice, FED, []) == 20


def test_unknown_sizes_are_zero() -> None:
    assert TensorLayout(None, 4).nbytes == 0
    assert TensorLayout((-1, 3), 4).nbytes == 0
    assert TensorLayout((), 4).nbytes == 4


def test_view_without_inputs_has_its_own_memory() -> None:
    assert peak_bytes([executed("v", "Identity", "", 10)], {}, [("v", 0)]) == 10


def test_fed_tensors_are_held_until_their_last_use() -> None:
    fed = {("x", 0): TensorLayout((10,), 1), ("z", 0): TensorLayout((5,), 1)}
    steps = [executed("a", "Relu", "x", 10), executed("b", "AddV2", "a z", 1)]
    assert peak_bytes(steps, fed, []) == 25
    assert peak_bytes([], fed, []) == 15


def test_every_output_is_counted() -> None:
    two = Executed(node("s", "Split", "axis x"), (TensorLayout((3,), 4), TensorLayout((2,), 4)))
    assert peak_bytes([two], FED, []) == 30
    later = executed("b", "Relu", "s:1", 1)
    # The first output has no reader and is freed before the second is read.
    assert peak_bytes([two, later], {}, [("b", 0)]) == 20
    assert peak_bytes([two, executed("b", "Relu", "s:1", 20)], {}, [("b", 0)]) == 28
