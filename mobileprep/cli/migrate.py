"""The verb ``migrate``: reports whether a graph runs on each runtime, and required changes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from msgspec import to_builtins

from mobileprep.cli._shared.arguments import add_ends, tensorflow_argument
from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, comma_list, file_name, flag, verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "graph", type=file_name, metavar="GRAPH", help="Frozen graph or other model"
    )
    add_ends(parser)
    flag(
        parser,
        "platform",
        default="android",
        metavar="NAME",
        help="Platform of TensorFlow Mobile: android, ios, raspberry-pi, linux, or generic",
    )
    tensorflow_argument(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")


@verb(
    "migrate",
    Group.LITERT,
    "Report whether a graph runs on TensorFlow Mobile and on LiteRT",
    _arguments,
    "mobileprep migrate frozen.pb",
)
def run(args: argparse.Namespace) -> int:
    """Print each route; return 0 if LiteRT can run the model, else 1."""
    from mobileprep.building.stages.migration.report import ends_text, way_lines
    from mobileprep.targets.headers import release_of
    from mobileprep.targets.migration.survey import migrate

    result = migrate(
        Path(args.graph),
        args.platform,
        inputs=comma_list(args.inputs),
        outputs=comma_list(args.outputs),
        tensorflow=release_of(args.tensorflow),
        warn=warn,
    )
    if args.json:
        print(json.dumps(to_builtins(result), indent=1))
    else:
        show([f"{result.graph}: {ends_text(result)}", *way_lines(result, verbose=args.verbose)])
    return 1 if result.routes[-1].verdict == "no" else 0
