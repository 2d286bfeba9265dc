"""Runs the stages of a plan: each in a folder of its own, what it leaves taken into the store."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import sys
import threading
import time
from collections import Counter, defaultdict
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
"""A stage starts (None), is done after some seconds, or has failed."""

Listener = Callable[[str, Moment], None]
"""Called with a task's name as it starts, and again as it ends, by the thread that runs it."""

Warn = Callable[[str, str], None]
"""Called with a task's name and a message before the task does its work."""

Advance = Callable[[str, int, int], None]
"""Called with a task's name, how many samples it has run, and how many there are."""


def ignore(*_: object) -> None:
    """Do nothing with an event of a build."""


# Giving memory back takes milliseconds, which small models do not repay.
_MUCH: Final = 4 << 20


class Ran(Struct, frozen=True):
    """One stage that was run, and how long it took in seconds."""

    task: str
    seconds: float


class Executor:
    """Runs stages of one plan, from any thread, each once.

    Args:
        state: the plan against a store.
        listen: called as each stage starts and ends.
        warn: called with each warning of a stage.
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
        """The stages that ran, in the order they finished."""
        self._listen = listen
        self._warn = warn
        self._advance = advance
        self._handover = Handover(state.plan)
        # By task, and by fingerprint: two tasks may ask for the same.
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._making_lock = threading.Lock()

    def run(self, spec: StageSpec) -> Record:
        """Run a stage unless it is fresh; its record, already in the store.

        Raises:
            MobileprepError: whatever the stage raises.
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
                return self._record(spec.task)
            finally:
                self._handover.done(spec)

    def attempt(self, work: Callable[[], Made]) -> Made:
        """Do work that runs stages and reads what they left.

        Where a cached output turns out to be missing or damaged, the cache entries of earlier
        builds are dropped, and the work is planned again and done once more.
        """
        try:
            return work()
        except CacheEntryError as error:
            self.state.plan_again(error.tasks)
            self._handover = Handover(self.state.plan)
        return work()

    def tell(self, sentence: str) -> None:
        """Tell the user of something that is of no stage."""
        self._warn("", sentence)

    def record(self, task: str) -> Record:
        """The record of a stage whose earlier stages are fresh; raises what ``run`` does."""
        return self.run(self.state.spec(task))

    def is_fresh(self, spec: StageSpec) -> bool:
        """Whether a stage has nothing to do, so that graphs need not be kept for it."""
        if isinstance(self.state.verdict(spec.task), Stale):
            return False
        self._handover.done(spec)
        return True

    def obtain(self, upstream: Upstream) -> Output:
        """An output, in memory or in the local cache; its stage runs first if it is stale.

        Raises:
            CacheEntryError: a fresh stage's output is neither in memory nor in a cache.
        """
        for spec in self._runs_for(upstream.task):
            self.run(spec)
        output = self._record(upstream.task).outputs[upstream.output]
        if output.part is not None:
            self.state.store.begin()
        if self._handover.find(upstream) is None and not self.state.store.obtain(output):
            problem = "is missing or damaged"
            raise cache_entry_error(problem, upstream)
        return output

    def _runs_for(self, task: str) -> list[StageSpec]:
        """A stale stage after all that it depends on, in the plan's order; nothing if fresh."""
        if isinstance(self.state.verdict(task), Fresh):
            return []
        # No recursion: a recipe may have more steps than Python's stack has room for.
        found = {task}
        todo = [task]
        while todo:
            before = set(self.state.spec(todo.pop()).needs) - found
            found |= before
            todo += before
        return [spec for spec in self.state.plan.stages if spec.task in found]

    def read(self, upstream: Upstream) -> bytes:
        """The bytes of an output, see ``obtain``."""
        return b"".join(self.state.store.pieces(self.obtain(upstream)))

    def _lock(self, name: str) -> threading.RLock:
        # Two threads that ask a defaultdict at once may be given a lock each.
        with self._making_lock:
            return self._locks[name]

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
        # Only now: a build with nothing to do must not pay for numpy's start-up.
        from mobileprep.building.pipeline.exchange import StoreExchange

        started = time.perf_counter()
        store = self.state.store
        workspace = store.workspace()
        folder = workspace / "left"
        try:
            made = folder.stat()
            exchange = StoreExchange(spec.task, store, inputs, self._handover, workspace / "read")
            job = Job(
                *(spec.task, spec.stage, exchange, folder, spec.places),
                warn=functools.partial(self._warn, spec.task),
                progress=functools.partial(self._advance, spec.task),
            )
            stage_function(type(spec.stage))(job)
            self.state.check_unchanged(spec)
            outputs = {**exchange.left, **self._taken(folder)}
            # What was removed may have been made again by what the stage wrote later.
            if not os.path.samestat(made, folder.stat()):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
            _check_promised(spec, outputs)
        except (ArtifactError, CorruptFileError, OSError) as error:
            # An input that is cut short meanwhile cannot be parsed, or, where it is mapped, written
            # to the store: neither its format nor the store is at fault.
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

    def _taken(self, folder: Path) -> dict[str, Output]:
        """The files that a stage has left, in the store."""
        names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        return {
            name: self.state.store.take(
                folder / name, inline=name.endswith(".json") and not name.startswith(PUBLISHED)
            )
            for name in names
        }

    def _record(self, task: str) -> Record:
        verdict = self.state.verdict(task)
        if isinstance(verdict, Stale):
            message = f"{task} is stale after it has run"
            raise InternalError(message)
        return verdict.record


def _store_fault(error: Exception, folder: Path) -> OSError | None:
    """What the system said where the store could not be written; None where that was not it.

    Stages write nowhere but to their folder in it, whose name would tell the user nothing.
    """
    if isinstance(error, OSError):
        return error if folder in Path(str(error.filename)).parents else None
    fault = error.__cause__
    return fault if isinstance(error, ArtifactError) and isinstance(fault, OSError) else None


def _check_promised(spec: StageSpec, outputs: Mapping[str, Output]) -> None:
    """Whether a stage has left all that the plan promises."""
    for name in spec.stage.output_files:
        if name not in outputs:
            message = f"the stage {spec.kind} did not leave {name}"
            raise InternalError(message)


def return_free_memory() -> None:
    """Return what the C library keeps for later, where it can be asked to.

    After a large stage glibc keeps as much as the stage took at most, for each thread apart; stages
    that run at the same time would take that much each.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # slow to import, and small builds need it never

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Handover:
    """The graphs that stages of one run have left, until every stage that reads them is done.

    Args:
        plan: the plan, which tells who reads what.
    """

    def __init__(self, plan: Plan) -> None:
        self._readers = Counter(
            up for spec in plan.stages for up in {*spec.stage.upstream.values()}
        )
        self._graphs: dict[Upstream, Graph] = {}
        self._done: set[str] = set()
        self._lock = threading.Lock()

    def leave(self, upstream: Upstream, graph: Graph) -> None:
        """Keep a graph for those that will read it; nothing where nobody will."""
        with self._lock:
            if self._readers[upstream] > 0:
                self._graphs[upstream] = graph

    def find(self, upstream: Upstream) -> Graph | None:
        """The graph, where a stage of this run has left it."""
        with self._lock:
            return self._graphs.get(upstream)

    def done(self, spec: StageSpec) -> None:
        """A stage has read what it reads, or need not run."""
        with self._lock:
            if spec.task in self._done:
                return
            self._done.add(spec.task)
            for upstream in {*spec.stage.upstream.values()}:
                self._readers[upstream] -= 1
                if self._readers[upstream] <= 0:
                    self._graphs.pop(upstream, None)
