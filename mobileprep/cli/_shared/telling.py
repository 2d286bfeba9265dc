"""How much a command tells: the flags that all verbs share, and what they do."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO, cast

from mobileprep import __version__
from mobileprep.cli._shared.terminal.log_file import KeptStream, dated, is_log
from mobileprep.core.paths import is_stdout, output_path
from mobileprep.errors import ArtifactError, UsageError

# How many of the slowest are named, and what share of all is too little to be.
_NAMED: Final = 5
_LEAST: Final = 0.01
# So much of what a log begins and ends with tells that it is one.
_ENDS: Final = 64
# Where something else cuts a log meanwhile, what follows stands at its end all the same.
_WRITING: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def telling_arguments(parser: argparse.ArgumentParser, *, letters: bool) -> None:
    """The flags that say how much is told.

    Args:
        parser: where to.
        letters: whether ``-q`` and ``-v`` mean them; flags of one dash are other ones to scripts
            that were written for an original tool.
    """
    group = parser.add_argument_group("what is told")
    quiet, verbose = (["-q"], ["-v"]) if letters else ([], [])
    group.add_argument(
        *quiet, "--quiet", action="store_true", help="tell of warnings and errors alone"
    )
    group.add_argument(
        *verbose,
        "--verbose",
        action="store_true",
        help="list all findings, every trial, and the slowest stages",
    )
    group.add_argument(
        "--log-file", metavar="FILE", help="write all that is told to a file too, with the time"
    )


@contextlib.contextmanager
def telling(args: argparse.Namespace, command: Sequence[str]) -> Iterator[None]:
    """Tell as much as the flags say while a verb runs, and how it ended to the log.

    Args:
        args: the command line.
        command: the same as it was written.

    Raises:
        UsageError: --quiet with --verbose.
        ArtifactError: the log cannot be written.
    """
    if args.quiet and args.verbose:
        message = "--quiet and --verbose do not go together"
        raise UsageError(message, "leave one of them out")
    if not args.quiet and args.log_file is None:
        yield
        return
    started = time.perf_counter()
    with _log(args.log_file) as log:
        if log is not None:
            log(f"mobileprep {__version__}: {shlex.join(command)}")
        stream = KeptStream(sys.stderr, log, is_quiet=args.quiet)
        try:
            with contextlib.redirect_stderr(cast(TextIO, stream)):
                yield
        except BaseException as error:
            if log is not None:
                log(f"{type(error).__name__}: {error}".rstrip(": "))
            raise
        finally:
            if log is not None:
                log(f"{time.perf_counter() - started:.2f} s")


def slowest(seconds: Mapping[str, float]) -> str:
    """``digits/freeze 0.33 s (25 %), ...``: what has taken longest, the slowest first."""
    whole = sum(seconds.values())
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    told = [(name, took) for name, took in ranked[:_NAMED] if whole and took >= _LEAST * whole]
    return ", ".join(f"{name} {took:.2f} s ({100 * took / whole:.0f} %)" for name, took in told)


@contextlib.contextmanager
def _log(name: str | None) -> Iterator[Callable[[str], None] | None]:
    if name is None:
        yield None
        return
    path = output_path(name)
    if is_stdout(path):
        message = "the log cannot go where results go"
        raise UsageError(message, "name a file", "--log-file")
    try:
        _check_log(path)
        descriptor = os.open(path, _WRITING, 0o666)
        stream = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise ArtifactError(message, "name a file in a folder that is there", str(path)) from error
    with stream:

        def write(line: str) -> None:
            stream.write(dated(line))
            stream.flush()

        yield write


def _check_log(path: Path) -> None:
    """Refuse a file that is no log: a recipe or a model would be lost, whatever the verb does."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        begin = stream.read(_ENDS)
        stream.seek(max(0, path.stat().st_size - _ENDS))
        if is_log(begin, stream.read()):
            return
    message = "is there and no log of mobileprep"
    raise ArtifactError(message, "name another file, or remove this one", str(path))
