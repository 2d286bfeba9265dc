"""The verb ``migrate``: whether a graph runs on each runtime, and what to change."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli.verb import comma_list, flag, verb

if TYPE_CHECKING:
    from mobileprep.api.migrating import MigratedModel
    from mobileprep.migration.records import Lack, Route


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help="a graph as it ships, or another model")
    flag(parser, "inputs", default="", metavar="A,B", help="what is fed; the placeholders if unset")
    flag(
        parser,
        "outputs",
        default="",
        metavar="A,B",
        help="what is fetched; the signature's outputs, or the graph's ends, if unset",
    )
    flag(
        parser,
        "platform",
        default="android",
        metavar="NAME",
        help="what TensorFlow Mobile runs on: android, ios, raspberry-pi, linux or generic",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


@verb("migrate", "tell whether a graph runs on TensorFlow Mobile and on LiteRT", _arguments)
def run(args: argparse.Namespace) -> int:
    """Print each route; exit code 0 where LiteRT runs the model, 1 where it does not."""
    from mobileprep.api.migrating import migrate

    found = migrate(
        Path(args.graph),
        args.platform,
        inputs=comma_list(args.inputs),
        outputs=comma_list(args.outputs),
        tell=lambda sentence: print(f"mobileprep: warning: {sentence}", file=sys.stderr),
    )
    if args.json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        print("\n".join(_lines(found)))
    return 1 if found.routes[-1].verdict == "no" else 0


def _lines(found: MigratedModel) -> Iterator[str]:
    ends = f"{', '.join(found.inputs) or 'nothing'} to {', '.join(found.outputs)}"
    yield f"{found.graph}: {found.nodes:,} nodes, {found.bytes:,} bytes; {ends}"
    for route in found.routes:
        yield from _route(route)
    if found.advice:
        yield "Cut off, or feed instead:"
    for advice in found.advice:
        fed = f" ({', '.join(advice.inputs)})" if advice.inputs else ""
        yield f"  {_named(advice.op, advice.node, advice.count)}: {advice.text}{fed}"


def _route(route: Route) -> Iterator[str]:
    answers = {"as it is": "runs it as it is", "after changes": "runs it after changes"}
    yield f"{route.runtime}: {answers.get(route.verdict, 'does not run it')}"
    yield from _lacks("lacks", route.lacks)
    if route.verdict == "after changes":
        inputs = f"--inputs={','.join(route.inputs)}"
        yield f"  after: {', '.join((inputs, *route.transforms))}"
    if route.left != route.lacks:
        yield from _lacks("lacks after changes", route.left)
    yield from _gains(route)


def _lacks(what: str, lacks: Sequence[Lack]) -> Iterator[str]:
    for lack in lacks:
        yield f"  {what} {_named(lack.op, lack.node, lack.count)}: {lack.reason}; {lack.mend}"


def _named(op: str, node: str, count: int) -> str:
    more = f" and {count - 1} more" if count > 1 else ""
    return f"{op or 'the graph'} ({node!r}{more})" if node else op or "the graph"


def _gains(route: Route) -> Iterator[str]:
    if not route.sizes:
        return
    what = "operators" if route.runtime == "LiteRT" else "nodes"
    code = f", about {route.code_bytes:,} bytes of code" if route.code_bytes else ""
    kinds = "kinds" if route.runtime == "LiteRT" else "kernels"
    yield f"  {route.operators:,} {what} of {route.kinds} {kinds}{code}"
    sizes = (f"{s.form} {s.bytes:,} ({s.share:.0%})" for s in route.sizes)
    yield f"  bytes: {', '.join(sizes)}"
