"""Which stages are fresh: fingerprints worked out from digests, and looked up in the store."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, structs

from mobileprep.building.pipeline.output import LastRun, Output, Record
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.fingerprints import (
    Change,
    Components,
    changes_of,
    components,
    digest_text,
    fingerprint,
)
from mobileprep.building.plan.spec import Files, Plan, StageFile, StageSpec, Upstream
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.lock_file import lock_path
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.settings import InputFile


class Fresh(Struct, frozen=True):
    """A stage that has run before on the same; what it left is known, but may not be at hand."""

    record: Record


class Stale(Struct, frozen=True):
    """A stage that must run.

    Args:
        reasons: why, in words.
        parts: what its fingerprint is made of; None while an earlier stage has yet to run.
        key: the fingerprint, None where it is not known; a stage whose output is lost keeps it.
        changes: what is not as it was when it last ran.
        last: its last run, where the store knows of one.
    """

    reasons: tuple[str, ...]
    parts: Components | None = None
    key: str | None = None
    changes: tuple[Change, ...] = ()
    last: LastRun | None = None


class Lost(Struct, frozen=True):
    """Why a stage runs again of whose needed outputs the store has not all, and its fingerprint."""

    reason: str
    key: str


class State:
    """The freshness of a plan's stages against a store.

    A stage is fresh by its record alone, unless ``check_outputs`` finds that the store lacks an
    output of it which a stage that runs, or a folder, needs.

    Args:
        plan: the plan.
        store: the store.
        force: treat every stage as stale until it has run.
    """

    def __init__(self, plan: Plan, store: Store, *, force: bool = False) -> None:
        self.plan = plan
        self.store = store
        self._force = force
        self._specs = {s.task: s for s in plan.stages}
        self._readers: defaultdict[str, list[str]] = defaultdict(list)
        for spec in plan.stages:
            for task in spec.needs:
                self._readers[task].append(spec.task)
        self._digests: dict[Path, str] = {}
        self._fresh: dict[str, Fresh] = {}
        # Stale stages are judged again and again; what ran before this build stays what it was.
        self._last_runs: dict[str, LastRun | None] = {}
        # The fingerprints that have been run: of stages with equal ones, one runs for all.
        self._ran: set[str] = set()
        # Why fresh stages have to run, as ``check_outputs`` has found.
        self._lost: dict[str, Lost] = {}
        # How often verdicts were forgotten.
        self._forgotten = 0
        self._lock = threading.RLock()

    def spec(self, task: str) -> StageSpec:
        """The stage of that task name."""
        return self._specs[task]

    def verdict(self, task: str) -> Fresh | Stale:
        """Whether a stage is fresh. What is found fresh stays so until ``plan_again``.

        What is stale is judged anew: another process may have run the stage in the meantime.
        """
        return self._verdict(task, {})

    def verdicts(self, tasks: Iterable[str]) -> dict[str, Fresh | Stale]:
        """The verdicts of several stages as of now, each judged once; raises as ``verdict``."""
        stale: dict[str, Stale] = {}
        return {task: self._verdict(task, stale) for task in tasks}

    def _verdict(self, task: str, stale: dict[str, Stale]) -> Fresh | Stale:
        """A verdict that goes by what has been found stale, and adds to it."""
        # No recursion: a recipe may have more steps than Python's stack has room for.
        todo = [task]
        while todo:
            spec = self._specs[todo[-1]]
            before = self._unjudged(spec, stale)
            if before is not None:
                todo.append(before)
            elif self._settle(spec, stale):
                todo.pop()
        known = stale.get(task) or self._fresh.get(task)
        return known or self.verdict(task)  # another thread has just forgotten it

    def _unjudged(self, spec: StageSpec, stale: Mapping[str, Stale]) -> str | None:
        """The next stage to judge before one; None where that can be judged."""
        if spec.task in stale or spec.task in self._fresh:
            return None
        for task in (up.task for up in spec.stage.upstream.values()):
            if task in stale:
                return None
            if task not in self._fresh:
                return task
        return None

    def _settle(self, spec: StageSpec, stale: dict[str, Stale]) -> bool:
        """Judge a stage whose earlier ones are judged; whether its verdict stands."""
        if spec.task in stale or spec.task in self._fresh:
            return True
        forgotten = self._forgotten
        found = self._judge(spec, stale)
        if isinstance(found, Stale):
            stale[spec.task] = found
            return True
        with self._lock:
            # What another thread forgot in the meantime may be what this was judged by.
            if self._forgotten == forgotten:
                self._fresh[spec.task] = found
            return self._forgotten == forgotten

    def finished(self, task: str, record: Record) -> None:
        """Note that a stage has just run."""
        with self._lock:
            before = self._fresh.get(task)
            self._fresh[task] = Fresh(record)
            key = fingerprint(dict(record.components))
            self._ran.add(key)
            self._last_runs.pop(task, None)
            if before is None or before.record.outputs != record.outputs:
                self._forgotten += 1
                self._forget_after(task)

    def check_outputs(self, wanted: Iterable[Upstream] = ()) -> None:
        """Make stale each fresh stage of whose needed outputs the store has not all.

        Needed are the wanted outputs, and what stages read that run. What the remote store has
        counts as there.
        """
        found = self.verdicts(self._specs)
        needed = set(wanted)
        lost: dict[str, Lost] = {}
        for spec in reversed(self.plan.stages):
            verdict = found[spec.task]
            if isinstance(verdict, Fresh):
                reason = self._lost_reason(spec.task, verdict.record, needed)
                if not reason:
                    continue
                lost[spec.task] = Lost(reason, fingerprint(dict(verdict.record.components)))
            needed.update(spec.stage.upstream.values())
        with self._lock:
            self._lost |= lost
            self._forgotten += 1
            for task in lost:
                self._fresh.pop(task, None)
                self._forget_after(task)

    def _lost_reason(self, task: str, record: Record, needed: set[Upstream]) -> str:
        """Why a stage has to run for an output; empty where all that are needed are there."""
        for name, output in sorted(record.outputs.items()):
            if Upstream(task, name) in needed and self.store.missing(output):
                wanted = digest_text(output.sha256)
                return f"the stored {name} is missing or damaged, expected {wanted}"
        return ""

    def plan_again(self, dropped: Iterable[str]) -> None:
        """Judge all anew, and use no cache entry but those of stages that have just run.

        Args:
            dropped: the stages whose entries are not used though they have just run.
        """
        with self._lock:
            found = [self._fresh[task].record for task in dropped if task in self._fresh]
            self._ran -= {fingerprint(dict(record.components)) for record in found}
            self._force = True
            self._forgotten += 1
            self._fresh.clear()
            self._lost.clear()

    def record(self, task: str) -> Record:
        """The record of a stage that is fresh."""
        return self._fresh[task].record

    def output(self, task: str, name: str) -> Output:
        """An output of a stage that is fresh."""
        return self.record(task).outputs[name]

    def digest(self, file: StageFile) -> str:
        """The sha256 of an input file, taken once."""
        found = self._digests.get(file.path)
        if found is None:
            found = self._digests[file.path] = self.store.files.digest(file.path)
        return found

    def check_unchanged(self, spec: StageSpec) -> None:
        """Make sure that a stage has read the bytes that its fingerprint was made of."""
        for file in spec.input_files:
            if not self.store.files.unchanged(file.path):
                message = f"{file.shown} changed during the build"
                raise CorruptFileError(message, "build again", str(file.path))

    def latest_key(self, spec: StageSpec) -> str:
        """The key under which the task's last components are kept."""
        return hashlib.sha256(spec.task.encode()).hexdigest()

    def _judge(self, spec: StageSpec, stale: Mapping[str, Stale]) -> Fresh | Stale:
        digests: dict[str, str] = {}
        for slot, files in spec.stage.files.items():
            digests.update({f"{slot}:{f.name}": self.digest(f) for f in files.members})
        for slot, up in spec.stage.upstream.items():
            verdict = stale.get(up.task) or self.verdict(up.task)
            if isinstance(verdict, Stale):
                last, lost = self._last(spec), self._lost.get(spec.task)
                if lost is None:
                    return Stale((f"{up.task} runs first",), last=last)
                return Stale((lost.reason,), key=lost.key, last=last)
            digests[slot] = verdict.record.outputs[up.output].sha256
        parts = components(spec.stage, digests)
        key = fingerprint(parts)
        if self._force and key not in self._ran:
            return self._stale(spec, parts, "--force was given")
        if spec.task in self._lost and key not in self._ran:
            return self._stale(spec, parts, self._lost[spec.task].reason)
        record = self.store.load(key)
        if record is None or not _is_of(record, key):
            return self._stale(spec, parts)
        if not set(spec.stage.output_files) <= set(record.outputs):
            return self._stale(spec, parts)
        return Fresh(record)

    def _forget_after(self, task: str) -> None:
        """Judge anew what reads a stage that has left something else."""
        todo = [task]
        while todo:
            readers = self._readers[todo.pop()]
            todo += [after for after in readers if self._fresh.pop(after, None) is not None]

    def _last(self, spec: StageSpec) -> LastRun | None:
        if spec.task not in self._last_runs:
            self._last_runs[spec.task] = self.store.last_run(self.latest_key(spec))
        return self._last_runs[spec.task]

    def _stale(self, spec: StageSpec, parts: Components, reason: str = "") -> Stale:
        """A stage that must run, for a reason, or for what has changed since its last run."""
        last, key = self._last(spec), fingerprint(parts)
        if reason:
            return Stale((reason,), parts, key, last=last)
        if last is None:
            return Stale(("it has not run before",), parts, key)
        try:
            changes = changes_of(spec, dict(last.components), parts)
        except (KeyError, TypeError, AttributeError):
            return Stale(("its record cannot be read",), parts, key)
        reasons = tuple(map(str, changes)) or ("its record is gone",)
        return Stale(reasons, parts, key, changes, last)


def _is_of(record: Record, key: str) -> bool:
    """Whether a record is of a run of that fingerprint; whoever wrote it may say anything."""
    try:
        return fingerprint(dict(record.components)) == key
    except (ValueError, TypeError):
        return False


def files_read(recipes: Iterable[Recipe], plan: Plan, *, locked: bool = False) -> set[Path]:
    """The files that a build reads."""
    recipes = list(recipes)
    locks = {lock_path(Path(recipe.file)) for recipe in recipes} if locked else set()
    return {*_read(recipes, plan)} | locks


def folders_read(plan: Plan) -> set[Path]:
    """The folders that a recipe names in place of files, and those below: what is put there
    changes what a build reads."""
    return {
        folder
        for spec in plan.stages
        for files in spec.stage.files.values()
        if files.root.is_dir()
        for folder in _folders(files)
    }


def files_named(recipes: Iterable[Recipe]) -> set[Path]:
    """What recipes name, whether it is there or not: files, folders, prefixes of checkpoints."""
    return {file.path for recipe in recipes for file in _input_files(recipe.targets)}


def folders_looked_into(plan: Plan, named: set[Path], read: Iterable[Path]) -> set[Path]:
    """The folders in which a file that comes or goes could change what is planned."""
    slots = [files for spec in plan.stages for files in spec.stage.files.values()]
    roots = {files.root for files in slots}
    # Beside a MetaGraph lie its assets.
    beside = {root.with_name("assets") for root in roots}
    walked = {*folders_read(plan), *beside, *(path for path in named if path.is_dir())}
    below = {Path(folder) for top in walked for folder, _, _ in os.walk(top.absolute())}
    return _folders_above([*read, *named, *roots, *beside]) | below


def _folders_above(paths: Iterable[Path]) -> set[Path]:
    """The nearest folders above some paths that are there."""
    found = set()
    for path in paths:
        found.add(next(above for above in path.absolute().parents if above.is_dir()))
    return found


def _input_files(value: object) -> Iterator[InputFile]:
    """Each file that a part of a recipe names, anywhere in it."""
    if isinstance(value, InputFile):
        yield value
    elif isinstance(value, Struct):
        for item in structs.asdict(value).values():
            yield from _input_files(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _input_files(item)
    elif isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from _input_files(item)


def _read(recipes: Iterable[Recipe], plan: Plan) -> Iterator[Path]:
    for spec in plan.stages:
        yield from (file.path for file in spec.input_files)
    for recipe in recipes:
        # Of one that is overridden as a whole too: what it holds next may count.
        yield from recipe.files
        for target in recipe.targets:
            yield from () if target.device_file is None else (target.device_file.path,)
            yield from (pin.file.path for pin in target.source.pins)
            yield from (s.plugin.schema.path for s in target.transforms if s.plugin is not None)


def _folders(files: Files) -> Iterator[Path]:
    yield files.root
    for file in files.members:
        yield from (p for p in file.path.parents if files.root in p.parents)
