"""Determine which stages are fresh by looking up their fingerprints in the cache."""

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
    """A stage with a cached record; its outputs may still be missing from the cache."""

    record: Record


class Stale(Struct, frozen=True):
    """A stage that must run.

    Args:
        reasons: explanations for the user.
        parts: components of its fingerprint; None while an earlier stage must run first.
        key: the fingerprint, or None if it is unknown; a stage with a lost output keeps it.
        changes: changes since its last run.
        last: its last run, if the cache knows one.
    """

    reasons: tuple[str, ...]
    parts: Components | None = None
    key: str | None = None
    changes: tuple[Change, ...] = ()
    last: LastRun | None = None


class Lost(Struct, frozen=True):
    """The reason why a stage with missing outputs runs again, and its fingerprint."""

    reason: str
    key: str


class State:
    """The freshness of a plan's stages according to a cache.

    A record alone makes a stage fresh, unless ``check_outputs`` finds that the cache lacks an
    output
    that a running stage or an output directory needs.

    Args:
        plan: stages of the build.
        store: cache to look up.
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
        # Stale stages are checked repeatedly, but their last run before this build does not change.
        self._last_runs: dict[str, LastRun | None] = {}
        # Fingerprints that have run. Of several stages with the same fingerprint, only one runs.
        self._ran: set[str] = set()
        # Reasons for fresh stages to run, from ``check_outputs``.
        self._lost: dict[str, Lost] = {}
        # Number of times that verdicts were discarded.
        self._forgotten = 0
        self._lock = threading.RLock()

    def spec(self, task: str) -> StageSpec:
        return self._specs[task]

    def verdict(self, task: str) -> Fresh | Stale:
        """Return whether a stage is fresh. A fresh verdict is cached until ``plan_again``.

        A stale verdict is computed again each time, because another process may have run the stage
        meanwhile.
        """
        return self._verdict(task, {})

    def verdicts(self, tasks: Iterable[str]) -> dict[str, Fresh | Stale]:
        """Return the current verdicts of several stages; raises the same errors as ``verdict``."""
        stale: dict[str, Stale] = {}
        return {task: self._verdict(task, stale) for task in tasks}

    def _verdict(self, task: str, stale: dict[str, Stale]) -> Fresh | Stale:
        """Compute a verdict, using and extending the known stale stages."""
        # Not recursive: a recipe may have more steps than Python's recursion limit.
        todo = [task]
        while todo:
            spec = self._specs[todo[-1]]
            before = self._unjudged(spec, stale)
            if before is not None:
                todo.append(before)
            elif self._settle(spec, stale):
                todo.pop()
        verdict = stale.get(task) or self._fresh.get(task)
        return verdict or self.verdict(task)  # another thread has just discarded it

    def _unjudged(self, spec: StageSpec, stale: Mapping[str, Stale]) -> str | None:
        """Return the next upstream stage to check first, or None if there is none."""
        if spec.task in stale or spec.task in self._fresh:
            return None
        for task in (up.task for up in spec.stage.upstream.values()):
            if task in stale:
                return None
            if task not in self._fresh:
                return task
        return None

    def _settle(self, spec: StageSpec, stale: dict[str, Stale]) -> bool:
        """Check a stage whose upstream stages are checked; return whether its verdict is valid."""
        if spec.task in stale or spec.task in self._fresh:
            return True
        forgotten = self._forgotten
        verdict = self._judge(spec, stale)
        if isinstance(verdict, Stale):
            stale[spec.task] = verdict
            return True
        with self._lock:
            # The verdict may depend on one that another thread has discarded meanwhile.
            if self._forgotten == forgotten:
                self._fresh[spec.task] = verdict
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

    def check_outputs(self, requested: Iterable[Upstream] = ()) -> None:
        """Mark fresh stages as stale if the cache lacks an output that is needed.

        Outputs are needed if they are in ``requested`` or if a stage that runs reads them.
        Outputs in the remote cache count as available.
        """
        verdicts = self.verdicts(self._specs)
        needed = set(requested)
        lost: dict[str, Lost] = {}
        for spec in reversed(self.plan.stages):
            verdict = verdicts[spec.task]
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
        """Return why a stage must run again, or an empty string if its outputs are available."""
        for name, output in sorted(record.outputs.items()):
            if Upstream(task, name) in needed and self.store.missing(output):
                expected = digest_text(output.sha256)
                return f"the stored {name} is missing or damaged, expected {expected}"
        return ""

    def plan_again(self, dropped: Iterable[str]) -> None:
        """Discard all verdicts, and use only cache entries of stages that this build has run.

        Args:
            dropped: stages whose cache entries are ignored even if this build has run them.
        """
        with self._lock:
            records = [self._fresh[task].record for task in dropped if task in self._fresh]
            self._ran -= {fingerprint(dict(record.components)) for record in records}
            self._force = True
            self._forgotten += 1
            self._fresh.clear()
            self._lost.clear()

    def record(self, task: str) -> Record:
        """Return the record of a fresh stage."""
        return self._fresh[task].record

    def output(self, task: str, name: str) -> Output:
        """Return an output of a fresh stage."""
        return self.record(task).outputs[name]

    def digest(self, file: StageFile) -> str:
        """Return the SHA-256 of an input file, which is computed once."""
        digest = self._digests.get(file.path)
        if digest is None:
            digest = self._digests[file.path] = self.store.files.digest(file.path)
        return digest

    def check_unchanged(self, spec: StageSpec) -> None:
        """Check that a stage has read the same content as its fingerprint describes.

        Raises:
            CorruptFileError: an input file changed during the build.
        """
        for file in spec.input_files:
            if not self.store.files.unchanged(file.path):
                message = f"{file.shown} changed during the build"
                raise CorruptFileError(message, "build again", str(file.path))

    def latest_key(self, spec: StageSpec) -> str:
        """Return the key of the task's last run in the cache."""
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
        """Discard the verdicts of all stages downstream of a stage whose outputs changed."""
        todo = [task]
        while todo:
            readers = self._readers[todo.pop()]
            todo += [after for after in readers if self._fresh.pop(after, None) is not None]

    def _last(self, spec: StageSpec) -> LastRun | None:
        if spec.task not in self._last_runs:
            self._last_runs[spec.task] = self.store.last_run(self.latest_key(spec))
        return self._last_runs[spec.task]

    def _stale(self, spec: StageSpec, parts: Components, reason: str = "") -> Stale:
        """Create a stale verdict with a reason or with the changes since the last run."""
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
    """Return whether a record belongs to a fingerprint; its content is not trusted."""
    try:
        return fingerprint(dict(record.components)) == key
    except (ValueError, TypeError):
        return False


def files_read(recipes: Iterable[Recipe], plan: Plan, *, locked: bool = False) -> set[Path]:
    recipes = list(recipes)
    locks = {lock_path(Path(recipe.file)) for recipe in recipes} if locked else set()
    return {*_read(recipes, plan)} | locks


def folders_read(plan: Plan) -> set[Path]:
    """Return the input directories that recipes name, and their subdirectories.

    A new file in one of them changes the inputs of a build.
    """
    return {
        folder
        for spec in plan.stages
        for files in spec.stage.files.values()
        if files.root.is_dir()
        for folder in _folders(files)
    }


def files_named(recipes: Iterable[Recipe]) -> set[Path]:
    """Return the files, directories, and checkpoint prefixes that recipes name, existing or not."""
    return {file.path for recipe in recipes for file in _input_files(recipe.targets)}


def folders_looked_into(plan: Plan, named: set[Path], read: Iterable[Path]) -> set[Path]:
    """Return the directories in which a new or removed file could change the plan."""
    slots = [files for spec in plan.stages for files in spec.stage.files.values()]
    roots = {files.root for files in slots}
    # The assets of a MetaGraph are in the same directory.
    beside = {root.with_name("assets") for root in roots}
    walked = {*folders_read(plan), *beside, *(path for path in named if path.is_dir())}
    below = {Path(folder) for top in walked for folder, _, _ in os.walk(top.absolute())}
    return _folders_above([*read, *named, *roots, *beside]) | below


def _folders_above(paths: Iterable[Path]) -> set[Path]:
    """Return the nearest existing parent directory of each path."""
    folders = set()
    for path in paths:
        folders.add(next(above for above in path.absolute().parents if above.is_dir()))
    return folders


def _input_files(value: object) -> Iterator[InputFile]:
    """Yield every file that a part of a recipe names, at any depth."""
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
        # Includes files that are completely overridden, because their next version may matter.
        yield from recipe.files
        for target in recipe.targets:
            yield from () if target.device_file is None else (target.device_file.path,)
            yield from (pin.file.path for pin in target.source.pins)
            yield from (s.plugin.schema.path for s in target.transforms if s.plugin is not None)


def _folders(files: Files) -> Iterator[Path]:
    yield files.root
    for file in files.members:
        yield from (p for p in file.path.parents if files.root in p.parents)
