"""The verb ``doctor``: tells what this machine has for builds, and what is missing."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from mobileprep import __version__
from mobileprep.cli.verb import verb

_REQUIRED = ("numpy", "protobuf", "pyyaml", "jsonschema", "doit", "google-crc32c", "ml_dtypes")
_LOW_SPACE = 1 << 30


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


@verb("doctor", "tell what this installation has and what it lacks", _arguments)
def run(args: argparse.Namespace) -> int:
    """Print one line a fact; exit code 0 when builds can run, else 9."""
    import platform
    import shutil

    from mobileprep.pipeline.store import default_folder

    store = default_folder()
    writable = _can_write(store)
    free = shutil.disk_usage(_existing(store)).free
    facts = {
        "mobileprep": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in _REQUIRED},
        "store": str(store),
        "store_writable": writable,
        "store_free_bytes": free,
    }
    if args.json:
        print(json.dumps(facts, indent=1))
    else:
        for name, value in facts.items():
            print(f"{name:<18} {value}")
        if not writable:
            print("the store cannot be written: set MOBILEPREP_CACHE to another folder")
        if free < _LOW_SPACE:
            print("less than 1 GiB is free for the store")
    return 0 if writable else 9


def _version(name: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if p.exists())


def _can_write(path: Path) -> bool:
    return os.access(_existing(path), os.W_OK)
