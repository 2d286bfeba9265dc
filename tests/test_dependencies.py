"""Required packages and extras."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Not needed to use the package.
DEVELOPMENT = {"test", "browser", "dev"}


def test_all_extra_includes_every_user_extra() -> None:
    extras = set(PROJECT["optional-dependencies"])
    named = re.findall(r"mobileprep\[([\w,]+)\]", " ".join(PROJECT["optional-dependencies"]["all"]))
    assert set(",".join(named).split(",")) == extras - DEVELOPMENT - {"all"}


def test_architecture_page_lists_every_required_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([\w-]+) \|", page.split("\n## Dependencies\n")[1], re.MULTILINE)
    required = [re.split(r"[<>=]", line)[0] for line in PROJECT["dependencies"]]
    assert set(required) <= set(listed)


@pytest.mark.parametrize("name", ["ml_dtypes", "google_crc32c", "cramjam"])
def test_optional_packages_are_not_imported_at_start(name: str) -> None:
    code = f"""
import sys
sys.modules[{name!r}] = None
import mobileprep.formats.checkpoint, mobileprep.formats.dtypes, mobileprep.runtime.interpreter
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
