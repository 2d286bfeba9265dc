"""The verb ``doctor``: tells what this machine has for builds, and what is missing."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from mobileprep import __version__
from mobileprep.cli.verb import verb

_LOW_SPACE = 1 << 30
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:>=\s*([\w.]+))?")
_MISSING = "missing"
_ABSENT = "not installed"
# What each package that may be added is for, and how to add it; engines say the latter themselves.
_PILLOW = ("pictures as inputs, and the ops that decode them", "pip install 'mobileprep[image]'")
_RE2 = ("graphs with regular expressions", "pip install 'mobileprep[regex]'")
_REMOTE = {
    "urllib3": ("a remote store over HTTP", "pip install 'mobileprep[remote]'"),
    "fsspec": ("remote stores in buckets", "pip install 'mobileprep[s3]'"),
    "s3fs": ("a remote store at s3://", "pip install 'mobileprep[s3]'"),
    "gcsfs": ("a remote store at gs://", "pip install 'mobileprep[gcs]'"),
    "adlfs": ("a remote store at az://", "pip install 'mobileprep[azure]'"),
}
_ENGINE = "running models in check, validation, run and benchmark"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


@verb("doctor", "tell what this installation has and what it lacks", _arguments)
def run(args: argparse.Namespace) -> int:
    """Print one line a fact, then the problems; exit code 0 when builds can run, else 9."""
    import platform
    import shutil

    from mobileprep.pipeline.store import default_folder
    from mobileprep.plan.engines import OPTIONAL_ENGINES, engine_version

    store = default_folder()
    free = shutil.disk_usage(_existing(store)).free
    required = dict(_required())
    found = {name: _version(name) for name in required}
    problems = [*_lacking(required, found), *_store_problems(store)]
    extras = {"pillow": _PILLOW, "google-re2": _RE2, **_REMOTE}
    optional = dict(extras)
    optional |= {f"engine {name}": (_ENGINE, how) for name, how in OPTIONAL_ENGINES.items()}
    versions = {name: _version(name) for name in extras}
    facts = {
        "mobileprep": __version__,
        "python": platform.python_version(),
        **found,
        **{name: _ABSENT if v == _MISSING else v for name, v in versions.items()},
        **{f"engine {name}": engine_version(name) or _ABSENT for name in OPTIONAL_ENGINES},
        "store": str(store),
        "store_free_bytes": free,
    }
    if args.json:
        told = {name: {"for": use, "install": how} for name, (use, how) in optional.items()}
        print(json.dumps({**facts, "optional": told, "problems": problems}, indent=1))
    else:
        for name, value in facts.items():
            use, how = optional.get(name, ("", ""))
            more = f"; {how}" if value == _ABSENT else ""
            print(f"{name:<18} {value}" + (f"  (for {use}{more})" if use else ""))
        for problem in problems:
            print(f"problem: {problem}")
        if free < _LOW_SPACE:
            print("note: less than 1 GiB is free for the store")
    return 9 if problems else 0


def _required() -> Iterator[tuple[str, str]]:
    """The packages that this one needs, and the oldest version of each; none in a bare checkout."""
    import importlib.metadata

    try:
        listed = importlib.metadata.requires("mobileprep") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for text in sorted(listed):
        found = _REQUIREMENT.match(text)
        if found and "extra ==" not in text:
            yield found[1], found[2] or ""


def _version(name: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return _MISSING


def _lacking(required: dict[str, str], found: dict[str, str]) -> Iterator[str]:
    for name, oldest in required.items():
        if found[name] == _MISSING:
            yield f"{name} is missing: pip install '{name}>={oldest}'"
        elif _numbers(found[name]) < _numbers(oldest):
            yield f"{name} {found[name]} is too old: pip install '{name}>={oldest}'"


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version, for comparison."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def _store_problems(store: Path) -> Iterator[str]:
    existing = _existing(store)
    if not existing.is_dir():
        yield f"{existing} is no folder: set MOBILEPREP_CACHE to another"
    elif not os.access(existing, os.W_OK):
        yield f"{existing} cannot be written: set MOBILEPREP_CACHE to another folder"


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.absolute().parents) if p.exists())
