"""Measures the tests: changes one expression at a time and counts the changes that a test notices.

python tools/mutants.py [--package formats] [--count 300] [--seed 9] [--state mutants.jsonl]

The sample is fixed by its seed. Each mutant runs in a copy of the checkout, against the tests that
mirror its module. Results are appended to the state file, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from mutations import Mutation, mutations  # noqa: E402 - beside this script

COPIED = ("mobileprep", "tests", "docs", "recipes", "benchmarks", "examples", "tools")
COPIED_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "dodo.py")
# So that small packages have enough mutants for a share to mean something.
FEWEST = 10
SECONDS = 300


@dataclass(frozen=True)
class Mutant:
    """One change to one module.

    Args:
        module: the module's path below ``mobileprep``.
        place: line and column where the changed expression begins.
        before: the expression.
        after: what takes its place.
    """

    module: str
    place: str
    before: str
    after: str

    @property
    def package(self) -> str:
        return self.module.split("/", 1)[0]

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def candidates() -> Iterator[tuple[Mutant, Mutation]]:
    """Every change that can be made, in a fixed order."""
    for path in sorted((ROOT / "mobileprep").rglob("*.py")):
        module = path.relative_to(ROOT / "mobileprep").as_posix()
        if path.name == "__init__.py" or module.startswith("formats/protos/"):
            continue
        for change in mutations(path.read_text(encoding="utf-8")):
            place = f"{change.line}:{change.column}"
            yield Mutant(module, place, change.before, change.after), change


def sample(count: int, seed: int) -> list[tuple[Mutant, Mutation]]:
    """So many mutants, spread over packages by their size, but some of every package."""
    packages: dict[str, list[tuple[Mutant, Mutation]]] = defaultdict(list)
    for found in candidates():
        if "/" in found[0].module:
            packages[found[0].package].append(found)
    every = sum(map(len, packages.values()))
    spread = max(0, count - FEWEST * len(packages))
    chosen: list[tuple[Mutant, Mutation]] = []
    for package in sorted(packages):
        here = packages[package]
        share = FEWEST + round(spread * len(here) / every)
        chosen += random.Random(f"{seed} {package}").sample(here, min(share, len(here)))
    random.Random(seed).shuffle(chosen)
    return chosen


def mirrors(module: str, root: Path) -> list[str]:
    """The tests of a module: first its own file, then the nearest folder that mirrors its own."""
    path = Path(module)
    own = root / "tests" / path.parent / f"test_{path.stem.lstrip('_')}.py"
    folder = own.parent
    while not folder.is_dir():
        folder = folder.parent
    found = [own, folder] if own.is_file() else [folder]
    return [str(tests.relative_to(root)) for tests in found]


def copy_checkout(target: Path) -> None:
    """What the tests need, without history and caches."""
    skipped = shutil.ignore_patterns("__pycache__", "build", "reference")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=skipped)
    for name in COPIED_FILES:
        shutil.copy2(ROOT / name, target / name)
    (target / "schemas").symlink_to("mobileprep/schemas")


def is_killed(mutant: Mutant, change: Mutation, checkout: Path) -> bool:
    """Whether a test of the module fails once the change is made."""
    path = checkout / "mobileprep" / mutant.module
    source = path.read_text(encoding="utf-8")
    rounds = mirrors(mutant.module, checkout)
    for tests in rounds:
        _check_unchanged(tests, checkout)
    path.write_text(change.applied(source), encoding="utf-8")
    try:
        return any(not _passes(tests, checkout) for tests in rounds)
    finally:
        path.write_text(source, encoding="utf-8")


@cache
def _check_unchanged(tests: str, checkout: Path) -> None:
    """Tests that fail anyway would kill every mutant."""
    if not _passes(tests, checkout):
        sys.exit(f"{tests} fails without any change")


def _passes(tests: str, checkout: Path) -> bool:
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout),
        "MOBILEPREP_CACHE": str(checkout / ".store"),
    }
    try:
        done = subprocess.run(
            command,
            cwd=checkout,
            env=environment,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def known_results(state: Path) -> dict[str, bool]:
    """What earlier runs found, by mutant."""
    if not state.is_file():
        return {}
    lines = [json.loads(line) for line in state.read_text(encoding="utf-8").splitlines()]
    return {line["mutant"]: line["killed"] for line in lines}


def print_shares(results: Mapping[Mutant, bool]) -> None:
    """The share of killed mutants of each package, and those that survived."""
    packages: dict[str, list[bool]] = defaultdict(list)
    for mutant, killed in results.items():
        packages[mutant.package].append(killed)
    for mutant in sorted((m for m, killed in results.items() if not killed), key=str):
        print(f"survived  {mutant.module}:{mutant.place}  {mutant.before}  ->  {mutant.after}")
    for package, outcomes in [*sorted(packages.items()), ("all", list(results.values()))]:
        killed = sum(outcomes)
        print(f"{package:12} {killed:4} of {len(outcomes):4}  {killed / len(outcomes):7.1%}")


def main() -> int:
    """Runs what is missing of the sample and prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--package", action="append", help="only these packages of the sample")
    parser.add_argument("--state", type=Path, default=ROOT / ".mutants.jsonl")
    flags = parser.parse_args()
    chosen = sample(flags.count, flags.seed)
    if flags.package:
        chosen = [c for c in chosen if c[0].package in flags.package]
    results: dict[Mutant, bool] = {}
    known = known_results(flags.state)
    with tempfile.TemporaryDirectory() as folder, flags.state.open("a", encoding="utf-8") as state:
        copy_checkout(Path(folder))
        for number, (mutant, change) in enumerate(chosen, start=1):
            if mutant.key not in known:
                known[mutant.key] = is_killed(mutant, change, Path(folder))
                line = {"mutant": mutant.key, "killed": known[mutant.key]}
                state.write(json.dumps(line) + "\n")
                state.flush()
            results[mutant] = known[mutant.key]
            print(f"\r{number} of {len(chosen)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print_shares(results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
