"""Output folders held by one command at a time: the flag, and the words while it waits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path


def no_wait_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that makes a folder that another build works on an error."""
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="fail where another build works on an output folder, instead of waiting for it",
    )


def holding(args: argparse.Namespace, folders: Iterable[Path]) -> AbstractContextManager[bool]:
    """A context in which no other build works on some output folders; whether one just ended."""
    from mobileprep.pipeline.folder_lock import folder_locks

    return folder_locks(folders, wait=not args.no_wait, tell=tell)


def tell(sentence: str) -> None:
    """Tell of a wait, or of what was left alone."""
    # At once: what is written to a file would else come when the wait is over.
    print(f"mobileprep: {sentence}", file=sys.stderr, flush=True)
