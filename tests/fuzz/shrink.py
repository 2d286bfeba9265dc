"""A smaller case with the same fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.fuzz.case import Case

_MOST_TRIES = 200


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A case whose damaged files are as short as some tries make them.

    Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002): halves,
    then quarters and so on are left out as long as the fault stays.
    """
    tries = _MOST_TRIES
    for name in case.damaged:
        data = case.files[name]
        size = max(len(data) // 2, 1)
        while size and tries > 0:
            at = 0
            while at < len(data) and tries > 0:
                tries -= 1
                tried = replace(case, files={**case.files, name: data[:at] + data[at + size :]})
                if fails(tried):
                    case, data = tried, tried.files[name]
                else:
                    at += size
            size //= 2
    return case
