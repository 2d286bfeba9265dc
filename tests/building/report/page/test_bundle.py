"""The checked-in JavaScript and CSS match their source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import mobileprep.building.report.page

BUNDLE = Path(mobileprep.building.report.page.__file__).parent
SOURCE = BUNDLE.parents[3] / "web" / "report"
PARTS = ("page.js", "page.css", "licenses.txt")


@pytest.mark.slow
def test_bundle_matches_its_source(tmp_path: Path) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    copy = tmp_path / "report"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("node_modules"))
    out = tmp_path / "out"
    out.mkdir()
    environ = {**os.environ, "npm_config_cache": str(tmp_path / "npm")}
    done = subprocess.run([copy / "build.sh", out], capture_output=True, text=True, env=environ)
    if done.returncode and "npm error" in done.stderr and "network" in done.stderr.lower():
        pytest.skip("the npm registry is not reachable")
    assert done.returncode == 0, done.stderr
    for name in PARTS:
        message = f"{name} does not match its source: run web/report/build.sh"
        assert (out / name).read_bytes() == (BUNDLE / name).read_bytes(), message


def test_licenses_of_bundled_packages_are_listed() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    licenses = (BUNDLE / "licenses.txt").read_text()
    for folder, facts in packages.items():
        if folder and not facts.get("dev"):
            assert f"\n{folder.removeprefix('node_modules/')} {facts['version']} (" in licenses


def test_versions_are_pinned() -> None:
    package = json.loads((SOURCE / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(version[0].isdigit() for version in versions.values())
