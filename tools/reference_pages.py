"""The site's pages of every verb with its flags, and of every error, made as the site is made."""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import mobileprep
from mobileprep import errors
from mobileprep.cli._shared.failures import error_kind
from mobileprep.cli._shared.originals import ORIGINALS
from mobileprep.cli.main import find_verb, parser_of, verb_names
from mobileprep.errors import MobileprepError

ROOT = Path(mobileprep.__file__).parent
# Flags that all verbs have; the page tells them once.
_SHARED = frozenset({"help", "quiet", "verbose", "log_file"})
_MARKUP = re.compile(r"[|<>*_\\`\[\]]")


def verbs_page() -> str:
    """Every verb with its flags, as ``mobileprep help VERB`` tells them."""
    lines = [
        "# Verbs and flags",
        "",
        "`mobileprep help VERB` tells the same. All verbs take `--help`, and",
        "[`--quiet`, `--verbose` and `--log-file FILE`](command-line.md#progress).",
    ]
    for name in verb_names():
        lines += ["", *_verb(name)]
    return "".join(f"{line}\n" for line in lines)


def _verb(name: str) -> Iterator[str]:
    verb = find_verb(name)
    yield f"## {name}"
    yield ""
    replaced = [original for original, ours in ORIGINALS.items() if ours == name]
    also = f" Also called `{'`, `'.join(replaced)}`." if replaced else ""
    yield f"{verb.summary}.{also}"
    rows = [
        action
        for action in parser_of(verb)._actions
        if action.dest not in _SHARED and action.help is not argparse.SUPPRESS
    ]
    if rows:
        yield ""
        yield "| argument | does | default |"
        yield "|---|---|---|"
    for action in rows:
        spelt = ", ".join(f"`{text}`" for text in action.option_strings) or f"`{_name(action)}`"
        value = "" if action.nargs == 0 or not action.option_strings else f" `{_name(action)}`"
        yield f"| {spelt}{value} | {_plain(action.help or '')} | {_default(action)} |"


def _name(action: argparse.Action) -> str:
    if action.choices is not None:
        # A bar would end the cell of the table.
        return " or ".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper()).replace("|", " or ")


def _default(action: argparse.Action) -> str:
    value = action.default
    if value in (None, False, "", [], ()) or value is argparse.SUPPRESS:
        return ""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"`{text}`"


def errors_page() -> str:
    """Every kind of error with its exit code, and the messages that are raised of it."""
    lines = [
        "# Errors",
        "",
        "Each message names the file or the place, what is wrong, and the mend in a line `hint:`.",
        "`...` stands for what differs. With `--json` the error is an object",
        "([command line](command-line.md#json)), whose `kind` stands in brackets here.",
        "",
        "| exit code | kinds |",
        "|---|---|",
    ]
    kinds = _kinds()
    by_code: dict[int, list[str]] = defaultdict(list)
    for kind in kinds.values():
        by_code[kind.exit_code].append(kind.__name__)
    for code, names in sorted(by_code.items()):
        linked = ", ".join(f"[{name}](#{name.lower()})" for name in names)
        lines.append(f"| {code} | {linked} |")
    messages = _messages(kinds)
    for name, kind in kinds.items():
        text = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
        lines += ["", f"## {name}", "", f"{text} Exit code {kind.exit_code}"]
        lines[-1] += f" (`{error_kind(kind(''))}`)."
        lines += ["", *(f"- {message}" for message in messages.get(name, ()))]
    return "".join(f"{line}\n" for line in lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


def _kinds() -> dict[str, type[MobileprepError]]:
    found = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, MobileprepError)
    }
    return dict(sorted(found.items(), key=lambda item: (item[1].exit_code, item[0])))


def _messages(kinds: dict[str, type[MobileprepError]]) -> dict[str, list[str]]:
    """The messages of errors, as they stand in the source where they are raised."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for name, text in _raised(function):
                    if name in kinds and text.strip(". "):
                        found[name].add(_plain(text))
    return {name: sorted(texts) for name, texts in found.items()}


def _raised(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Calls of error classes in a function, with their first argument as a text."""
    texts: dict[str, str] = {}
    for node in sorted(ast.walk(function), key=lambda n: getattr(n, "lineno", 0)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _text(node.value)
            if text is not None:
                texts[node.targets[0].id] = text
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            first = node.args[0]
            text = texts.get(first.id) if isinstance(first, ast.Name) else _text(first)
            if text is not None:
                yield node.func.id, text


def _text(node: ast.expr) -> str | None:
    """A text as it is written, ``...`` for each of its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (_text(v) if isinstance(v, ast.Constant) else "..." for v in node.values)
        return "".join(part or "" for part in parts)
    return None


def _plain(text: str) -> str:
    """A text that Markdown shows as it is, in one line."""
    text = " ".join(text.replace("%%", "%").split())
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", text)


PAGES: Final = {"verbs.md": verbs_page, "errors.md": errors_page}
