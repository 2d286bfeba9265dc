"""Memory of tensors that live and die."""

from __future__ import annotations

from mobileprep.runtime.accounting.costs import Executed, TensorLayout, peak_bytes
from tests.transforms.graphs import node


def ran(name: str, op: str, inputs: str, nbytes: int) -> Executed:
    return Executed(node(name, op, inputs), (TensorLayout((nbytes,), 1),))


CHAIN = [ran("a", "Relu", "x", 10), ran("b", "Relu", "a", 10), ran("c", "Relu", "b", 10)]
FED = {("x", 0): TensorLayout((10,), 1)}


def test_a_chain_needs_two_tensors_at_a_time() -> None:
    assert peak_bytes(CHAIN, FED, [("c", 0)]) == 20


def test_a_tensor_that_is_read_late_stays() -> None:
    late = [*CHAIN, ran("d", "AddV2", "c a", 1)]
    assert peak_bytes(late, FED, [("d", 0)]) == 30


def test_wanted_tensors_stay_to_the_end() -> None:
    assert peak_bytes(CHAIN, FED, [("a", 0), ("c", 0)]) == 30


def test_views_share_the_memory_of_what_they_view() -> None:
    viewed = [ran("a", "Relu", "x", 10), ran("v", "Reshape", "a s", 10), ran("b", "Relu", "v", 10)]
    assert peak_bytes(viewed, FED, [("b", 0)]) == 20


def test_views_of_constants_take_nothing() -> None:
    assert peak_bytes([ran("v", "Identity", "weights", 1000)], {}, [("v", 0)]) == 0


def test_the_next_iteration_frees_the_one_before() -> None:
    twice = [ran("a", "Relu", "x", 10), ran("a", "Relu", "x", 10)]
    assert peak_bytes(twice, FED, []) == 20


def test_unknown_sizes_count_as_nothing() -> None:
    assert TensorLayout(None, 4).nbytes == 0
    assert TensorLayout((-1, 3), 4).nbytes == 0
    assert TensorLayout((), 4).nbytes == 4


def test_views_without_inputs_take_memory_of_their_own() -> None:
    assert peak_bytes([ran("v", "Identity", "", 10)], {}, [("v", 0)]) == 10


def test_fed_tensors_are_there_from_the_start_to_their_last_use() -> None:
    fed = {("x", 0): TensorLayout((10,), 1), ("z", 0): TensorLayout((5,), 1)}
    steps = [ran("a", "Relu", "x", 10), ran("b", "AddV2", "a z", 1)]
    assert peak_bytes(steps, fed, []) == 25
    assert peak_bytes([], fed, []) == 15


def test_every_output_counts() -> None:
    two = Executed(node("s", "Split", "axis x"), (TensorLayout((3,), 4), TensorLayout((2,), 4)))
    assert peak_bytes([two], FED, []) == 30
    later = ran("b", "Relu", "s:1", 1)
    # The first part is read by nothing, and is gone when the second is read.
    assert peak_bytes([two, later], {}, [("b", 0)]) == 20
    assert peak_bytes([two, ran("b", "Relu", "s:1", 20)], {}, [("b", 0)]) == 28
