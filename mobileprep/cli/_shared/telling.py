"""The verbosity and log flags that all verbs share."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO, cast

from mobileprep import __version__
from mobileprep.cli._shared.diagnostics import located, report
from mobileprep.cli._shared.terminal import StreamWrapper
from mobileprep.core.paths import is_stdout, output_path
from mobileprep.errors import ArtifactError, UsageError

# Number of slow stages to print, and the smallest share of the time.
_NAMED: Final = 5
_LEAST: Final = 0.01
# Number of bytes at the start and end that identify a log.
_ENDS: Final = 64
# Appends correctly even if another program truncates the log.
_WRITING: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def telling_arguments(parser: argparse.ArgumentParser, *, letters: bool) -> None:
    """Add the verbosity flags.

    Args:
        letters: also add ``-q`` and ``-v``. Verbs that replace an original tool do not, because
            scripts for these tools write other flags with a single dash.
    """
    group = parser.add_argument_group("verbosity")
    quiet, verbose = (["-q"], ["-v"]) if letters else ([], [])
    group.add_argument(*quiet, "--quiet", action="store_true", help="Show only warnings and errors")
    group.add_argument(
        *verbose,
        "--verbose",
        action="store_true",
        help="List all findings, every trial, and the slowest stages",
    )
    group.add_argument(
        "--log-file", metavar="FILE", help="Write all messages to a file, too, with timestamps"
    )


@contextlib.contextmanager
def telling(args: argparse.Namespace, command: Sequence[str]) -> Iterator[None]:
    """Apply the verbosity flags while a verb runs, and write the outcome to the log."""
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
    """Format the slowest stages: ``digits/freeze 0.33 s (25 %), ...``."""
    whole = sum(seconds.values())
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    stages = [(name, took) for name, took in ranked[:_NAMED] if whole and took >= _LEAST * whole]
    return ", ".join(f"{name} {took:.2f} s ({100 * took / whole:.0f} %)" for name, took in stages)


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
        raise ArtifactError(message, "name a file in an existing directory", str(path)) from error
    with stream:

        def write(line: str) -> None:
            stream.write(dated(line))
            stream.flush()

        yield write


def _check_log(path: Path) -> None:
    """Refuse to overwrite a file that is not a log, such as a recipe or a model."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        begin = stream.read(_ENDS)
        stream.seek(max(0, path.stat().st_size - _ENDS))
        if is_log(begin, stream.read()):
            return
    message = "exists and is not a log of mobileprep"
    raise ArtifactError(message, "name another file, or remove this one", str(path))


# Lines that a quiet command prints; continuation lines are indented.
_SAID: Final = re.compile(r"(error|warning|help): ")
_MORE: Final = re.compile(r"\s+\S")
# The first line of a log, with date and version, and its last line.
_TIME: Final = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  "
_HEAD: Final = re.compile(_TIME + rb"mobileprep ")
_END: Final = re.compile(rb"(?:\A|\n)" + _TIME + rb"\d+\.\d\d s\n\Z")


class KeptStream(StreamWrapper):
    """A stream that copies lines to a log, and filters them if quiet.

    Text that a carriage return overwrites is not logged.

    Args:
        stream: the underlying stream.
        log: called with each complete line, without the line break; None for no log.
        is_quiet: print only warnings and errors.
    """

    def __init__(
        self, stream: TextIO, log: Callable[[str], None] | None, *, is_quiet: bool
    ) -> None:
        super().__init__(stream)
        self._log = log
        self._is_quiet = is_quiet
        self._line = ""
        self._is_said = False

    def isatty(self) -> bool:
        """Return whether the stream is a terminal that can overwrite a line."""
        return not self._is_quiet and self._stream.isatty()

    def write(self, text: str) -> int:
        """Write text, log complete lines, and filter them if quiet."""
        for line in self._whole(text):
            if self._log is not None:
                self._log(line)
            if self._is_quiet and self._passes(line):
                self._stream.write(f"{line}\n")
        if not self._is_quiet:
            self._stream.write(text)
        return len(text)

    def note(self, lines: str) -> None:
        """Write lines to the log only, because a terminal shows them in another way."""
        if self._log is not None:
            for line in lines.splitlines():
                self._log(line)

    def _whole(self, text: str) -> Iterable[str]:
        *whole, self._line = f"{self._line}{text}".split("\n")
        self._line = self._line.rpartition("\r")[2]
        return [line.rpartition("\r")[2] for line in whole]

    def _passes(self, line: str) -> bool:
        self._is_said = bool(_SAID.match(line)) or (self._is_said and bool(_MORE.match(line)))
        return self._is_said


def dated(line: str) -> str:
    """Return a line that starts with the local time."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n"


def is_log(begin: bytes, end: bytes) -> bool:
    """Return whether a file with this start and end is a log, possibly truncated or empty."""
    return not begin or bool(_HEAD.match(begin) or _END.search(end))


def print_note(sentence: str) -> None:
    """Print a note, such as one about a wait or a skipped file."""
    # Flush at once: a file would otherwise get the note after the wait.
    print(f"note: {sentence}", file=sys.stderr, flush=True)


def warn(sentence: str) -> None:
    """Print a warning with its code, and with control characters escaped."""
    from mobileprep.core.printable import plain  # few commands warn
    from mobileprep.error_codes import code_of, with_code

    text = plain(sentence, keep="\n")
    report([located("warning", text, code_of(text, 0))])
    print("warning:", with_code(text, 0), file=sys.stderr)


def warn_all(sentences: Iterable[str]) -> None:
    """Print several warnings."""
    for sentence in sentences:
        warn(sentence)
