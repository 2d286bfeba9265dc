"""Print errors as messages, and with ``--json`` also as a JSON object."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mobileprep.cli._shared.diagnostics import diagnostics_of, report, split_problems
from mobileprep.core.printable import shortened
from mobileprep.errors import (
    AccuracyError,
    ArtifactError,
    CorruptFileError,
    InvalidGraphError,
    MobileprepError,
    TransformError,
    UnsupportedError,
    UsageError,
)

# Errors of writes to a standard output whose device is full or disconnected.
NO_OUTPUT: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG})

# System errors for a path that a bug in mobileprep cannot cause.
_OF_PATHS: Final = frozenset(
    {
        *(errno.EACCES, errno.EIO, errno.ELOOP, errno.ENAMETOOLONG),
        *(errno.ENODEV, errno.ENOMEM, errno.ENOTDIR, errno.ENXIO, errno.EPERM),
    }
)
_OPEN_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
# Message of the dynamic loader.
_NO_ROOM: Final = "failed to map segment"
# Message of Python.
_NO_THREAD: Final = "can't start new thread"
_OF_WRITING: Final = frozenset({errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EROFS})

_MENDS: Final[dict[type[MobileprepError], str]] = {
    UsageError: "see 'mobileprep help VERB'",
    CorruptFileError: "check that this is the right file, or get it again",
    InvalidGraphError: "export the model again; 'mobileprep summarize' shows its contents",
    UnsupportedError: "see 'mobileprep check-target', and the ops reference for supported ops",
    TransformError: "leave the step out, or look at its options in docs/reference/transforms.md",
    AccuracyError: "look at the data and at the limits that the recipe sets",
    ArtifactError: "check the disk's space and rights, or name another place",
}
# Exit codes of errors that contain their location: usage, recipes, and outputs.
_PLACED: Final = frozenset({2, 3, 9})
_MOST_LINES: Final = 60
_LONGEST_LINE: Final = 1000


@contextlib.contextmanager
def whole_or_nothing() -> Iterator[None]:
    """Buffer the standard output until the command succeeds.

    With ``--json``, the standard output contains one value: the result or the error.
    """
    buffer = io.StringIO()
    try:
        with contextlib.redirect_stdout(buffer):
            yield
    except SystemExit:  # argparse has printed its help
        sys.stdout.write(buffer.getvalue())
        raise
    sys.stdout.write(buffer.getvalue())


def unwritable_output(error: OSError) -> ArtifactError:
    """Return the error for a standard output that cannot be written."""
    message = f"cannot be written: {error.strerror}"
    return ArtifactError(message, "send the output to a place with room", "the standard output")


def error_of_limits(error: Exception) -> MobileprepError | None:
    """Return the error for exhausted memory or threads; None for other exceptions."""
    if isinstance(error, MemoryError):
        message = f"the machine gives no more memory{f': {error}' if str(error) else ''}"
        return ArtifactError(message, "raise the limit on memory, or run fewer at once with -j")
    if isinstance(error, ImportError) and _NO_ROOM in str(error):
        message = f"the machine gives no more memory: {error}"
        return ArtifactError(message, "raise the limit on memory ('ulimit -v', a container's)")
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        return _no_threads()
    return None


def limit_behind_interrupt() -> MobileprepError | None:
    """Return the error behind an interrupt that the BLAS library sent; None if the user did.

    OpenBLAS interrupts its own process if the system cannot start its threads.
    """
    import threading

    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return _no_threads()
    return None


def _no_threads() -> ArtifactError:
    message = "the machine starts no more threads"
    hint = "raise the limits on processes and memory ('ulimit -u', 'ulimit -v', a container's)"
    return ArtifactError(message, hint)


def error_of_system(error: OSError) -> MobileprepError | None:
    """Convert a system error for a path; return None if a bug may be the cause."""
    path, reason = error.filename, error.strerror
    if path is None or error.errno not in _OF_PATHS | _OPEN_FILES | _OF_WRITING:
        return None
    where = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    if error.errno in _OF_WRITING:
        return ArtifactError(f"cannot be written: {reason}", "", where)
    is_limit = error.errno in _OPEN_FILES
    hint = (
        "raise the limit on open files ('ulimit -n')"
        if is_limit
        else "name a file that can be read"
    )
    return CorruptFileError(f"cannot be read: {reason}", hint, where)


def tell_error(error: MobileprepError, *, as_json: bool) -> int:
    """Print an error and return its exit code."""
    message, where = _cut(error.message), _cut(_place(error))
    hint = _cut(error.hint or mend_of(error))
    report(diagnostics_of(error, where, hint))
    text = _with_codes(message, error)
    print(f"error: {f'{where}: ' if where else ''}{text}", file=sys.stderr)
    if hint:
        print(f"help: {hint}", file=sys.stderr)
    if as_json:
        print_failure(
            error_kind(error), message, error.exit_code, code=error.code, hint=hint, where=where
        )
    return error.exit_code


def _with_codes(message: str, error: MobileprepError) -> str:
    """Append the code of each problem to its first line."""
    from mobileprep.error_codes import with_code  # only failures need it

    problems = split_problems(message) or (message,)
    return "\n".join(with_code(problem, error.exit_code) for problem in problems)


def mend_of(error: MobileprepError) -> str:
    """Return the default hint for the class of an error.

    Recipe errors have no default, because each problem contains its hint.
    """
    return next((_MENDS[c] for c in type(error).__mro__ if c in _MENDS), "")


def _place(error: MobileprepError) -> str:
    """Return the location of an error, with the input file of the command if it is not named."""
    subject = error.subject
    if _names_a_file(error.where):
        return error.where  # another file that the command reads
    if (
        not subject
        or error.exit_code in _PLACED
        or Path(subject).name in f"{error.where} {error.message}"
    ):
        return error.where
    return f"{subject}: {error.where}" if error.where else subject


def _names_a_file(where: str) -> bool:
    """Return whether a location is a file or directory, not a stage such as ``digits/freeze``."""
    # Path raises for names that are too long; os.path does not.
    return "." in where or ("/" in where and os.path.lexists(where.split(",")[0]))


def _cut(text: str) -> str:
    """Limit the length of a message and escape control characters, but keep its lines."""
    lines = text.split("\n", _MOST_LINES)
    if len(lines) > _MOST_LINES:
        more = lines.pop().count("\n") + 1
        lines.append(f"... and {more} more lines")
    return "\n".join(shortened(line, _LONGEST_LINE) for line in lines)


def print_failure(
    kind: str, message: str, exit_code: int, *, code: str, hint: str = "", where: str = ""
) -> None:
    """Print an error as a JSON object.

    Args:
        kind: the class of the error, in words.
        message: the problem; several problems of a recipe each begin with their location.
        exit_code: the exit code of the command.
        code: the code in the error reference; empty for an interrupt.
        hint: what to do.
        where: the location.
    """
    error = {
        "kind": kind,
        "code": code,
        "message": message,
        "hint": hint,
        "where": where,
        "exit_code": exit_code,
    }
    print(json.dumps({"error": error}, indent=1))


def error_kind(error: MobileprepError) -> str:
    """Return the class of an error in words: ``corrupt file`` for ``CorruptFileError``."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error")).lower()
