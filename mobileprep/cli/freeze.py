"""The verb ``freeze``: a drop-in for the original ``freeze_graph``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from mobileprep.cli._shared.arguments import add_limit_flags
from mobileprep.cli._shared.telling import print_note, warn
from mobileprep.cli.verb import (
    Group,
    bool_flag,
    comma_list,
    flag,
    option_flags,
    option_values,
    verb,
)
from mobileprep.core.paths import is_stdout, output_path
from mobileprep.errors import UsageError
from mobileprep.freezing.settings import Freeze

if TYPE_CHECKING:  # imported inside functions for a fast start
    from mobileprep.freezing.model import FreezeResult

_CHECKPOINT_VERSIONS = (1, 2)


def _arguments(parser: argparse.ArgumentParser) -> None:
    _model_flags(parser)
    option_flags(parser, Freeze, {"variable_names_blacklist": "variable_names_denylist"})
    add_limit_flags(parser)
    _unused_flags(parser)


def _model_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of inputs and outputs."""
    flag(parser, "input_graph", default="", metavar="FILE", help="GraphDef, binary or text")
    flag(parser, "input_meta_graph", default="", metavar="FILE", help="MetaGraphDef (.meta)")
    flag(parser, "input_saved_model_dir", default="", metavar="DIR", help="SavedModel directory")
    flag(
        parser,
        "saved_model_tags",
        default="",
        metavar="TAGS",
        help="Tags of the SavedModel's MetaGraph, a,b",
    )
    checkpoint = "Checkpoint with the variables: prefix, one of its files, or directory"
    flag(parser, "input_checkpoint", default="", metavar="PREFIX", help=checkpoint)
    flag(parser, "input_saver", default="", metavar="FILE", help="SaverDef, binary or text")
    flag(
        parser,
        "output_graph",
        required=True,
        metavar="FILE",
        help="Graph to write, or - for standard output",
    )
    bool_flag(parser, "output_as_text", default=False, help_line="Write protobuf text")
    outputs = "Output nodes, or outputs of the signature, a,b"
    flag(parser, "output_node_names", default="", metavar="NAMES", help=outputs)
    flag(parser, "signature", default="", metavar="NAME", help="Signature that names the outputs")


def _unused_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags of the original tool that have no effect."""
    unused = "Accepted and ignored, as in the original"
    flag(parser, "filename_tensor_name", default="", metavar="NAME", help=unused)
    version = "Accepted and ignored: the version is detected"
    flag(parser, "checkpoint_version", type=int, default=2, metavar="1|2", help=version)
    inputs = "Accepted and ignored: the inputs follow from the outputs"
    flag(parser, "input_node_names", default="", metavar="NAMES", help=inputs)
    input_format = "Accepted and ignored: the format is detected"
    bool_flag(parser, "input_binary", default=False, help_line=input_format)


@verb(
    "freeze",
    Group.TENSORFLOW,
    "Replace the variables of a model with constants (freeze_graph)",
    _arguments,
    "mobileprep freeze --input_graph=graph.pb --input_checkpoint=model.ckpt-1000 "
    "--output_node_names=probabilities --output_graph=frozen.pb",
)
def run(args: argparse.Namespace) -> int:
    """Freeze the model and print the number of ops, on stderr if the graph goes to stdout."""
    from mobileprep.freezing.freeze import freeze
    from mobileprep.freezing.model import FreezeOptions
    from mobileprep.freezing.source import load_source
    from mobileprep.graph.files import write_graph

    if args.checkpoint_version not in _CHECKPOINT_VERSIONS:
        message = f"checkpoint version {args.checkpoint_version} is neither 1 nor 2"
        raise UsageError(message, "leave --checkpoint_version out")
    target = output_path(args.output_graph)
    if args.input_node_names:
        print_note("--input_node_names has no effect: the inputs follow from the outputs")
    source = load_source(
        graph=_path(args.input_graph),
        meta_graph=_path(args.input_meta_graph),
        saved_model=_path(args.input_saved_model_dir),
        checkpoint=_path(args.input_checkpoint),
        saver=_path(args.input_saver),
        tags=comma_list(args.saved_model_tags),
    )
    result = freeze(
        source,
        FreezeOptions(
            outputs=comma_list(args.output_node_names),
            signature=args.signature,
            **option_values(args, Freeze),
        ),
    )
    write_graph(target, result.graph, as_text=args.output_as_text)
    _print_result(result, sys.stderr if is_stdout(target) else sys.stdout)
    return 0


def _print_result(result: FreezeResult, results: TextIO) -> None:
    for warning in result.warnings:
        warn(warning)
    for name in result.init_ops:
        print_note(f"run {name!r} once after loading to initialize a table")
    for asset in result.assets:
        print_note(f"{asset.tensor!r} names the file {asset.name!r}, found at {asset.path}")
    print(f"Converted {len(result.variables)} variables to const ops.", file=results)
    print(f"{len(result.graph)} ops in the final graph.", file=results)


def _path(text: str) -> Path | None:
    return Path(text) if text else None
