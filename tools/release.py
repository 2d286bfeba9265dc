"""Check and build a release: version, changelog, wheel, sdist, and the README's example.

    python tools/release.py            # build into dist/ and check
    python tools/release.py --tag      # also create the tag

Requires only Python with pip. Installs the wheel in an empty environment and runs the commands of
the README's first example there.
"""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parents[1]
MAX_WHEEL_BYTES: Final = 4_000_000
MAX_SECONDS: Final = 15.0
"""Time from an empty environment to the first result, on a fast network."""
_SECTION: Final = re.compile(r"^## (?P<version>\S+) \((?P<date>[^)]+)\)$", re.MULTILINE)


def project() -> dict[str, Any]:
    """Return the table ``[project]`` of pyproject.toml."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    table: dict[str, Any] = data["project"]
    return table


def problems() -> Iterator[str]:
    """Yield problems that prevent a release, before building it."""
    version = project()["version"]
    tree = ast.parse((ROOT / "mobileprep" / "__init__.py").read_text("utf-8"))
    named = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    if named != [version]:
        yield f"pyproject.toml has version {version}, mobileprep/__init__.py has {named}"
    section = _SECTION.search((ROOT / "CHANGELOG.md").read_text("utf-8"))
    if section is None or section["version"] != version:
        yield f"the first section of CHANGELOG.md is not that of {version}"
    elif not _is_date(section["date"]):
        yield f"CHANGELOG.md: set the date of {version}: {section['date']!r} is not YYYY-MM-DD"
    if _git("status", "--porcelain"):
        yield "the checkout has changes that are not committed"
    if _git("tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists already"


def _is_date(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def build(work: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, into ``dist/``; return their paths."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    python = environment(work / "builder")
    _run([python, "-m", "pip", "install", "-q", *requirements_to_build()])
    _run([python, "-m", "hatchling", "build", "-t", "sdist", "-d", dist], cwd=ROOT)
    (sdist,) = dist.glob("*.tar.gz")
    _run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", dist, sdist])
    (wheel,) = dist.glob("*.whl")
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        fail(f"{wheel.name} has {wheel.stat().st_size:,} bytes; the limit is {MAX_WHEEL_BYTES:,}")
    return sdist, wheel


def requirements_to_build() -> list[str]:
    """Return the requirements of the build system."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    requires: list[str] = data["build-system"]["requires"]
    return requires


def environment(folder: Path) -> Path:
    """Create an empty virtual environment and return its Python."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def example_commands() -> list[str]:
    """Return the commands of the README's first example."""
    text = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if block is None:
        fail("README.md has no example")
    return re.findall(r"^\$ (.*)$", block[1], re.MULTILINE)


def try_wheel(wheel: Path, work: Path) -> float:
    """Install the wheel in an empty environment, run the example, and return the seconds."""
    shutil.copytree(ROOT / "recipes" / "digits", work / "app" / "digits")
    python = environment(work / "user")
    started = time.perf_counter()
    _run([python, "-m", "pip", "install", "-q", "--no-cache-dir", wheel])
    variables = {**os.environ, "MOBILEPREP_CACHE": str(work / "cache")}
    variables.pop("PYTHONPATH", None)
    for command in example_commands():
        _run([python, "-m", *shlex.split(command)], cwd=work / "app", env=variables)
    return time.perf_counter() - started


def _run(command: Sequence[str | Path], **options: Any) -> None:  # noqa: ANN401 - options of subprocess
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        fail(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def fail(message: str) -> NoReturn:
    sys.exit(f"error: {message}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Check and build a release.")
    parser.add_argument("--tag", action="store_true", help="Create the tag, too")
    parser.add_argument(
        "--dry-run", action="store_true", help="Build and check even if the checks of git fail"
    )
    options = parser.parse_args(arguments)
    found = list(problems())
    for problem in found:
        print(f"{'warning' if options.dry_run else 'error'}: {problem}", file=sys.stderr)
    if found and not options.dry_run:
        sys.exit(1)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        sdist, wheel = build(work)
        seconds = try_wheel(wheel, work)
    for path in (sdist, wheel):
        print(f"dist/{path.name}: {path.stat().st_size:,} bytes")
    print(f"from an empty environment to the README's result: {seconds:.1f} s")
    if seconds > MAX_SECONDS:
        print(f"warning: the goal is {MAX_SECONDS:.0f} s on a fast network", file=sys.stderr)
    if options.tag and not found:
        _git("tag", "--annotate", f"v{project()['version']}", "--message", wheel.name)
        print(f"tagged v{project()['version']}")


if __name__ == "__main__":
    main(sys.argv[1:])
