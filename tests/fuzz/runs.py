"""Run many cases in parallel, and record progress and failures."""

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
from tests.fuzz.judge import problems
from tests.fuzz.limits import run_case
from tests.fuzz.shrink import shrunk

BATCH = 100


class Finding(Struct, frozen=True):
    """A case that failed.

    Args:
        format: the format of its files.
        number: its number within the seed.
        problems: the problems of its outcome.
        error: the end of standard error.
        command: the command line.
    """

    format: str
    number: int
    problems: tuple[str, ...]
    error: str
    command: str


def case_of(name: str, seed: int, number: int) -> Case:
    """The case of a seed and a number, always the same."""
    return formats[name](random.Random(f"{name} {seed} {number}"))


def findings(name: str, seed: int, numbers: Sequence[int]) -> list[Finding]:
    """The failing cases among some."""
    results = []
    cases = [case_of(name, seed, number) for number in numbers]
    for number, (case, outcome) in zip(numbers, run_cases(cases), strict=True):
        wrong = problems(case, outcome)
        if wrong:
            command = " ".join(case.arguments)
            results.append(Finding(name, number, tuple(wrong), outcome.error[-1500:], command))
    return results


def run_many(
    name: str, seed: int, numbers: Sequence[int], workers: int = 0
) -> Iterator[list[Finding]]:
    """The findings of each batch of cases, in order."""
    if not numbers:
        return
    seeds.import_all()
    case_of(name, seed, numbers[0])  # fills caches before the workers fork
    batches = [(name, seed, numbers[at : at + BATCH]) for at in range(0, len(numbers), BATCH)]
    context = multiprocessing.get_context("fork")
    with context.Pool(workers or cores(), _lower_priority) as pool:
        yield from pool.imap(_batch, batches)


def _lower_priority() -> None:
    os.nice(5)


def _batch(arguments: tuple[str, int, Sequence[int]]) -> list[Finding]:
    return findings(*arguments)


def save_case(finding: Finding, seed: int, folder: Path) -> Path:
    """Shrink a failing case, write it below a directory, and return its own directory."""
    case = case_of(finding.format, seed, finding.number)
    problem = finding.problems[0]
    small = shrunk(case, lambda tried: problem in problems(tried, run_case(tried)))
    target = folder / f"{finding.format}-{sha256_bytes(problem.encode())[:8]}"
    small.save(target)
    return target


class Progress:
    """The progress of a run of one format and seed, stored in a file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done = 0
        self.failed: dict[str, list[int]] = {}
        """The numbers of failed cases, by their first problem."""
        self._reported: set[str] = set()
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.done, self.failed = stored["done"], stored.get("failed", {})

    def record(
        self, count: int, findings: Sequence[Finding], report: Callable[[Finding], None]
    ) -> None:
        """Record a batch, and report each problem once per run."""
        for finding in findings:
            self.failed.setdefault(finding.problems[0], []).append(finding.number)
            if finding.problems[0] not in self._reported:
                self._reported.add(finding.problems[0])
                report(finding)
        self.done += count
        content = {"done": self.done, "failed": self.failed}
        write_text(self._path, json.dumps(content, sort_keys=True))

    def failed_numbers(self) -> list[int]:
        """The numbers of failed cases."""
        return sorted({number for numbers in self.failed.values() for number in numbers})

    def record_rerun(self, findings: Sequence[Finding], report: Callable[[Finding], None]) -> None:
        """Record which of the failed cases fail again."""
        self.failed = {}
        self.record(0, findings, report)
