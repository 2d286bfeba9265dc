"""Determine which stages are fresh by looking up their fingerprints in the cache."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from mobileprep.building.pipeline.output import LastRun, Record
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.fingerprints import (
    Change,
    Components,
    changes_of,
    components,
    digest_text,
    fingerprint,
)
from mobileprep.building.plan.spec import Plan, StageFile, StageSpec, Upstream
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.lock_file import lock_path
from mobileprep.recipe.model import Recipe


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


class State:
    """The freshness of a plan's stages according to a cache.

    A record alone makes a stage fresh, unless ``check_outputs`` finds that the cache lacks an
    output that a running stage or an output directory needs.

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
        # Reasons for fresh stages to run, from ``check_outputs``, and their fingerprints.
        self._lost: dict[str, tuple[str, str]] = {}
        self._lock = threading.RLock()

    def spec(self, task: str) -> StageSpec:
        return self._specs[task]

    def verdict(self, task: str) -> Fresh | Stale:
        """Return whether a stage is fresh. A fresh verdict is cached until ``plan_again``.

        A stale verdict is computed again each time, because another process may have run the stage
        meanwhile.
        """
        fresh = self._fresh.get(task)
        return fresh or self.verdicts([task])[task]

    def verdicts(self, tasks: Iterable[str]) -> dict[str, Fresh | Stale]:
        """Return the current verdicts of several stages; raises the same errors as ``verdict``."""
        tasks = list(tasks)
        stale: dict[str, Stale] = {}
        for spec in self.plan.until(tasks, self._fresh):
            verdict = self._judge(spec)
            if isinstance(verdict, Fresh):
                self._fresh[spec.task] = verdict
            else:
                stale[spec.task] = verdict
        # Another thread may have just discarded a verdict.
        return {task: stale.get(task) or self.verdict(task) for task in tasks}

    def finished(self, task: str, record: Record) -> None:
        """Note that a stage has just run."""
        with self._lock:
            before = self._fresh.get(task)
            self._fresh[task] = Fresh(record)
            key = fingerprint(dict(record.components))
            self._ran.add(key)
            self._last_runs.pop(task, None)
            if before is None or before.record.outputs != record.outputs:
                self._forget_after(task)

    def check_outputs(self, requested: Iterable[Upstream] = ()) -> None:
        """Mark fresh stages as stale if the cache lacks an output that is needed.

        Outputs are needed if they are in ``requested`` or if a stage that runs reads them.
        Outputs in the remote cache count as available.
        """
        verdicts = self.verdicts(self._specs)
        needed = set(requested)
        lost: dict[str, tuple[str, str]] = {}
        for spec in reversed(self.plan.stages):
            verdict = verdicts[spec.task]
            if isinstance(verdict, Fresh):
                reason = self._lost_reason(spec.task, verdict.record, needed)
                if not reason:
                    continue
                lost[spec.task] = reason, fingerprint(dict(verdict.record.components))
            needed.update(spec.stage.upstream.values())
        with self._lock:
            self._lost |= lost
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
            self._fresh.clear()
            self._lost.clear()

    def record(self, task: str) -> Record:
        """Return the record of a fresh stage; raise an error if it is stale."""
        verdict = self.verdict(task)
        if isinstance(verdict, Stale):
            message = f"{task} has not run"
            raise CorruptFileError(message, "build again")
        return verdict.record

    def hash_inputs(self) -> None:
        """Hash all input files that have changed, in parallel."""
        paths = {file.path for spec in self.plan.stages for file in spec.input_files}
        self._digests |= self.store.files.digest_many(paths)

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
        return sha256_bytes(spec.task.encode())

    def _judge(self, spec: StageSpec) -> Fresh | Stale:
        """Compute the verdict of a stage after those of its upstream stages."""
        digests: dict[str, str] = {}
        for slot, files in spec.stage.files.items():
            digests.update({f"{slot}:{f.name}": self.digest(f) for f in files.members})
        for slot, up in spec.stage.upstream.items():
            verdict = self._fresh.get(up.task)
            if verdict is None:
                last, lost = self._last(spec), self._lost.get(spec.task)
                if lost is None:
                    return Stale((f"{up.task} runs first",), last=last)
                return Stale(lost[:1], key=lost[1], last=last)
            digests[slot] = verdict.record.outputs[up.output].sha256
        parts = components(spec.stage, digests)
        key = fingerprint(parts)
        if self._force and key not in self._ran:
            return self._stale(spec, parts, "--force was given")
        if spec.task in self._lost and key not in self._ran:
            return self._stale(spec, parts, self._lost[spec.task][0])
        record = self.store.load(key)
        if record is None or not set(spec.stage.output_files) <= set(record.outputs):
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
        for folder in (files.root, *(p for f in files.members for p in f.path.parents))
        if folder == files.root or files.root in folder.parents
    }


def _read(recipes: Iterable[Recipe], plan: Plan) -> Iterator[Path]:
    for spec in plan.stages:
        yield from (file.path for file in spec.input_files)
    for recipe in recipes:
        # Includes files that are completely overridden, because their next version may matter.
        yield from recipe.files
        for target in recipe.targets:
            files = (target.device_file, target.measurement_file)
            yield from (file.path for file in files if file is not None)
            yield from (pin.file.path for pin in target.source.pins)
            yield from (s.plugin.schema.path for s in target.transforms if s.plugin is not None)
