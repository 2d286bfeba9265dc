"""Versions of libraries, without importing them."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

from mobileprep.building.plan.fingerprints import computing_libraries, library_version


def test_versions_come_from_metadata() -> None:
    names = ("numpy", "protobuf")
    assert computing_libraries() == {name: metadata.version(name) for name in names}
    assert library_version("no_such_module", "no-such-library") == ""
    assert library_version("json", "no-such-library") == "unknown"


def test_libraries_are_not_imported() -> None:
    code = (
        "import sys; from mobileprep.building.plan.fingerprints import computing_libraries;"
        "computing_libraries(); print('numpy' in sys.modules, 'google.protobuf' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
