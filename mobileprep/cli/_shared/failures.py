"""How a command tells that it failed: a message for people, and with --json an object as well."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import re
import sys
from collections.abc import Iterator
from typing import Final

from mobileprep.errors import ArtifactError, MobileprepError

# What a write to the standard output ends with where its device is full or gone.
NO_OUTPUT: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG})


@contextlib.contextmanager
def whole_or_nothing() -> Iterator[None]:
    """Hold back what is written to the standard output until it is known that all went well.

    With --json there is one value on the standard output: the result, or the error.
    """
    kept = io.StringIO()
    try:
        with contextlib.redirect_stdout(kept):
            yield
    except SystemExit:  # argparse has printed its help
        sys.stdout.write(kept.getvalue())
        raise
    sys.stdout.write(kept.getvalue())


def unwritable_output(error: OSError) -> ArtifactError:
    """The error of a standard output that takes no more."""
    message = f"cannot be written: {error.strerror}"
    return ArtifactError(message, "send the output to a place with room", "the standard output")


def tell_error(error: MobileprepError, *, as_json: bool) -> int:
    """Tell of an error of the user's; its exit code."""
    print(f"mobileprep: error: {error}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {error.hint}", file=sys.stderr)
    if as_json:
        print_failure(
            error_kind(error), error.message, error.exit_code, hint=error.hint, where=error.where
        )
    return error.exit_code


def print_failure(kind: str, message: str, code: int, *, hint: str = "", where: str = "") -> None:
    """Print what failed as a JSON object.

    Args:
        kind: what kind of trouble it was, in one or two words: ``usage``, ``corrupt file``.
        message: what is wrong; a recipe's problems, one a line.
        code: the exit code.
        hint: the mend, where one is known.
        where: the place; a recipe's problems each name their own.
    """
    error = {"kind": kind, "message": message, "hint": hint, "where": where, "exit_code": code}
    print(json.dumps({"error": error}, indent=1))


def error_kind(error: MobileprepError) -> str:
    """``corrupt file`` for a CorruptFileError."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error")).lower()
