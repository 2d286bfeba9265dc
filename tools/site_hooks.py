"""Add pages of the repository outside of ``docs/`` to the site.

mkdocs calls the functions; see ``hooks`` in ``mkdocs.yml``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Pages of the repository, by where they are on the site.
PAGES = {
    "index.md": "README.md",
    **{
        f"repository/{name}": name
        for name in (
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "recipes/digits/README.md",
            "recipes/mnist/README.md",
        )
    },
}
_PLACES = {source: page for page, source in PAGES.items()}
_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository."""
    for page, source in PAGES.items():
        files.append(
            File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8"))
        )
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Have links lead to where the site has what they name; to what it lacks there are none."""
    here = page.file.src_uri
    source = PAGES.get(here, f"docs/{here}")

    def placed(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        if not (ROOT / target).exists():
            return found[0]  # mkdocs tells that it is broken
        place = _PLACES.get(target, target.removeprefix("docs/"))
        is_on_site = target in _PLACES or target.startswith("docs/")
        if not is_on_site:
            return "#"
        return posixpath.relpath(place, posixpath.dirname(here) or ".") + (found[2] or "")

    return _LINK.sub(placed, markdown)
