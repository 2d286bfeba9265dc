"""The verb ``cache``: shows, shrinks, verifies, or empties the build cache."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from mobileprep.cli._shared.arguments import size_text
from mobileprep.cli._shared.telling import print_note
from mobileprep.cli.verb import Group, verb
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.building.cache import CacheCleared, CacheCollected, CacheInfo, CacheVerified

_DAMAGED: Final = 4


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=sorted(_ACTIONS),
        help="info: show sizes; gc: remove old entries; "
        "verify: hash all entries and remove damaged ones; clear: remove all entries",
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        help="Size to keep with gc, such as 5GB [env: MOBILEPREP_CACHE_MAX] [default: 20GB]",
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="Fail instead of waiting if a build is using the cache",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


@verb(
    "cache",
    Group.MAINTENANCE,
    "Show, shrink, verify, or empty the build cache",
    _arguments,
    "mobileprep cache info",
    "mobileprep cache gc --max-size 5GB",
)
def run(args: argparse.Namespace) -> int:
    """Run an action on the build cache."""
    if args.max_size is not None and args.action != "gc":
        message = f"--max-size needs the action gc, not {args.action}"
        raise UsageError(message)
    return _ACTIONS[args.action](args)


def _info(args: argparse.Namespace) -> int:
    from mobileprep.building.cache import cache_info

    info = cache_info()
    _show(args, info, _info_text(info))
    return 0


def _gc(args: argparse.Namespace) -> int:
    from mobileprep.building.cache import cache_gc
    from mobileprep.building.pipeline.eviction import bound_of, store_bound

    named = args.max_size
    limit = store_bound(os.environ) if named is None else bound_of(named, "--max-size")
    done = cache_gc(limit, wait=not args.no_wait, tell=print_note)
    _show(args, done, _gc_text(done))
    return 0


def _verify(args: argparse.Namespace) -> int:
    from mobileprep.building.cache import cache_verify

    result = cache_verify()
    _show(args, result, _verify_text(result))
    return _DAMAGED if result.damaged else 0


def _clear(args: argparse.Namespace) -> int:
    from mobileprep.building.cache import cache_clear

    done = cache_clear(wait=not args.no_wait, tell=print_note)
    removed = f"{size_text(done.removed_bytes)} removed"
    _show(args, done, f"{done.folder}: {removed if done.formats else 'there is nothing'}")
    return 0


_ACTIONS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "info": _info,
    "gc": _gc,
    "verify": _verify,
    "clear": _clear,
}


def _info_text(info: CacheInfo) -> str:
    limit = "none" if info.limit_bytes is None else size_text(info.limit_bytes)
    lines = [
        f"folder: {info.folder}",
        f"objects: {info.objects}, {size_text(info.object_bytes)}",
        f"records: {info.records}, {size_text(info.record_bytes)}",
        f"limit: {limit}",
        f"remote: {info.remote or 'none'}",
    ]
    if info.oldest_use is not None and info.newest_use is not None:
        lines.append(f"used: from {_day(info.oldest_use)} to {_day(info.newest_use)}")
    lines += [
        f"old format {one.name}: {size_text(one.bytes)}" for one in info.formats if not one.used
    ]
    return "\n".join(lines)


def _gc_text(done: CacheCollected) -> str:
    lines = [f"old format {name} removed" for name in done.formats]
    if done.workspaces:
        lines.append(f"workspaces of builds that are gone: {done.workspaces} removed")
    if done.unfinished:
        lines.append(f"unfinished files: {done.unfinished} removed")
    if done.objects or done.records:
        lines.append(f"{done.objects} objects and {done.records} records removed")
    freed, remaining = size_text(done.removed_bytes), size_text(done.left_bytes)
    lines.append(f"{done.folder}: {freed} freed, {remaining} left")
    if done.limit_bytes is not None and done.left_bytes > done.limit_bytes:
        lines.append("entries used within the last hour are kept")
    return "\n".join(lines)


def _verify_text(result: CacheVerified) -> str:
    lines = [
        f"{path}: damaged, and {'cannot be ' if path in result.stuck else ''}removed"
        for path in result.damaged
    ]
    size = size_text(result.object_bytes)
    lines.append(f"{result.objects} objects ({size}) and {result.records} records are whole")
    if result.incomplete:
        lines.append(
            f"{result.incomplete} records need missing objects: they are built again when needed"
        )
    return "\n".join(lines)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _show(
    args: argparse.Namespace,
    facts: CacheInfo | CacheCollected | CacheVerified | CacheCleared,
    text: str,
) -> None:
    print(json.dumps(to_builtins(facts), indent=1) if args.json else text)
