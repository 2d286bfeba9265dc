"""Runs tests against mutants, for ``tools/mutants.py``."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutations import Mutation

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("mobileprep", "tests", "docs", "recipes", "benchmarks", "examples", "tools", ".ci")
COPIED_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "dodo.py")
# Packages whose work shows in what stands on them: their tests come after the mirror.
SEEN_IN = {
    "api": ("tests/cli",),
    "rewriting": ("tests/transforms",),
    "chains": ("tests/building", "tests/transforms/test_optimize.py"),
    "options": ("tests/recipe",),
    # The versions of stages are held to what the stages leave.
    "plan": ("tests/building/stages/test_versions.py",),
}
# A mutant that makes tests so much slower than they are without it counts as noticed.
SLOWER, SECONDS = 3, 90
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", re.MULTILINE)
_SOME_FAILED, _COLLECTION_FAILED = 1, 2
# Of a library that is not installed, a whole file of tests is skipped.
_NONE_FAILED = (0, 5)


@dataclass(frozen=True)
class Outcome:
    """How tests ended: ``failed`` names the first test that did not pass, or is empty."""

    failed: str
    output: str


class Checkout:
    """A copy of the working tree in which tests run against changed modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_root(cls, folder: Path) -> Checkout:
        """What the tests need, without history and caches, its modules compiled."""
        skipped = shutil.ignore_patterns("__pycache__", "build")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=skipped)
        for name in COPIED_FILES:
            shutil.copy2(ROOT / name, folder / name)
        (folder / "schemas").symlink_to("mobileprep/schemas")
        compileall.compile_dir(folder / "mobileprep", quiet=2)
        return cls(folder)

    def rounds(self, module: str) -> list[str]:
        """The tests of a module, nearest first.

        Its own file, that of a package that it is part of, the nearest folder that mirrors its own,
        and what ``SEEN_IN`` names.
        """
        path = Path(module)
        own = [path.parent / f"test_{path.stem.lstrip('_')}.py"]
        own += [p.parent / f"test_{p.name}.py" for p in path.parents if p.name]
        found = [t for t in (Path("tests") / o for o in own) if (self.folder / t).is_file()]
        nearest = Path("tests") / path.parent
        while not (self.folder / nearest).is_dir():
            nearest = nearest.parent
        if nearest != Path("tests"):
            found.append(nearest)
        return [*map(str, found), *SEEN_IN.get(path.parts[0], ())]

    def verdict(self, module: str, change: Mutation, limits: dict[str, float]) -> str:
        """The test that notices the change, or an empty text.

        A test that fails must pass once the change is taken back: one that fails now and then, or
        for want of a file, is no witness.
        """
        path = self.folder / "mobileprep" / module
        source, times = path.read_text(encoding="utf-8"), path.stat()
        for tests in self.rounds(module):
            path.write_text(change.applied(source), encoding="utf-8")
            try:
                failed = self.run([tests], limits.get(tests, SECONDS)).failed
            finally:
                path.write_text(source, encoding="utf-8")
                # The compiled module that belongs to the source is valid again.
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if failed and not self.run([failed], limits.get(tests, SECONDS)).failed:
                return failed
        return ""

    def timed(self, tests: str) -> tuple[Outcome, float]:
        """The tests without any change, and the seconds they take; what they import is compiled."""
        start = time.monotonic()
        outcome = self.run([tests], 3600, compiled=True)
        return outcome, time.monotonic() - start

    def run(self, tests: Sequence[str], seconds: float, compiled: bool = False) -> Outcome:
        """Runs tests until one fails."""
        options = ("-x", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist")
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "MOBILEPREP_CACHE": str(self.folder / ".store"),
            "PYTHONDONTWRITEBYTECODE": "" if compiled else "1",
            "COLUMNS": "200",
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=self.folder,
                env=environment,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(tests[0], f"{tests[0]} took over {seconds:.0f} seconds")
        output = (done.stdout + done.stderr).decode(errors="replace")
        if done.returncode in _NONE_FAILED:
            return Outcome("", output)
        named = _FAILED.search(output)
        if done.returncode in (_SOME_FAILED, _COLLECTION_FAILED) and named:
            return Outcome(named[1], output)
        if done.returncode in (_SOME_FAILED, _COLLECTION_FAILED) or done.returncode < 0:
            return Outcome(tests[0], output)
        sys.exit(f"pytest ended with {done.returncode} for {tests[0]}:\n{output[-2000:]}")
