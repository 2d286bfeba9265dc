"""Memory of tensors that live and die."""

from __future__ import annotations

from mobileprep.runtime.accounting.tensor_memory import Executed, TensorLayout, peak_bytes
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
