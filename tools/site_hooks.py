"""Add pages outside of ``docs/`` to the site.

mkdocs calls these functions; see ``hooks`` in ``mkdocs.yml``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository, by their page on the site.
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
    """Add the pages of ``PAGES``."""
    for page, source in PAGES.items():
        files.append(
            File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8"))
        )
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links to pages of the site, and links to other files of the repository to ``#``."""
    here = page.file.src_uri
    source = PAGES.get(here, f"docs/{here}")

    def placed(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        if not (ROOT / target).exists():
            return found[0]  # mkdocs reports the broken link
        place = _PLACES.get(target, target.removeprefix("docs/"))
        is_on_site = target in _PLACES or target.startswith("docs/")
        if not is_on_site:
            return "#"
        return posixpath.relpath(place, posixpath.dirname(here) or ".") + (found[2] or "")

    return _LINK.sub(placed, markdown)
