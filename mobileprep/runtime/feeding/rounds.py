"""How often a graph is run, and what it is fed each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from mobileprep.errors import UsageError
from mobileprep.runtime.feeding.feeds import files_of, split_feed


class Round(Struct, frozen=True):
    """One run of a graph.

    Args:
        feeds: what each tensor is fed, as ``read_feed`` takes it.
        title: the files that only this run has, or an empty text where there is one run.
    """

    feeds: Mapping[str, str]
    title: str = ""


def named_feeds(texts: Sequence[str]) -> dict[str, str]:
    """``name=what`` by name."""
    feeds: dict[str, str] = {}
    for text in texts:
        name, what = split_feed(text)
        if name in feeds:
            message = f"{name!r} is fed twice"
            raise UsageError(message, f"name several files in one: {name}=a.png,b.png")
        feeds[name] = what
    return feeds


def rounds(feeds: Mapping[str, str], apart: Sequence[str]) -> list[Round]:
    """The runs for some feeds."""
    lists = {name: files for name in apart if (files := files_of(feeds[name])) is not None}
    if not lists:
        return [Round(feeds)]
    counts = {name: len(files) for name, files in lists.items()}
    if len(set(counts.values())) > 1:
        told = " and ".join(f"{count} files for {name!r}" for name, count in counts.items())
        message = f"there are {told}, which do not go together"
        raise UsageError(message, "give as many files for each")
    return [
        Round({**feeds, **dict(zip(lists, files, strict=True))}, ", ".join(files))
        for files in zip(*lists.values(), strict=True)
    ]
