"""Decode the records of stages from JSON."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from mobileprep.building.plan.spec import Upstream
from mobileprep.core.files import NONSENSE
from mobileprep.errors import CorruptFileError

RecordType = TypeVar("RecordType")

# JSON has integers beyond all floats, which reports could not print.
_HUGE_NUMBER: Final = re.compile(rb"[0-9]{300}")


class CacheEntryError(CorruptFileError):
    """A cached output that is missing, damaged, or not an output of its stage."""

    tasks: tuple[str, ...] = ()
    """The stages whose cache entries have to go."""


def cache_entry_error(problem: str, *upstream: Upstream) -> CacheEntryError:
    """The error for cached outputs of which a reader finds that they have a problem."""
    hint = "build again: the stage that makes it runs again"
    first = upstream[0]
    error = CacheEntryError(f"the stored {first.output} {problem}", hint, first.task)
    error.tasks = tuple(up.task for up in upstream)
    return error


def misfit(*upstream: Upstream) -> CacheEntryError:
    """The error for outputs that make no sense."""
    return cache_entry_error("makes no sense", *upstream)


def read_record(kind: type[RecordType], data: bytes, upstream: Upstream) -> RecordType:
    """Decode a stage's record, whose bytes may come from anywhere.

    Raises:
        CacheEntryError: the bytes are not such a record.
    """
    if _HUGE_NUMBER.search(data):
        raise misfit(upstream)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, *NONSENSE) as error:
        raise misfit(upstream) from error
