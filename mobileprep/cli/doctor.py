"""The verb ``doctor``: reports installed packages, cache settings, and problems."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import to_builtins

from mobileprep.cli.verb import Group, verb
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.building.doctor import Doctor

_LOW_SPACE = 1 << 30
_PROBLEMS = 9


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.add_argument("--library", metavar="FILE", help="Check the .so file of an app instead")
    parser.add_argument(
        "--graph", metavar="FILE", help="With --library: model whose ops the library must contain"
    )


@verb(
    "doctor",
    Group.MAINTENANCE,
    "Report installed packages, cache settings, and problems",
    _arguments,
    "mobileprep doctor",
    "mobileprep doctor --library libtensorflow_inference.so --graph model.pb",
)
def run(args: argparse.Namespace) -> int:
    """Print one fact per line, then the problems; return 9 if there are problems, else 0."""
    if args.library is not None:
        return _library(args)
    if args.graph is not None:
        message = "--graph needs --library"
        raise UsageError(message, "name the library of the app that runs the model")
    from mobileprep.building.doctor import doctor

    result = doctor()
    if args.json:
        print(json.dumps(to_builtins(result), indent=1))
    else:
        print("\n".join(_lines(result)))
    return _PROBLEMS if result.problems else 0


def _library(args: argparse.Namespace) -> int:
    from mobileprep.building.doctor import library_facts

    facts = library_facts(args.library, args.graph)
    if args.json:
        print(json.dumps(to_builtins(facts), indent=1))
    else:
        abi = f" ({facts.abi})" if facts.abi else ""
        print(f"{'library':<18} {facts.file}")
        print(f"{'machine':<18} {facts.machine}{abi}")
        print(f"{'alignment':<18} {facts.alignment:,} bytes")
        print("\n".join(f"problem: {problem}" for problem in facts.problems) or "no problems")
    return _PROBLEMS if facts.problems else 0


def _lines(result: Doctor) -> Iterator[str]:
    store = result.store
    facts = [("mobileprep", result.mobileprep), ("python", result.python)]
    facts += [(p.name, p.version or "missing") for p in result.required]
    for feature in result.features:
        version = feature.version or "not installed"
        more = "" if feature.version else f"; {feature.install}"
        facts.append((feature.package, f"{version}  (for {feature.use}{more})"))
    facts += [
        ("store", store.folder),
        ("store size", f"{store.bytes:,} bytes, {store.free_bytes:,} free"),
        ("remote store", store.remote or "none"),
    ]
    yield from (f"{name:<18} {value}" for name, value in facts)
    yield from (f"problem: {problem}" for problem in result.problems)
    if store.free_bytes < _LOW_SPACE:
        yield "note: less than 1 GiB is free for the store"
