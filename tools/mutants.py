"""Measures the tests: changes one expression at a time and counts the changes that a test notices.

python tools/mutants.py [--package formats] [--count 300] [--seed 9] [--jobs 2] [--state FILE]

The sample is fixed by its seed. A mutant is drawn by the digest of its text, not by its line, so
that an edit elsewhere leaves the sample as it is. Each runs in a copy of the checkout, first
against the test file of its module, then against the folder that mirrors it. It counts as noticed
where a test fails, or takes three times as long as all of them and more, and passes once the change
is taken back.

Results are appended to the state file, so that a run that was stopped goes on. What was noticed
stays so until the module changes; what was not is tried again once the module or its tests have
changed.

Left out, because no input can tell the difference: annotations, aliases of types, decorators
(caches and ``frozen=True``), imports for type checkers, the ``strict=True`` of a zip (an
assertion), how messages put numbers into words (f-strings). Generated protocol buffers are no code
of ours.
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

from mutant_runs import SECONDS, SLOWER, Checkout  # noqa: E402 - beside this script
from mutations import Mutation, mutations  # noqa: E402

# So that small packages have enough mutants for a share to mean something.
FEWEST = 10
Given, Made = TypeVar("Given"), TypeVar("Made")


@dataclass(frozen=True)
class Mutant:
    """One change to one module.

    Args:
        module: the module's path below ``mobileprep``.
        change: the expression and what takes its place.
        number: which of the module's equal changes it is, counted from the top.
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
        """Where the mutant stands among all of its package: the first ones are drawn."""
        return hashlib.sha256(f"{seed} {self.key}".encode()).digest()

    def __str__(self) -> str:
        change = self.change
        place = f"{self.module}:{change.line}:{change.column}"
        return f"{place}  {change.before}  ->  {change.after}"


def candidates() -> Iterator[Mutant]:
    """Every change that can be made."""
    for path in sorted((ROOT / "mobileprep").glob("*/**/*.py")):
        module = path.relative_to(ROOT / "mobileprep").as_posix()
        if path.name == "__init__.py" or module.startswith("formats/protos/"):
            continue
        seen: Counter[tuple[str, str]] = Counter()
        for change in mutations(path.read_text(encoding="utf-8")):
            yield Mutant(module, change, seen[change.before, change.after])
            seen[change.before, change.after] += 1


def sample(count: int, seed: int) -> list[Mutant]:
    """So many mutants, spread over packages by their size, but some of every package."""
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
    """What earlier runs found."""

    def __init__(self, path: Path, checkout: Checkout) -> None:
        self.path, self.checkout = path, checkout
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        found = [json.loads(line) for line in lines]
        self.lines = {line["mutant"]: line for line in found if "mutant" in line}
        self.durations = {line["timed"]: line["seconds"] for line in found if "timed" in line}

    def find(self, mutant: Mutant) -> str | None:
        """The test that notices a mutant, empty where none does, None where it must be tried."""
        line = self.lines.get(mutant.key)
        if line is None or line["module"] != self._digest(mutant.module):
            return None
        if not line["noticed"] and line["tests"] != self._tests(mutant.module):
            return None
        return str(line["noticed"])

    def add(self, mutant: Mutant, noticed: str) -> None:
        """Appends a result to the file."""
        line = {
            "mutant": mutant.key,
            "module": self._digest(mutant.module),
            "tests": self._tests(mutant.module),
            "noticed": noticed,
        }
        self.lines[mutant.key] = line
        self._append(line)

    def limit(self, tests: str) -> float:
        """How many seconds tests may take, by how long they took without any change."""
        if tests not in self.durations:
            outcome, seconds = self.checkout.timed(tests)
            if outcome.failed:
                # They would hide what the tests after the first that fails notice.
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
    """Of a file, or of all modules in a folder."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


def measure(mutants: Sequence[Mutant], state: State, jobs: int) -> None:
    """Tries mutants in so many copies of the checkout."""
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
    """The mutants that nothing noticed, then the share of noticed ones in each package."""
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
    """Runs what is missing of the sample and prints the shares."""
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
