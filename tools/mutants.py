"""Run mutation tests: change one expression at a time and count the changes that a test notices.

python tools/mutants.py [--package formats] [--count 300] [--seed 9] [--jobs 2] [--state FILE]

The seed determines the sample. Mutants are ranked by the digest of their text, not by their line,
so that unrelated edits do not change the sample. Each mutant runs in a copy of the checkout, first
against the test file of its module, then against the test directory of its package. It counts as
noticed if a test fails or exceeds its time limit, and passes again after the change is reverted.

Results are appended to the state file, so that a stopped run can be resumed. A noticed mutant is
tested again if its module changes, and a survivor if its module or its tests change.

These expressions are not changed, because tests cannot observe them: annotations, type aliases,
decorators (caches and ``frozen=True``), imports for type checkers, the ``strict=True`` of a zip (an
assertion), and f-strings. Generated protocol buffers are skipped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import queue
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from mutant_runs import SECONDS, SLOWER, Checkout  # noqa: E402 - in this directory
from mutations import Mutation, mutations  # noqa: E402

# Minimum number of mutants per package, so that the shares of small packages are meaningful.
FEWEST = 10
Given, Made = TypeVar("Given"), TypeVar("Made")


@dataclass(frozen=True)
class Mutant:
    """One change to one module.

    Args:
        module: the module's path below ``mobileprep``.
        change: the expression and its replacement.
        number: index of the change among equal changes in the module, from the top.
    """

    module: str
    change: Mutation
    number: int

    @property
    def package(self) -> str:
        return self.module.split("/", 1)[0]

    @property
    def key(self) -> str:
        return json.dumps([self.module, self.change.before, self.change.after, self.number])

    def rank(self, seed: int) -> bytes:
        """Return the sort key in the package; the sample contains the first mutants."""
        return hashlib.sha256(f"{seed} {self.key}".encode()).digest()

    def __str__(self) -> str:
        change = self.change
        place = f"{self.module}:{change.line}:{change.column}"
        return f"{place}  {change.before}  ->  {change.after}"


def candidates() -> Iterator[Mutant]:
    """Yield every possible mutant."""
    for path in sorted((ROOT / "mobileprep").glob("*/**/*.py")):
        module = path.relative_to(ROOT / "mobileprep").as_posix()
        if path.name == "__init__.py" or module.startswith("formats/protos/"):
            continue
        seen: Counter[tuple[str, str]] = Counter()
        for change in mutations(path.read_text(encoding="utf-8")):
            yield Mutant(module, change, seen[change.before, change.after])
            seen[change.before, change.after] += 1


def sample(count: int, seed: int) -> list[Mutant]:
    """Return about ``count`` mutants, spread over packages by size, with a minimum for each."""
    packages: dict[str, list[Mutant]] = defaultdict(list)
    for found in candidates():
        packages[found.package].append(found)
    every = sum(map(len, packages.values()))
    spread = max(0, count - FEWEST * len(packages))
    chosen: list[Mutant] = []
    for package in sorted(packages):
        here = sorted(packages[package], key=lambda m: m.rank(seed))
        chosen += here[: FEWEST + round(spread * len(here) / every)]
    return chosen


class State:
    """Results of earlier runs."""

    def __init__(self, path: Path, checkout: Checkout) -> None:
        self.path, self.checkout = path, checkout
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        found = [json.loads(line) for line in lines]
        self.lines = {line["mutant"]: line for line in found if "mutant" in line}
        self.durations = {line["timed"]: line["seconds"] for line in found if "timed" in line}

    def find(self, mutant: Mutant) -> str | None:
        """Return the test that notices a mutant, empty if none does, None if it is not known."""
        line = self.lines.get(mutant.key)
        if line is None or line["module"] != self._digest(mutant.module):
            return None
        if not line["noticed"] and line["tests"] != self._tests(mutant.module):
            return None
        return str(line["noticed"])

    def add(self, mutant: Mutant, noticed: str) -> None:
        """Append a result to the file."""
        line = {
            "mutant": mutant.key,
            "module": self._digest(mutant.module),
            "tests": self._tests(mutant.module),
            "noticed": noticed,
        }
        self.lines[mutant.key] = line
        self._append(line)

    def limit(self, tests: str) -> float:
        """Return the time limit of tests in seconds, from their duration without changes."""
        if tests not in self.durations:
            outcome, seconds = self.checkout.timed(tests)
            if outcome.failed:
                # Tests after the first failure would not run.
                sys.exit(f"{outcome.failed} fails without any change:\n{outcome.output[-3000:]}")
            self.durations[tests] = seconds
            self._append({"timed": tests, "seconds": seconds})
        return SLOWER * self.durations[tests] + SECONDS

    def _append(self, line: Mapping[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _digest(self, module: str) -> str:
        return _digest(self.checkout.folder / "mobileprep" / module)

    def _tests(self, module: str) -> str:
        places = [self.checkout.folder / tests for tests in self.checkout.rounds(module)]
        return hashlib.sha256("".join(map(_digest, places)).encode()).hexdigest()


@cache
def _digest(path: Path) -> str:
    """Return the digest of a file, or of all modules below a directory."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


def measure(mutants: Sequence[Mutant], state: State, jobs: int) -> None:
    """Test mutants in parallel, in one copy of the checkout per job."""
    first = state.checkout
    copies: queue.SimpleQueue[Checkout] = queue.SimpleQueue()
    with ThreadPoolExecutor(jobs) as pool:
        rounds = sorted({tests for m in mutants for tests in first.rounds(m.module)})
        folders = [tests for tests in rounds if not tests.endswith(".py")]
        limits = dict(zip(folders, _all(pool, state.limit, folders), strict=True))
        for number in range(jobs):
            folder = first.folder.with_name(f"copy{number}")
            shutil.copytree(first.folder, folder, symlinks=True)
            copies.put(Checkout(folder))

        def attempt(mutant: Mutant) -> None:
            checkout = copies.get()
            state.add(mutant, checkout.verdict(mutant.module, mutant.change, limits))
            copies.put(checkout)

        _all(pool, attempt, mutants)


def _all(
    pool: ThreadPoolExecutor, function: Callable[[Given], Made], given: Sequence[Given]
) -> list[Made]:
    made = []
    for number, result in enumerate(pool.map(function, given), start=1):
        made.append(result)
        print(f"\r{number} of {len(given)} ", end="", file=sys.stderr, flush=True)
    return made


def print_shares(results: Mapping[Mutant, str]) -> None:
    """Print the survivors, then the share of noticed mutants in each package."""
    packages: dict[str, list[bool]] = defaultdict(list)
    for mutant, noticed in results.items():
        packages[mutant.package].append(bool(noticed))
        if not noticed:
            print(f"survived  {mutant}")
    everything = [outcome for outcomes in packages.values() for outcome in outcomes]
    for package, outcomes in [*sorted(packages.items()), ("all", everything)]:
        if outcomes:
            noticed_here = sum(outcomes)
            share = noticed_here / len(outcomes)
            print(f"{package:12} {noticed_here:4} of {len(outcomes):4}  {share:7.1%}")


def main() -> int:
    """Test the mutants without results and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--package", action="append", help="only these packages of the sample")
    parser.add_argument("--state", type=Path, default=ROOT / ".mutants.jsonl")
    parser.add_argument("--show", action="store_true", help="print what is known, run nothing")
    flags = parser.parse_args()
    chosen = sample(flags.count, flags.seed)
    if flags.package:
        chosen = [m for m in chosen if m.package in flags.package]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "first").mkdir()
        state = State(flags.state, Checkout.of_root(Path(folder) / "first"))
        missing = [m for m in chosen if state.find(m) is None]
        if missing and not flags.show:
            measure(missing, state, flags.jobs)
            print(file=sys.stderr)
        found = {mutant: state.find(mutant) for mutant in chosen}
    print_shares({mutant: noticed for mutant, noticed in found.items() if noticed is not None})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
