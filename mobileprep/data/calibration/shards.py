"""Observing samples piece by piece: here, in processes, or on the workers of a Dask cluster.

Pieces are whole batches, and are the same however many work at them; what they show is put
together in their order. So the ranges are the same, bit for bit.
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

# Pieces that wait for each worker, so that none is idle and little is held.
_WAITING: Final = 2
_TRIES: Final = 3
_PATIENCE: Final = "10s"
_GUARD: Final = "a script of your own has to begin it below: if __name__ == '__main__'"
_KILLED: Final = "a process that ran samples of the calibration was killed"
_INSTALL: Final = "install it: pip install 'mobileprep[dask]'"


class Work(Struct, frozen=True):
    """What a worker is told: all that it needs, ready to be sent.

    Args:
        key: tells one calibration from another.
        graph: the graph, serialized.
        subject: what is observed, its graph empty.
        data: the samples.
        threads: how many threads a worker may use; 0 for as many as it has.
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
    """What each piece of the samples shows, in order.

    Args:
        tell: called after each piece with how many samples are done, and how many there are.
        survey: takes note of all samples, for a caller that has more to ask of them.
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
    _check_begun()
    return _in_processes(_work(subject, data, threads=max(cores() // most, 1)), pieces, most)


def _check_begun() -> None:
    """Refuse to begin processes from one that is begun so: a script would begin itself for ever."""
    if multiprocessing.parent_process() is not None:
        message = "a calibration with workers was begun again by one of its own processes"
        raise UsageError(message, _GUARD)


def _pieces(count: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def _work(subject: Subject, data: Dataset, threads: int = 0) -> Work:
    graph = graph_to_bytes(subject.graph)
    return Work(uuid.uuid4().hex, graph, replace(subject, graph=Graph()), data, threads)


_kept = threading.local()
_told: list[Work] = []


def _start(work: Work) -> None:
    """Begin a process: what it is told once, and how many threads it may use."""
    import threadpoolctl

    _told.append(work)
    threadpoolctl.threadpool_limits(work.threads, user_api="blas")


def _observe_told(start: int, stop: int) -> Observation:
    return observe_piece(_told[-1], start, stop)


def observe_piece(work: Work, start: int, stop: int) -> Observation:
    """What some samples show, on a worker; each of its threads keeps the plan for the next."""
    if getattr(_kept, "key", None) != work.key:
        graph = graph_from_bytes(work.graph, work.data.name)
        _kept.watcher = Watcher(replace(work.subject, graph=graph), work.data)
        _kept.key = work.key
    watcher: Watcher = _kept.watcher
    return watcher.observe(start, stop)


def _in_processes(
    work: Work, pieces: Sequence[tuple[int, int]], count: int
) -> Iterator[Observation]:
    done = 0
    for left in range(_TRIES - 1, -1, -1):
        try:
            for found in _in_pool(work, pieces[done:], count):
                done += 1
                yield found
        except BrokenProcessPool as error:
            if not left:
                hint = f"give it fewer workers or a smaller batch, should memory run out; {_GUARD}"
                raise AccuracyError(_KILLED, hint) from error
        else:
            return


def _in_pool(work: Work, pieces: Sequence[tuple[int, int]], count: int) -> Iterator[Observation]:
    """The results for pieces by processes of their own, begun anew as on every system."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_start, initargs=(work,))
    try:

        def submit(piece: tuple[int, int]) -> Future[Observation]:
            return pool.submit(_observe_told, *piece)

        yield from _in_order(submit, pieces, count * _WAITING)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(
    submit: Callable[[tuple[int, int]], _Handle], pieces: Sequence[tuple[int, int]], most: int
) -> Iterator[Observation]:
    """The results for pieces in their order, of which no more than some are under way."""
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
        # A future that is recomputed where a worker is lost; scattered data would be gone.
        told = client.submit(_same, work, key=f"mobileprep-{work.key}")
        try:
            yield from _in_order(
                lambda piece: client.submit(observe_piece, told, *piece, pure=False), pieces, most
            )
        except distributed.KilledWorker as error:
            hint = "look whether the workers' memory ran out, or take a smaller batch"
            raise AccuracyError(_KILLED, hint) from error


def _same(work: Work) -> Work:
    return work


def _distributed() -> Any:  # noqa: ANN401 - it has no types
    try:
        import distributed
    except ImportError as error:
        message = "the calibration names a Dask scheduler, and distributed is not installed"
        raise UnsupportedError(message, _INSTALL) from error
    return distributed
