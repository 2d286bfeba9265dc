"""Run the stages of a plan, each in its own directory, and store their outputs."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from mobileprep.building.pipeline.output import Output, Record
from mobileprep.building.pipeline.state import Fresh, Stale, State
from mobileprep.building.pipeline.store import unwritable
from mobileprep.building.plan.fingerprints import Components, fingerprint
from mobileprep.building.plan.spec import (
    PUBLISHED,
    CacheEntryError,
    Plan,
    StageSpec,
    Upstream,
    cache_entry_error,
)
from mobileprep.building.stages.base import Job, stage_function
from mobileprep.errors import ArtifactError, CorruptFileError, InternalError

if TYPE_CHECKING:
    from mobileprep.graph.graph import Graph

Made = TypeVar("Made")

Moment: TypeAlias = float | Literal["failed"] | None
"""A stage starts (None), finishes after some seconds, or fails."""

Listener = Callable[[str, Moment], None]
"""Called with a task's name when it starts and when it ends, in the thread that runs it."""

Warn = Callable[[str, str], None]
"""Called with a task's name and a warning before the task does its work."""

Advance = Callable[[str, int, int], None]
"""Called with a task's name, the number of processed samples, and the total."""


def ignore(*_: object) -> None:
    """Ignore an event of a build."""


# Releasing memory takes milliseconds, which does not pay off for small models.
_MUCH: Final = 4 << 20


class Ran(Struct, frozen=True):
    """A stage that ran, and its duration in seconds."""

    task: str
    seconds: float


class Executor:
    """Runs each stage of a plan at most once; safe to use from several threads.

    Args:
        state: freshness of the plan's stages.
        listen: called when a stage starts or ends.
        warn: called for each warning of a stage.
        advance: called with the progress of stages that run samples.
    """

    def __init__(
        self,
        state: State,
        *,
        listen: Listener = ignore,
        warn: Warn = ignore,
        advance: Advance = ignore,
    ) -> None:
        self.state = state
        self.ran: list[Ran] = []
        """The stages that ran, in order of completion."""
        self._listen = listen
        self._warn = warn
        self._advance = advance
        self._handover = Handover(state.plan)
        # Keyed by task and by fingerprint, because two tasks may need the same result.
        self._locks: dict[str, threading.RLock] = {}

    def run(self, spec: StageSpec) -> Record:
        """Run a stage unless it is fresh, and return its record from the cache.

        Raises:
            MobileprepError: the stage failed.
            CorruptFileError: an input file changed while the stage ran.
        """
        with self._lock(spec.task):
            try:
                while isinstance(self.state.verdict(spec.task), Stale):
                    self.state.store.begin()
                    inputs = {up: self.obtain(up) for up in spec.stage.upstream.values()}
                    verdict = self.state.verdict(spec.task)
                    if isinstance(verdict, Stale) and verdict.parts is not None:
                        return self._run_once(spec, verdict.parts, inputs)
                return self.state.record(spec.task)
            finally:
                self._handover.done(spec)

    def attempt(self, work: Callable[[], Made]) -> Made:
        """Call ``work``, which runs stages and reads their outputs.

        If a cached output is missing or damaged, discard the cache entries of earlier builds, plan
        again, and retry once.
        """
        try:
            return work()
        except CacheEntryError as error:
            self.state.plan_again(error.tasks)
            self._handover = Handover(self.state.plan)
        return work()

    def report_message(self, sentence: str) -> None:
        """Report a message that does not belong to a stage."""
        self._warn("", sentence)

    def record(self, task: str) -> Record:
        """Return the record of a task and run it if needed; raises the same errors as ``run``."""
        return self.run(self.state.spec(task))

    def is_fresh(self, spec: StageSpec) -> bool:
        """Return whether a stage is fresh. If it is, release the graphs that it would have read."""
        if isinstance(self.state.verdict(spec.task), Stale):
            return False
        self._handover.done(spec)
        return True

    def obtain(self, upstream: Upstream) -> Output:
        """Return an output in memory or in the local cache; run its stage first if it is stale.

        Raises:
            CacheEntryError: the output of a fresh stage is neither in memory nor in a cache.
        """
        if isinstance(self.state.verdict(upstream.task), Stale):
            for spec in self.state.plan.until([upstream.task]):
                self.run(spec)
        output = self.state.record(upstream.task).outputs[upstream.output]
        if output.part is not None:
            self.state.store.begin()
        if self._handover.find(upstream) is None and not self.state.store.obtain(output):
            problem = "is missing or damaged"
            raise cache_entry_error(problem, upstream)
        return output

    def read(self, upstream: Upstream) -> bytes:
        """Return the content of an output; see ``obtain``."""
        return b"".join(self.state.store.pieces(self.obtain(upstream)))

    def _lock(self, name: str) -> threading.RLock:
        return self._locks.setdefault(name, threading.RLock())

    def _run_once(
        self, spec: StageSpec, parts: Components, inputs: Mapping[Upstream, Output]
    ) -> Record:
        key = fingerprint(parts)
        with self._lock(key):
            again = self.state.verdict(spec.task)
            if isinstance(again, Fresh):
                return again.record
            self._listen(spec.task, None)
            try:
                record = self._execute(spec, parts, inputs)
            except BaseException:
                self._listen(spec.task, "failed")
                raise
            self.ran.append(Ran(spec.task, record.seconds))
            self.state.store.save(key, record)
            self.state.store.save_last_run(self.state.latest_key(spec), record)
            self.state.store.share(key, record)
            self.state.finished(spec.task, record)
            self._listen(spec.task, record.seconds)
            return record

    def _execute(
        self, spec: StageSpec, parts: Components, inputs: Mapping[Upstream, Output]
    ) -> Record:
        # Imported late so that a build with nothing to do does not pay for importing numpy.
        from mobileprep.building.pipeline.exchange import StoreExchange

        started = time.perf_counter()
        store = self.state.store
        workspace = store.workspace()
        folder = workspace / "left"
        try:
            folder_stat = folder.stat()
            exchange = StoreExchange(spec.task, store, inputs, self._handover, workspace / "read")
            job = Job(
                *(spec.task, spec.stage, exchange, folder, spec.places),
                warn=functools.partial(self._warn, spec.task),
                progress=functools.partial(self._advance, spec.task),
            )
            stage_function(type(spec.stage))(job)
            self.state.check_unchanged(spec)
            outputs = {**exchange.left, **self._store_files(folder)}
            # A removed directory may have been created again when the stage wrote its next file.
            if not os.path.samestat(folder_stat, folder.stat()):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
            _check_promised(spec, outputs)
        except (ArtifactError, CorruptFileError, OSError) as error:
            # If an input was truncated meanwhile, parsing it or writing its mapping to the cache
            # fails, although neither the format nor the cache is at fault.
            self.state.check_unchanged(spec)
            fault = _store_fault(error, store.folder)
            if fault is None:
                raise
            raise unwritable(fault, store.folder) from error
        finally:
            shutil.rmtree(workspace, ignore_errors=True)
            if store.objects.mapped_bytes() >= _MUCH:
                store.objects.let_go()
                return_free_memory()
        return Record(parts, outputs, round(time.perf_counter() - started, 4))

    def _store_files(self, folder: Path) -> dict[str, Output]:
        """Store the files that a stage has written."""
        names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        return {
            name: self.state.store.take(
                folder / name, inline=name.endswith(".json") and not name.startswith(PUBLISHED)
            )
            for name in names
        }


def _store_fault(error: Exception, folder: Path) -> OSError | None:
    """Return the system error of a failed write to the cache, or None for other errors.

    Stages write only to their work directory in the cache, whose path would not help the user.
    """
    if isinstance(error, OSError):
        return error if folder in Path(str(error.filename)).parents else None
    fault = error.__cause__
    return fault if isinstance(error, ArtifactError) and isinstance(fault, OSError) else None


def _check_promised(spec: StageSpec, outputs: Mapping[str, Output]) -> None:
    """Check that a stage has produced all outputs that the plan requires."""
    for name in spec.stage.output_files:
        if name not in outputs:
            message = f"the stage {spec.kind} did not leave {name}"
            raise InternalError(message)


def return_free_memory() -> None:
    """Return free memory of the C library to the system, if it supports that.

    After a large stage, glibc keeps the stage's peak memory in each thread, so parallel stages
    would add up.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # slow to import, and small builds never need it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Handover:
    """Graphs in memory, from the stages that produced them to all stages that read them.

    Args:
        plan: plan that defines the readers of each output.
    """

    def __init__(self, plan: Plan) -> None:
        self._readers = Counter(
            up for spec in plan.stages for up in {*spec.stage.upstream.values()}
        )
        self._graphs: dict[Upstream, Graph] = {}
        self._done: set[str] = set()
        self._lock = threading.Lock()

    def leave(self, upstream: Upstream, graph: Graph) -> None:
        """Keep a graph if another stage still reads it."""
        with self._lock:
            if self._readers[upstream] > 0:
                self._graphs[upstream] = graph

    def find(self, upstream: Upstream) -> Graph | None:
        """Return the graph if a stage of this run has produced it."""
        return self._graphs.get(upstream)

    def done(self, spec: StageSpec) -> None:
        """Note that a stage has read its inputs or does not need to run."""
        with self._lock:
            if spec.task in self._done:
                return
            self._done.add(spec.task)
            for upstream in {*spec.stage.upstream.values()}:
                self._readers[upstream] -= 1
                if self._readers[upstream] <= 0:
                    self._graphs.pop(upstream, None)
