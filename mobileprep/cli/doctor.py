"""The verb ``doctor``: tells what this machine has for builds, and what is missing."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mobileprep.cli.verb import verb

if TYPE_CHECKING:
    from mobileprep.api.doctor import Doctor

_LOW_SPACE = 1 << 30
_PROBLEMS = 9


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


@verb("doctor", "tell what this installation has and what it lacks", _arguments)
def run(args: argparse.Namespace) -> int:
    """Print one line a fact, then the problems; exit code 0 when builds can run, else 9."""
    from mobileprep.api.doctor import doctor

    found = doctor()
    if args.json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        print("\n".join(_lines(found)))
    return _PROBLEMS if found.problems else 0


def _lines(found: Doctor) -> Iterator[str]:
    store = found.store
    facts = [("mobileprep", found.mobileprep), ("python", found.python)]
    facts += [(p.name, p.version or "missing") for p in found.required]
    for feature in found.features:
        told = feature.version or "not installed"
        more = "" if feature.version else f"; {feature.install}"
        facts.append((feature.package, f"{told}  (for {feature.use}{more})"))
    facts += [
        ("store", store.folder),
        ("store size", f"{store.bytes:,} bytes, {store.free_bytes:,} free"),
        ("remote store", store.remote or "none"),
    ]
    yield from (f"{name:<18} {value}" for name, value in facts)
    yield from (f"problem: {problem}" for problem in found.problems)
    if store.free_bytes < _LOW_SPACE:
        yield "note: less than 1 GiB is free for the store"
