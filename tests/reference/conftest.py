"""Fixtures for the original tools, TensorFlow, and real models."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from mobileprep.graph.graph import Graph
from tests.reference.original import run_original

Original = Callable[..., Graph]

SHARED = Path(__file__).resolve().parents[3] / "shared"
HOME = Path(os.environ.get("MOBILEPREP_REFERENCE", Path.home() / ".cache/mobileprep-reference"))


@contextmanager
def making() -> Iterator[None]:
    """Lock the directory that all test runs share."""
    import fcntl  # not on Windows, which collects these tests too

    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def original() -> Path:
    """The directory of the original TensorFlow 1.15 tools, built on first use."""
    setup = SHARED / "reference" / "setup.sh"
    last = HOME / "run_memmapped"
    if not last.exists() and not setup.exists():
        pytest.skip("neither the original tools nor the script that builds them exist")
    with making():
        if not last.exists():
            subprocess.run(["bash", str(setup), str(HOME)], check=True, timeout=900)
    return HOME


@pytest.fixture
def theirs(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Original:
    """Run the original tool: ``theirs(graph, chain, inputs, outputs)``."""

    def run(graph: Graph, chain: str, inputs: str = "x", outputs: str = "out") -> Graph:
        # A new directory each time: files that were read stay mapped.
        folder = tmp_path_factory.mktemp("original")
        return run_original(original, graph, inputs, outputs, chain, folder)

    return run


@pytest.fixture(scope="session")
def tf() -> ModuleType:
    """TensorFlow with its own kernels.

    On CPUs with int8 instructions it delegates convolutions to oneDNN, which returns the input's
    channels instead of the filters' for an empty batch.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    return pytest.importorskip("tensorflow", reason="tensorflow-cpu is not installed")


@pytest.fixture
def eager(tf: ModuleType) -> Iterator[None]:
    """Run a test with the behavior of TensorFlow 2, also after one that disabled it."""
    from tensorflow.python.eager import context

    v1 = tf.compat.v1
    had_loops = v1.control_flow_v2_enabled()
    v1.enable_control_flow_v2()
    v1.enable_v2_tensorshape()
    with context.eager_mode():
        yield
    if not had_loops:
        v1.disable_control_flow_v2()


@pytest.fixture
def work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty directory, with an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))


@pytest.fixture(scope="session")
def models() -> Path:
    """The directory of real models."""
    folder = SHARED / "models"
    if not folder.exists():
        pytest.skip("the real models are not installed")
    return folder
