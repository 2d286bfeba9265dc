"""Observe samples piece by piece: in this process, in worker processes, or on a Dask cluster.

Pieces are whole batches and do not depend on the number of workers. Their observations are merged
in order, so the ranges are bit-identical.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.parallel import cores
from mobileprep.data.calibration.observation import Observation, Subject, Watcher
from mobileprep.data.source import Dataset
from mobileprep.data.survey import DataSurvey
from mobileprep.errors import AccuracyError, UnsupportedError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes, graph_to_bytes

# Pieces submitted per worker: enough to keep it busy without using much memory.
_WAITING: Final = 2
_TRIES: Final = 3
_PATIENCE: Final = "10s"
_GUARD: Final = "a script of your own has to begin it below: if __name__ == '__main__'"
_KILLED: Final = "a process that ran samples of the calibration was killed"
_INSTALL: Final = "install it: pip install 'mobileprep[dask]'"


class Work(Struct, frozen=True):
    """The task of a worker, ready to be serialized.

    Args:
        key: a unique key of this calibration.
        graph: the serialized graph.
        subject: the tensors to observe, with an empty graph.
        data: the samples.
        threads: the maximum number of threads per worker; 0 for no limit.
    """

    key: str
    graph: bytes
    subject: Subject
    data: Dataset
    threads: int = 0


class _Handle(Protocol):
    def result(self) -> Observation: ...


def observed(
    subject: Subject,
    data: Dataset,
    *,
    workers: int = 1,
    dask: str | None = None,
    warn: Callable[[str], None] = lambda _: None,
    tell: Callable[[int, int], None] = lambda _done, _count: None,
    survey: DataSurvey | None = None,
) -> Iterator[Observation]:
    """Yield the observation of each piece of the samples, in order.

    Args:
        subject: the graph and the tensors to observe.
        data: the samples.
        workers: the number of processes.
        dask: the address of a Dask scheduler.
        warn: called with warnings about the samples.
        tell: called after each piece with the number of processed samples and the total.
        survey: collects the statistics of all samples for the caller.
    """
    whole = survey or DataSurvey(data.name)
    count, done = len(data), 0
    for observation in _observations(subject, data, count, workers, dask):
        if observation.survey is not None:
            whole.merge(observation.survey)
        done += observation.samples
        tell(min(done + len(whole.unread), count), count)
        yield observation
    whole.check(count, warn)
    for doubt in whole.calibration_doubts():
        warn(doubt)


def _observations(
    subject: Subject, data: Dataset, count: int, workers: int, dask: str | None
) -> Iterator[Observation]:
    most = min(workers, -(-count // subject.piece))
    if dask is None and most < 2:
        return Watcher(subject, data).stream()
    pieces = _pieces(count, subject.piece)
    if dask is not None:
        return _on_dask(_work(subject, data), pieces, dask)
    _check_main_process()
    return _in_processes(_work(subject, data, threads=max(cores() // most, 1)), pieces, most)


def _check_main_process() -> None:
    """Raise ``UsageError`` in a worker process, where a script would start itself forever."""
    if multiprocessing.parent_process() is not None:
        message = "a calibration with workers was begun again by one of its own processes"
        raise UsageError(message, _GUARD)


def _pieces(count: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def _work(subject: Subject, data: Dataset, threads: int = 0) -> Work:
    graph = graph_to_bytes(subject.graph)
    return Work(uuid.uuid4().hex, graph, replace(subject, graph=Graph()), data, threads)


_watcher_cache = threading.local()
_works: list[Work] = []


def _start(work: Work) -> None:
    """Initialize a worker process with its task and number of threads."""
    import threadpoolctl

    _works.append(work)
    threadpoolctl.threadpool_limits(work.threads, user_api="blas")


def _observe_in_process(start: int, stop: int) -> Observation:
    return observe_piece(_works[-1], start, stop)


def observe_piece(work: Work, start: int, stop: int) -> Observation:
    """Observe some samples on a worker; each of its threads reuses the execution plan."""
    if getattr(_watcher_cache, "key", None) != work.key:
        graph = graph_from_bytes(work.graph, work.data.name)
        _watcher_cache.watcher = Watcher(replace(work.subject, graph=graph), work.data)
        _watcher_cache.key = work.key
    watcher: Watcher = _watcher_cache.watcher
    return watcher.observe(start, stop)


def _in_processes(
    work: Work, pieces: Sequence[tuple[int, int]], count: int
) -> Iterator[Observation]:
    done = 0
    for retries in range(_TRIES - 1, -1, -1):
        try:
            for observation in _in_pool(work, pieces[done:], count):
                done += 1
                yield observation
        except BrokenProcessPool as error:
            if not retries:
                hint = f"give it fewer workers or a smaller batch, should memory run out; {_GUARD}"
                raise AccuracyError(_KILLED, hint) from error
        else:
            return


def _in_pool(work: Work, pieces: Sequence[tuple[int, int]], count: int) -> Iterator[Observation]:
    """Yield the results of pieces from spawned processes."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_start, initargs=(work,))
    try:

        def submit(piece: tuple[int, int]) -> Future[Observation]:
            return pool.submit(_observe_in_process, *piece)

        yield from _in_order(submit, pieces, count * _WAITING)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(
    submit: Callable[[tuple[int, int]], _Handle], pieces: Sequence[tuple[int, int]], most: int
) -> Iterator[Observation]:
    """Yield the results of pieces in order, with at most ``most`` in progress."""
    rest = iter(pieces)
    waiting = deque(submit(piece) for piece in itertools.islice(rest, most))
    while waiting:
        yield waiting.popleft().result()
        waiting.extend(submit(piece) for piece in itertools.islice(rest, 1))


def _on_dask(work: Work, pieces: Sequence[tuple[int, int]], address: str) -> Iterator[Observation]:
    distributed = _distributed()
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        message = f"no Dask scheduler found at {address}: {error}"
        raise UnsupportedError(message, "start one: dask scheduler") from error
    with client:
        most = max(sum(client.nthreads().values()), 1) * _WAITING
        # A future is recomputed if a worker is lost; scattered data would be lost.
        future = client.submit(_same, work, key=f"mobileprep-{work.key}")
        try:
            yield from _in_order(
                lambda piece: client.submit(observe_piece, future, *piece, pure=False), pieces, most
            )
        except distributed.KilledWorker as error:
            hint = "look whether the workers' memory ran out, or take a smaller batch"
            raise AccuracyError(_KILLED, hint) from error


def _same(work: Work) -> Work:
    return work


def _distributed() -> Any:  # noqa: ANN401 - untyped library
    try:
        import distributed
    except ImportError as error:
        message = "the calibration names a Dask scheduler, and distributed is not installed"
        raise UnsupportedError(message, _INSTALL) from error
    return distributed
