"""Check that all required dependencies have wheels for the platforms of numpy.

    python tools/check_wheels.py [--python 3.13]

Downloads the wheels of direct and indirect dependencies for each platform with
`pip download --only-binary=:all:`. Exits with code 1 if one is missing, and with code 2 if the
package index cannot be reached.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Platform tags of pip; machines also accept wheels with older tags.
PLATFORMS = {
    "Linux x86-64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "Linux aarch64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "musl x86-64": ("musllinux_1_2_x86_64", "musllinux_1_1_x86_64"),
    "musl aarch64": ("musllinux_1_2_aarch64", "musllinux_1_1_aarch64"),
    "macOS x86-64": ("macosx_14_0_x86_64", "macosx_10_13_x86_64", "macosx_10_9_x86_64"),
    "macOS arm64": ("macosx_14_0_arm64", "macosx_11_0_arm64", "macosx_10_9_universal2"),
    "Windows x86-64": ("win_amd64",),
    "Windows arm64": ("win_arm64",),
}
_UNREACHABLE = ("NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ProxyError")


def requirements() -> list[str]:
    """Return the required dependencies of `pyproject.toml`."""
    listed: list[str] = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    return listed


def download(requirement: str, tags: tuple[str, ...], python: str, into: str) -> str:
    """Download wheels for one platform; return the error of pip, or an empty string."""
    platform = [word for tag in tags for word in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--retries", "1", "--dest", into]
    command += ["--python-version", python, *platform, requirement]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    return finished.stderr if finished.returncode else ""


def main() -> int:
    """Print one line per platform."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default="3.13", help="release of Python [default: 3.13]")
    python = parser.parse_args().python
    missing = 0
    for name, tags in PLATFORMS.items():
        absent = []
        with tempfile.TemporaryDirectory() as folder:
            for requirement in requirements():
                error = download(requirement, tags, python, folder)
                if any(word in error for word in _UNREACHABLE):
                    print("error: cannot reach the package index", file=sys.stderr)
                    print("help: check the network, and pip's settings", file=sys.stderr)
                    return 2
                if error:
                    absent.append(f"{requirement} ({error.strip().splitlines()[-1]})")
        missing += len(absent)
        print(f"{name:15} {'ok' if not absent else 'missing: ' + ', '.join(absent)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
