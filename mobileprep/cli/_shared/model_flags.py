"""The flags that say which model is run; ``api.models`` loads it, and starts slowly."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mobileprep.cli.verb import comma_list, file_name, flag

if TYPE_CHECKING:
    from mobileprep.api.models import ModelOptions


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """``--graph``, and how a model that is no frozen graph is frozen."""
    graph = "a frozen graph, the folder of a SavedModel, or a MetaGraph (.meta)"
    flag(parser, "graph", required=True, type=file_name, metavar="FILE", help=graph)
    checkpoint = "the values of the variables, where they are not beside the model"
    flag(parser, "checkpoint", default="", metavar="PREFIX", help=checkpoint)
    flag(parser, "signature", default="", metavar="NAME", help="the signature that is meant")
    flag(parser, "saved_model_tags", default="", metavar="TAGS", help="a SavedModel's tags, a,b")


def model_flags(args: argparse.Namespace, fetches: tuple[str, ...]) -> ModelOptions:
    """How to freeze a model, from a command line.

    Args:
        args: the command line.
        fetches: the tensors that are wanted; empty for those that a signature names.
    """
    from mobileprep.api.models import ModelOptions

    return ModelOptions(fetches, args.signature, comma_list(args.saved_model_tags), args.checkpoint)
