"""What the reference tests share: where the original tools, TensorFlow and real models are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
HOME = Path(os.environ.get("MOBILEPREP_REFERENCE", Path.home() / ".cache/mobileprep-reference"))


@contextmanager
def making() -> Iterator[None]:
    """A time when no other process makes anything in the folder that all runs share."""
    import fcntl  # Windows has none, and collects these tests too

    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def original() -> Path:
    """The folder of the original TensorFlow 1.15 tools, built on first use."""
    setup = SHARED / "reference" / "setup.sh"
    last = HOME / "run_memmapped"
    if not last.exists() and not setup.exists():
        pytest.skip("the original tools are not here, nor the script that builds them")
    with making():
        if not last.exists():
            subprocess.run(["bash", str(setup), str(HOME)], check=True, timeout=900)
    return HOME


@pytest.fixture(scope="session")
def tf() -> ModuleType:
    """TensorFlow with its own kernels, where it is installed beside the tests.

    On processors with instructions for eight-bit products it hands convolutions to oneDNN, which
    answers an empty batch with the input's channels instead of the filters'.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
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
