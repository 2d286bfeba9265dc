"""Builds that have nothing to do: told without reading recipes, where a note knows how."""

from __future__ import annotations

import argparse
from pathlib import Path

from mobileprep.api.unchanged import Request, noted, request_of, use
from mobileprep.cli._shared.arguments import settings_of, targets_of
from mobileprep.cli._shared.locks import holding
from mobileprep.pipeline.unchanged import Unchanged


def plain_request(args: argparse.Namespace) -> Request | None:
    """What a command line asks for; None where it asks for anything but a mere build."""
    asked = (args.dry_run, args.explain, args.force, args.json, args.locked, args.provenance)
    if any(asked) or args.depfile is not None or args.recursive:
        return None
    return request_of(args.recipes, args.out, targets_of(args), settings_of(args))


def unchanged(args: argparse.Namespace, request: Request) -> Unchanged | None:
    """The note of a build that had nothing to do, where another now has nothing to do either."""
    note = noted(request)
    if note is None:
        return None
    files = note.files(checksum=args.checksum)
    if not note.inputs_hold(files):
        return None
    with holding(args, map(Path, note.places.values())) as waited:
        if waited or not note.outputs_hold(files):
            return None
    use(note, request)
    return note
