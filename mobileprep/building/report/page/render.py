"""Create the report page: data, program, and style in one file without network requests."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from mobileprep.building.report.collect import Report, finite, report_data

PAGE: Final = "report.html"
"""File name of the page."""
_MARK: Final = b"<!doctype html>\n<!-- mobileprep report "
_DIGEST: Final = 64
_FOLDER: Final = Path(__file__).parent
# Some of these could end a script element or start a comment in it. The others are line breaks in
# JavaScript.
_ESCAPES: Final = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def render_page(
    data: Mapping[str, Any], compared: Mapping[str, Any] | None = None, key: str = ""
) -> bytes:
    """Create the page.

    Returns:
        HTML in UTF-8. No string in ``data`` can become markup: the program inserts strings as text
        only, and the content security policy runs no other script.
    """
    script, style = _part("page.js"), _part("page.css")
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    recipe = str(data.get("recipe", ""))
    recipe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in recipe)
    title = html.escape(f"{recipe} - mobileprep report")
    rest = b"".join(
        [
            b'<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'.encode(),
            b'<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            b'<meta name="color-scheme" content="light dark">\n',
            b'<link rel="icon" href="data:,">\n',
            f"<title>{title}</title>\n<style>".encode(),
            style,
            b"</style>\n</head>\n<body>\n",
            b"<noscript>This report needs its script; report.json beside each model does not.",
            b"</noscript>\n",
            b'<div id="page"></div>\n',
            _data("data", data),
            b"" if compared is None else _data("compared", compared),
            b"<script>",
            script,
            b"</script>\n</body>\n</html>\n",
        ]
    )
    return b"".join([_MARK, f"{hashlib.sha256(rest).hexdigest()} {key} -->\n".encode(), rest])


def page_key(page: bytes) -> str | None:
    """Return the key of a page, empty if it was edited, or None if it is not a report page."""
    if not page.startswith(_MARK):
        return None
    head, _, rest = page[len(_MARK) :].partition(b" -->\n")
    digest, key = head[:_DIGEST], head[_DIGEST + 1 :]
    same = digest == hashlib.sha256(rest).hexdigest().encode()
    return key.decode("ascii", "replace") if same else ""


def bundle_digest() -> str:
    """Return a digest of the program and the style sheet."""
    return hashlib.sha256(_part("page.js") + _part("page.css")).hexdigest()


@cache
def _part(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


def _source(part: bytes) -> str:
    digest = base64.b64encode(hashlib.sha256(part).digest()).decode()
    return f"sha256-{digest}"


def _data(name: str, data: Mapping[str, Any]) -> bytes:
    # JSON escapes lone surrogates, which are not valid in UTF-8, with all non-ASCII characters.
    try:
        text = _text(data)
    except ValueError:  # a cached record may contain any number, and searching for them is slow
        text = _text(finite(data))
    escaped = text.translate(_ESCAPES)
    return f'<script type="application/json" id="{name}">{escaped}</script>\n'.encode("ascii")


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)


FORMAT: Final = 1
"""Increment if the page data changes, so that pages of other versions are not misread."""


def nodes_data(
    source: Mapping[str, Any],
    shipped: Mapping[str, Any],
    steps: Sequence[str],
    graphs: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the page data of a target's graphs."""
    tables = [*graphs]
    return {
        "graphs": [source["graph"], shipped["graph"]],
        "steps": [
            {"name": name, **graph["step"]} for name, graph in zip(steps, tables[1:], strict=True)
        ],
        "compressed": [graph["compressed"] for graph in tables],
        "ranges": shipped["ranges"],
    }


def page_data(
    recipe: str,
    tool: str,
    targets: Sequence[tuple[Report, Mapping[str, Any]]],
    stages: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the page data of a recipe's targets.

    Args:
        stages: for each stage, its ``task`` and ``kind``, whether it ``ran`` in this build, and the
            ``seconds`` it took, or took in the run that created the cached result.
    """
    return {
        "format": FORMAT,
        "recipe": recipe,
        "tool": tool,
        "targets": [
            {"name": report.target, "report": report_data(report), "nodes": nodes}
            for report, nodes in targets
        ],
        "stages": list(stages),
    }


# Data never contains ``<``, because everything that could end the element is escaped.
_DATA: Final = re.compile(rb'<script type="application/json" id="data">([^<]*)</script>')


def data_of_page(page: bytes) -> dict[str, Any]:
    """Extract the data of a page, see ``page_data``.

    Raises:
        ValueError: the page is not a report page of this version.
    """
    match = _DATA.search(page)
    data = json.loads(match[1]) if match else {}
    version = data.get("format") if isinstance(data, dict) else None
    if version is None or not isinstance(data.get("recipe"), str):
        message = "it is not a report page"
        raise ValueError(message)
    if version != FORMAT:
        message = "its data are of another version of mobileprep"
        raise ValueError(message)
    targets = data.get("targets")
    if not isinstance(targets, list) or not targets or not all(map(_is_target, targets)):
        message = "it does not contain a target"
        raise ValueError(message)
    return data


def _is_target(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)
