"""Which stages are fresh: fingerprints worked out from digests, and looked up in the store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mobileprep.errors import CorruptFileError
from mobileprep.fsio import sha256_file
from mobileprep.pipeline.store import Output, Record, Store
from mobileprep.plan.fingerprints import (
    Components,
    components,
    digest_text,
    explain,
    fingerprint,
)
from mobileprep.plan.spec import Plan, StageFile, StageSpec

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class Fresh:
    """A stage whose outputs are in the store, whole."""

    record: Record


@dataclass(frozen=True)
class Stale:
    """A stage that must run, with the reasons in words.

    ``parts`` is None while an earlier stage has yet to run.
    """

    reasons: tuple[str, ...]
    parts: Components | None = None


class State:
    """The freshness of a plan's stages against a store.

    Each input file is hashed once for the life of the object, always from its bytes: times
    and sizes do not tell whether a file has changed.

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
        self._digests: dict[Path, str] = {}
        self._stamps: dict[Path, Stamp | None] = {}
        self._held: set[Output] = set()
        self._fresh: dict[str, Fresh] = {}

    def verdict(self, task: str) -> Fresh | Stale:
        """Whether a stage is fresh. What is found fresh stays so for the life of the object.

        What is stale is judged anew: another process may have run the stage in the meantime.

        Raises:
            CorruptFileError: an input file is missing or unreadable.
        """
        known = self._fresh.get(task)
        if known is not None:
            return known
        found = self._judge(self._specs[task])
        if isinstance(found, Fresh):
            self._fresh[task] = found
        return found

    def finished(self, task: str, record: Record) -> None:
        """Note that a stage has just run."""
        self._fresh[task] = Fresh(record)

    def output(self, task: str, name: str) -> Output:
        """An output of a stage that is fresh."""
        return self._fresh[task].record.outputs[name]

    def digest(self, file: StageFile) -> str:
        """The sha256 of an input file, taken once."""
        path = file.path
        if path not in self._digests:
            stamp = _stamp(path)
            self._digests[path] = sha256_file(path)
            self._stamps[path] = stamp
        return self._digests[path]

    def check_unchanged(self, spec: StageSpec) -> None:
        """Make sure that a stage has read the bytes that its fingerprint was made of.

        Raises:
            CorruptFileError: an input file was touched since its digest was taken.
        """
        for file in spec.input_files:
            if _stamp(file.path) != self._stamps.get(file.path):
                message = f"{file.name} changed during the build"
                raise CorruptFileError(message, "build again", str(file.path))

    def latest_key(self, spec: StageSpec) -> str:
        """The key under which the task's last components are kept."""
        return hashlib.sha256(spec.task.encode()).hexdigest()

    def _judge(self, spec: StageSpec) -> Fresh | Stale:
        digests: dict[str, str] = {}
        for slot, files in spec.stage.files.items():
            digests.update({f"{slot}:{f.name}": self.digest(f) for f in files.members})
        for slot, up in spec.stage.upstream.items():
            verdict = self.verdict(up.task)
            if isinstance(verdict, Stale):
                return Stale((f"{up.task} runs first",))
            digests[slot] = verdict.record.outputs[up.output].sha256
        parts = components(spec.stage, digests)
        if self._force:
            return Stale(("--force was given",), parts)
        record = self.store.load(fingerprint(parts))
        if record is None or not set(spec.stage.output_files) <= set(record.outputs):
            return Stale(tuple(self._reasons(spec, parts)), parts)
        for name, output in record.outputs.items():
            if not self._holds(output):
                wanted = digest_text(output.sha256)
                return Stale(
                    (f"the stored {name} is missing or damaged, expected {wanted}",), parts
                )
        return Fresh(record)

    def _holds(self, output: Output) -> bool:
        """Whether the store has an object whole; steps that change nothing share theirs."""
        if output not in self._held and self.store.holds(output):
            self._held.add(output)
        return output in self._held

    def _reasons(self, spec: StageSpec, parts: Components) -> list[str]:
        before = self.store.latest(self.latest_key(spec))
        if before is None:
            return ["it has not run before"]
        try:
            return explain(dict(before), parts) or ["its record is gone"]
        except (KeyError, TypeError, AttributeError):
            return ["its record cannot be read"]


def _stamp(path: Path) -> Stamp | None:
    """What tells cheaply that a file was touched; None where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
