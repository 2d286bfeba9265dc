"""Which files a command is about, for messages that name none."""

from __future__ import annotations

import argparse
from typing import Any, Final

# Flags and arguments that name what is read, those first that the others only belong to.
_SUBJECTS: Final = (
    *("in_graph", "graph", "graphs", "input_saved_model_dir", "input_meta_graph", "input_graph"),
    *("model", "a", "b", "recipes", "recipe", "outs"),
)
_MOST: Final = 3


def subject_of(args: argparse.Namespace) -> str:
    """The files that a command line names as what it is about; empty where it names none."""
    named: list[Any] = []
    for name in _SUBJECTS:
        given = getattr(args, name, None)
        named += given if isinstance(given, list | tuple) else [given]
    files = [str(x) for x in named if x]
    return ", ".join(files[:_MOST]) + (", ..." if len(files) > _MOST else "")
