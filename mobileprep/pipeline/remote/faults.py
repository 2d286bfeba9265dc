"""What can go wrong with one exchange: out there, on this side, or with what came."""

from __future__ import annotations

from typing import Literal, TypeAlias

Ends: TypeAlias = Literal["nothing", "taking", "sending", "all"]


class RemoteError(Exception):
    """What a remote store did wrong.

    Args:
        message: goes on from "the remote store URL ...".
        again: whether the next try may well do better.
        ends: what need not be tried for the rest of the build.
        after: how many seconds the store asks to be left alone before the next try.
    """

    def __init__(
        self, message: str, *, again: bool = False, ends: Ends = "nothing", after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.message = message
        self.again = again
        self.ends = ends
        self.after = after


class WrongBytesError(RemoteError):
    """What it gave is not what was asked for; what is sent there mends it."""


class LocalError(Exception):
    """What went wrong on this side: a disk that is full, an object that is damaged."""


class TooLongError(Exception):
    """More bytes than were to be taken."""
