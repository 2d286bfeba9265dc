"""Runs of many cases over all processors: what is done is noted, what fails is kept."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from mobileprep.core.files import sha256_bytes, write_text
from mobileprep.core.parallel import cores
from tests.fuzz import seeds
from tests.fuzz.batches import run_cases
from tests.fuzz.case import Case, formats
from tests.fuzz.judge import faults
from tests.fuzz.limits import run_case
from tests.fuzz.shrink import shrunk

BATCH = 100


class Finding(Struct, frozen=True):
    """A case that failed.

    Args:
        format: its format.
        number: which case of the seed it is.
        faults: what is wrong.
        error: the end of what the command printed.
        command: the command line.
    """

    format: str
    number: int
    faults: tuple[str, ...]
    error: str
    command: str


def case_of(name: str, seed: int, number: int) -> Case:
    """A case; the same each time."""
    return formats[name](random.Random(f"{name} {seed} {number}"))


def findings(name: str, seed: int, numbers: Sequence[int]) -> list[Finding]:
    """The cases among some that fail."""
    found = []
    cases = [case_of(name, seed, number) for number in numbers]
    for number, (case, outcome) in zip(numbers, run_cases(cases), strict=True):
        wrong = faults(case, outcome)
        if wrong:
            command = " ".join(case.arguments)
            found.append(Finding(name, number, tuple(wrong), outcome.error[-1500:], command))
    return found


def run_many(
    name: str, seed: int, numbers: Sequence[int], workers: int = 0
) -> Iterator[list[Finding]]:
    """The findings of each batch of cases, in order."""
    if not numbers:
        return
    seeds.import_all()
    case_of(name, seed, numbers[0])  # what is made once is made before the workers fork
    batches = [(name, seed, numbers[at : at + BATCH]) for at in range(0, len(numbers), BATCH)]
    context = multiprocessing.get_context("fork")
    with context.Pool(workers or cores(), _settle) as pool:
        yield from pool.imap(_batch, batches)


def _settle() -> None:
    os.nice(5)


def _batch(asked: tuple[str, int, Sequence[int]]) -> list[Finding]:
    return findings(*asked)


def keep(finding: Finding, seed: int, folder: Path) -> Path:
    """Shrink a case that failed, and write it below a folder; the folder of the case."""
    case = case_of(finding.format, seed, finding.number)
    wanted = finding.faults[0]
    small = shrunk(case, lambda tried: wanted in faults(tried, run_case(tried)))
    named = folder / f"{finding.format}-{sha256_bytes(wanted.encode())[:8]}"
    small.keep(named)
    return named


class Progress:
    """How far a run of a format and a seed has come, in a file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done = 0
        self.failed: dict[str, list[int]] = {}
        """The numbers of the cases that have failed, by their first fault."""
        self._told: set[str] = set()
        if path.exists():
            noted = json.loads(path.read_text(encoding="utf-8"))
            self.done, self.failed = noted["done"], noted.get("failed", {})

    def note(self, count: int, found: Sequence[Finding], tell: Callable[[Finding], None]) -> None:
        """Note a batch; a cause is told once in each run, for what was mended may come back."""
        for finding in found:
            self.failed.setdefault(finding.faults[0], []).append(finding.number)
            if finding.faults[0] not in self._told:
                self._told.add(finding.faults[0])
                tell(finding)
        self.done += count
        noted = {"done": self.done, "failed": self.failed}
        write_text(self._path, json.dumps(noted, sort_keys=True))

    def failed_numbers(self) -> list[int]:
        """The numbers of the cases that have failed."""
        return sorted({number for found in self.failed.values() for number in found})

    def note_again(self, found: Sequence[Finding], tell: Callable[[Finding], None]) -> None:
        """Note which of the cases that had failed still do, once all of them were run again."""
        self.failed = {}
        self.note(0, found, tell)
