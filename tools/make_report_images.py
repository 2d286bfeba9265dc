"""Create the screenshots of the report page for docs/how-to/read-the-report.md.

python tools/make_report_images.py docs/images

Requires Chromium, playwright, and Pillow: pip install -e '.[browser,image]'.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from PIL import Image

from mobileprep.building.builder import build

RECIPE: Final = Path(__file__).resolve().parents[1] / "recipes" / "digits-eight-bits"
WIDE: Final = {"width": 1180, "height": 780}
PHONE: Final = {"width": 390, "height": 780}
NODE: Final = "Dense/weights"
_TARGET: Final = "observed"


def main() -> None:
    """Build the recipe and take all screenshots."""
    from playwright.sync_api import sync_playwright

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        os.environ["MOBILEPREP_CACHE"] = f"{name}/store"
        build(RECIPE / "recipe.yaml", f"{name}/out", warn=lambda _: None)
        path = Path(name, "out", "digits-eight-bits", "report.html")
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = _opened(browser, path, WIDE, "light")
        _take(page, folder / "report-overview.png")
        page = _opened(browser, path, WIDE, "dark")
        page.evaluate("name => mobileprep.view.show(name, 'source')", NODE)
        _take(page, folder / "report-graph.png")
        page = _opened(browser, path, PHONE, "light")
        page.evaluate("document.querySelector('#accuracy').scrollIntoView()")
        _take(page, folder / "report-phone.png")
        browser.close()


def _opened(browser: Any, path: Path, size: dict[str, int], scheme: str) -> Any:  # noqa: ANN401
    page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready] g.box")
    page.locator("header select").select_option(label=_TARGET)
    return page


def _take(page: Any, path: Path) -> None:  # noqa: ANN401 - playwright's
    page.wait_for_timeout(500)
    page.screenshot(path=path)
    with Image.open(path) as image:
        # 128 colors are enough for a page, and need a third of the bytes.
        image.convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main()
