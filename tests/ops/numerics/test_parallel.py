"""Parallel work in threads."""

from __future__ import annotations

import multiprocessing
import threading
import time
import warnings
import weakref

import numpy as np
import pytest

from mobileprep.ops.numerics import parallel
from mobileprep.ops.numerics import parallel as products
from mobileprep.ops.numerics.parallel import all_processors, for_each, multiply, threads


def blas_threads() -> list[int]:
    from threadpoolctl import threadpool_info

    # SciPy has its own BLAS, which other tests may have loaded later.
    libraries = (lib for lib in threadpool_info() if lib["user_api"] == "blas")
    return [lib["num_threads"] for lib in libraries if "scipy" not in lib["filepath"]]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_every_part_runs_once(count: int) -> None:
    done: list[int] = []
    for_each(done.append, range(count))
    with all_processors():
        for_each(done.append, range(count))
    assert sorted(done) == sorted([*range(count), *range(count)])


def test_work_stays_in_the_calling_thread_by_default() -> None:
    seen: set[int] = set()
    for_each(lambda _: seen.add(threading.get_ident()), range(20))
    assert (seen, threads()) == ({threading.get_ident()}, 1)


@pytest.mark.skipif(blas_threads()[:1] in ([], [1]), reason="BLAS has one thread only")
def test_work_runs_in_several_threads() -> None:
    seen: set[int] = set()

    def work(_: int) -> None:
        seen.add(threading.get_ident())
        time.sleep(0.01)

    with all_processors():
        assert threads() > 1
        for_each(work, range(20))
    assert len(seen) > 1


def test_failure_is_raised_and_stops_the_rest() -> None:
    done: list[int] = []

    def work(part: int) -> None:
        done.append(part)
        time.sleep(0.001)
        if part == 3:
            message = "part 3"
            raise ValueError(message)

    with all_processors(), pytest.raises(ValueError, match="part 3"):
        for_each(work, range(1000))
    assert len(done) < 1000


def test_nested_parallel_work() -> None:
    done: list[tuple[int, int]] = []
    with all_processors():
        for_each(lambda i: for_each(lambda j: done.append((i, j)), range(5)), range(5))
    assert len(set(done)) == 25


def test_blas_threads_are_restored() -> None:
    before = blas_threads()
    with all_processors():
        with all_processors():
            pass
        assert all(n == 1 for n in blas_threads())
    assert blas_threads() == before


def test_blas_threads_are_restored_after_concurrent_use() -> None:
    before = blas_threads()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with all_processors():
            inside.set()
            leave.wait(10)

    user = threading.Thread(target=other)
    user.start()
    inside.wait(10)
    with all_processors():
        leave.set()
        user.join()
        assert all(n == 1 for n in blas_threads())
    assert blas_threads() == before


def test_division_by_zero_does_not_warn_in_any_thread() -> None:
    zero = np.zeros(3)

    def work(_: int) -> None:
        time.sleep(0.001)
        np.divide(1, zero)

    with warnings.catch_warnings(), np.errstate(all="ignore"), all_processors():
        warnings.simplefilter("error")
        for_each(work, range(20))


def _in_child(queue: multiprocessing.Queue) -> None:
    done: list[int] = []
    with all_processors():
        for_each(done.append, range(50))
    queue.put(len(done))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="fork is not available"
)
def test_forked_process_has_its_own_threads() -> None:
    with all_processors():
        for_each(lambda _: time.sleep(0.001), range(10))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with warnings.catch_warnings():
        # Python warns about forks of processes with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_in_child, args=(queue,))
        child.start()
    assert queue.get(timeout=30) == 50
    child.join(30)


@pytest.mark.parametrize("shape", [(300, 40, 50), (20, 40, 700), (1, 9, 1), (0, 3, 4)])
def test_parallel_product(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_PARTS", ((1000, 4),))
    rows, depth, columns = shape
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(rows, depth)), rng.normal(size=(depth, columns))
    out = np.full((rows, columns), np.nan)
    with all_processors():
        multiply(x, y, out)
    np.testing.assert_allclose(out, x @ y)


def test_late_helper_does_nothing_and_holds_no_reference() -> None:
    class Tensor:
        pass

    tensor = Tensor()
    reference, done = weakref.ref(tensor), []
    share = parallel._Share(lambda part, _=tensor: done.append(part), [1, 2])
    share.drain()
    share.close()
    del tensor
    assert (reference(), done) == (None, [1, 2])
    share.help()
    assert done == [1, 2]
