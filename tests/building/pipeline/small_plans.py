"""Plans of small stages that join texts, and what may befall a build between two runs of it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mobileprep.building.plan.spec import (
    Files,
    Plan,
    PlannedRecord,
    Stage,
    StageFile,
    StageSpec,
    TargetPlan,
    Upstream,
)
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import CompressRecord, ModelFacts, PackageRecord

RECORDS = {
    "freeze.json": FreezeRecord,
    "package.json": PackageRecord,
    "compress.json": CompressRecord,
}


class MixStage(Stage, frozen=True, kw_only=True):
    """Joins the text of its inputs and its own, and leaves the first ``keep`` characters."""

    stage_name: ClassVar[str] = "mix"
    stage_version: ClassVar[int] = 1

    source: Files | None = None
    one: Upstream | None = None
    two: Upstream | None = None
    ships: str = ""
    say: str = ""
    keep: int = 1000

    @property
    def left(self) -> str:
        """The name of what it leaves."""
        return f"files/{self.ships}" if self.ships else "text"

    @property
    def output_files(self) -> tuple[str, ...]:
        return (*RECORDS, self.left)


def mix(job: Job[MixStage]) -> None:
    """The stage."""
    asked = job.asked
    texts = [f.path.read_text() for files in asked.files.values() for f in files.members]
    texts += [b"".join(job.data(up)).decode() for up in asked.upstream.values()]
    text = ("".join(texts) + asked.say)[: asked.keep]
    job.output(asked.left).parent.mkdir(exist_ok=True)
    job.output(asked.left).write_text(text)
    job.write_record("freeze.json", FreezeRecord(len(text), 0, 0, 0, {}, 0, (), (), {}))
    job.write_record("compress.json", CompressRecord(len(text), "none"))
    facts = ModelFacts("text", 0, 0, 0, len(text))
    job.write_record("package.json", PackageRecord(facts, {}, ()))


@dataclass(frozen=True)
class Wish:
    """One stage of a chain.

    Args:
        reads: how many stages before it each of its inputs stands; none for the source.
        say: what it adds.
        keep: how much it keeps.
        ships: whether what it leaves goes to the folder.
    """

    reads: tuple[int, ...]
    say: str
    keep: int
    ships: bool


def small_plan(sources: Sequence[Path], chains: Sequence[Sequence[Wish]]) -> Plan:
    """A recipe with one target for each chain, each with a source of its own."""
    stages: list[StageSpec] = []
    targets: list[TargetPlan] = []
    for number, (path, chain) in enumerate(zip(sources, chains, strict=True)):
        source = Files("in", path, (StageFile("in", path),))
        own: list[StageSpec] = []
        for at, wish in enumerate(chain):
            before = [own[at - back] for back in wish.reads if back <= at]
            inputs = [Upstream(s.task, s.stage.left) for s in before]  # type: ignore[attr-defined]
            stage = MixStage(
                source=None if inputs else source,
                one=inputs[0] if inputs else None,
                two=inputs[1] if len(inputs) > 1 else None,
                ships=f"s{at}" if wish.ships else "",
                say=wish.say,
                keep=wish.keep,
            )
            own.append(StageSpec(f"r{number}/{at}", stage))
        last = own[-1].task
        planned = tuple(PlannedRecord(kind, Upstream(last, name)) for name, kind in RECORDS.items())
        tasks = tuple(spec.task for spec in own)
        targets.append(TargetPlan(f"r{number}", "t", tasks, planned, source.members, {}))
        stages += own
    return Plan(tuple(stages), tuple(targets))


def garble(path: Path) -> None:
    path.write_bytes(b"garbled")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("mine")


def put_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


SPOILS: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "garbled": garble,
    "flipped": flip,
    "truncated": truncate,
    "a folder": put_folder,
    "a link": put_link,
}


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, by name."""
    return sorted(p for p in folder.rglob("*") if p.is_file())


def spoil_one(folder: Path, number: int, how: str) -> None:
    """Spoil one of the files below a folder, where there is any."""
    found = files_below(folder)
    if found:
        with contextlib.suppress(FileNotFoundError):
            SPOILS[how](found[number % len(found)])


def remove_all(folder: Path) -> None:
    """Remove a folder, where there is one."""
    shutil.rmtree(folder, ignore_errors=True)
