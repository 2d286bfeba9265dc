"""Run tests against mutants, for ``tools/mutants.py``."""

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
# Packages that are also covered by tests of their callers, which run after their own tests.
SEEN_IN = {
    "api": ("tests/cli",),
    "rewriting": ("tests/transforms",),
    "chains": ("tests/building", "tests/transforms/test_optimize.py"),
    "options": ("tests/recipe",),
    # These tests check the versions of stages against their outputs.
    "plan": ("tests/building/stages/test_versions.py",),
}
# A mutant counts as noticed if tests exceed SLOWER times their usual duration plus SECONDS.
SLOWER, SECONDS = 3, 90
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", re.MULTILINE)
_SOME_FAILED, _COLLECTION_FAILED = 1, 2
# 5: no tests were collected, for example because a library is not installed.
_NONE_FAILED = (0, 5)


@dataclass(frozen=True)
class Outcome:
    """Outcome of tests: ``failed`` is the first test that did not pass, or empty."""

    failed: str
    output: str


class Checkout:
    """A copy of the working tree in which tests run against changed modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_root(cls, folder: Path) -> Checkout:
        """Copy the files that the tests need, and compile the modules."""
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
        """Return the tests of a module, most specific first.

        These are the test file of the module, test files of its packages, the closest test
        directory that mirrors its package, and the tests of ``SEEN_IN``.
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
        """Return the test that notices the change; empty if there is none.

        The test must pass again after the change is reverted, so that flaky tests do not count.
        """
        path = self.folder / "mobileprep" / module
        source, times = path.read_text(encoding="utf-8"), path.stat()
        for tests in self.rounds(module):
            path.write_text(change.applied(source), encoding="utf-8")
            try:
                failed = self.run([tests], limits.get(tests, SECONDS)).failed
            finally:
                path.write_text(source, encoding="utf-8")
                # Make the compiled module of the original source valid again.
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if failed and not self.run([failed], limits.get(tests, SECONDS)).failed:
                return failed
        return ""

    def timed(self, tests: str) -> tuple[Outcome, float]:
        """Run tests without changes, with compiled modules; return the outcome and the seconds."""
        start = time.monotonic()
        outcome = self.run([tests], 3600, compiled=True)
        return outcome, time.monotonic() - start

    def run(self, tests: Sequence[str], seconds: float, compiled: bool = False) -> Outcome:
        """Run tests until one fails."""
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
