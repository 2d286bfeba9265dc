"""What the reference tests share: where the original tools, TensorFlow and real models are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
HOME = Path(os.environ.get("MOBILEPREP_REFERENCE", Path.home() / ".cache/mobileprep-reference"))


@pytest.fixture(scope="session")
def original() -> Path:
    """The folder of the original TensorFlow 1.15 tools, built on first use."""
    if not (HOME / "transform_graph").exists():
        setup = SHARED / "reference" / "setup.sh"
        if not setup.exists():
            pytest.skip("the original tools are not here, nor the script that builds them")
        subprocess.run(["bash", str(setup), str(HOME)], check=True, timeout=900)
    return HOME


@pytest.fixture(scope="session")
def tf() -> ModuleType:
    """TensorFlow, where it is installed beside the tests."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    return pytest.importorskip("tensorflow", reason="tensorflow-cpu is not installed")


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of real models."""
    folder = SHARED / "models"
    if not folder.exists():
        pytest.skip("the real models are not here")
    return folder
