"""The verb ``explain``: prints the cause and the fix of an error code or a log line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, file_name, flag, verb
from mobileprep.errors import UsageError, nearest_hint

if TYPE_CHECKING:
    from mobileprep.error_codes import ErrorCode

_MAX_NODES: Final = 10
_MAX_LOG: Final = 1 << 20


class Explanation(Struct, frozen=True):
    """The entry of an error, with the names that the message contains.

    Args:
        code: the error code.
        title: short name of the error.
        op: op that the message names; empty if none.
        attribute: attribute that the message names; empty if none.
        version: version that the message names; empty if none.
        cause: why the error occurs.
        nodes: the node that the message names, and nodes of the same op in the model.
        fix: what to do.
        recipe: the change to a recipe as YAML; empty if no recipe is involved.
    """

    code: str
    title: str
    op: str
    attribute: str
    version: str
    cause: str
    nodes: tuple[str, ...]
    fix: str
    recipe: str


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text",
        nargs="+",
        metavar="CODE|MESSAGE",
        help="Error code, message of mobileprep, or log line of an app; - reads standard input",
    )
    line = "Model that the app runs, to list the affected nodes"
    flag(parser, "model", type=file_name, default=None, metavar="FILE", help=line)
    parser.add_argument("--json", action="store_true", help="Print JSON")


@verb(
    "explain",
    Group.INSPECT,
    "Explain an error code, or a message in the log of an app",
    _arguments,
    "mobileprep explain MP401",
    "mobileprep explain \"No OpKernel was registered to support Op 'Erf'\" --model model.pb",
)
def run(args: argparse.Namespace) -> int:
    """Print the title, the cause, the affected nodes, the fix, and the change to the recipe."""
    text = " ".join(args.text)
    if text == "-":  # logs of devices may contain any bytes
        text = sys.stdin.buffer.read(_MAX_LOG).decode("utf-8", "replace")
    entry, names = _entry(text.strip())
    nodes = _nodes(names, args.model)
    explanation = Explanation(
        entry.code,
        entry.title,
        names.get("op", ""),
        names.get("attr", ""),
        names.get("version", ""),
        entry.cause,
        tuple(nodes),
        entry.fix,
        entry.recipe,
    )
    if args.json:
        print(json.dumps(to_builtins(explanation), indent=1))
    else:
        show(_lines(explanation))
    return 0


def _entry(text: str) -> tuple[ErrorCode, Mapping[str, str]]:
    from mobileprep.error_codes import CODES, find_app_message

    entries = {entry.code: entry for entry in CODES}
    code = text.upper()
    if code in entries:
        return entries[code], {}
    if len(code) == len("MP000") and code.startswith("MP"):
        message = f"unknown error code {text!r}"
        raise UsageError(message, nearest_hint(code, entries) or "see the error reference")
    entry = next((e for c, e in entries.items() if f"[{c}]" in text), None)
    if entry is not None:
        return entry, {}
    in_app = find_app_message(text)
    if in_app is None:
        message = "no known error in the text"
        hint = "pass the whole line of the log; 'mobileprep check-target MODEL' checks a model"
        raise UsageError(message, hint)
    return in_app


def _nodes(names: Mapping[str, str], model: str | None) -> list[str]:
    """Return the node that the message names, then nodes of the same op in the model."""
    nodes = [names["node"]] if "node" in names else []
    if model is None:
        return nodes
    from mobileprep.freezing.loading import ModelOptions, load_model
    from mobileprep.graph.tflite import PREFIX

    graph = load_model(Path(model), ModelOptions(), warn).graph
    op, attr = names.get("op"), names.get("attr")
    ops = (op, f"{PREFIX}{op}", f"{PREFIX}Flex{op}")  # the last two in .tflite files
    matching = (n.name for n in graph if n.op in ops and (attr is None or attr in n.attrs))
    return list(dict.fromkeys([*nodes, *matching]))


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.code}: {explanation.title}"
    yield f"cause: {explanation.cause}"
    if explanation.op:
        yield f"op: {explanation.op}"
    if explanation.attribute:
        yield f"attribute: {explanation.attribute}"
    if explanation.version:
        yield f"version: {explanation.version}"
    nodes = explanation.nodes
    if nodes:
        more = f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
        yield f"node{'s' * (len(nodes) > 1)}: {', '.join(nodes[:_MAX_NODES])}{more}"
    yield f"fix: {explanation.fix}"
    if explanation.recipe:
        yield "recipe:"
        yield from (f"  {line}" for line in explanation.recipe.splitlines())
