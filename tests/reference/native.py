"""Programs against the library of TensorFlow 1.15: built once, and run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType, dtype_from_numpy
from tests.reference.conftest import making

PROGRAMS = Path(__file__).parent / "programs"
Array = np.ndarray


class NativeError(Exception):
    """The original runtime refused; its message."""


def program(home: Path, name: str) -> Path:
    """A program of ``programs/``, compiled against the library in ``home``."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    source = PROGRAMS / f"{name}.cc"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    built, tf = home / f"{name}-{digest}", home / "tensorflow_core"
    with making():
        if not built.exists():
            compile_program(compiler, [source], built.with_suffix(".new"), tf)
            built.with_suffix(".new").rename(built)
    return built


def compile_program(
    compiler: str, sources: Sequence[Path], target: Path, tf: Path, options: Sequence[str] = ()
) -> None:
    """A program of C++ against the library of TensorFlow 1.15, whose package is in ``tf``."""
    library, framework = (
        tf / "python/_pywrap_tensorflow_internal.so",
        "libtensorflow_framework.so.1",
    )
    common = ["-std=c++14", "-O1", "-w", "-rdynamic", "-D_GLIBCXX_USE_CXX11_ABI=0"]
    includes = [f"-I{tf / 'include'}", f"-I{tf / 'include/include'}"]
    libraries = [str(library), str(tf / framework), "-l:libpython3.11.so.1.0"]
    links = ["-Wl,--unresolved-symbols=ignore-all", f"-Wl,-rpath,{tf / 'python'}:{tf}"]
    files = [*map(str, sources), "-o", str(target)]
    command = [compiler, *common, *includes, *options, *files, *libraries, *links]
    subprocess.run(command, check=True, timeout=300)


def run_in_115(
    home: Path,
    graph: Path,
    feeds: Mapping[str, Array],
    fetches: Sequence[str],
    folder: Path,
    *,
    memmapped: bool = False,
) -> list[Array]:
    """Run a graph file once in TensorFlow 1.15, and return its outputs.

    Raises:
        NativeError: it could not load or run it.
    """
    lines = _run_graph(home, graph, feeds, [f"fetch {n}" for n in fetches], folder, memmapped)
    outputs = []
    for i, line in enumerate(lines):
        kind, *dims = map(int, line.split())
        data = (folder / f"fetch_{i}").read_bytes()
        outputs.append(np.frombuffer(data, DType(kind).numpy).reshape(dims))
    return outputs


def ops_run_in_115(
    home: Path, graph: Path, feeds: Mapping[str, Array], fetch: str, folder: Path
) -> set[str]:
    """Run a graph file once in TensorFlow 1.15, and return the ops of the graph that ran.

    Raises:
        NativeError: it could not load or run it.
    """
    lines = _run_graph(home, graph, feeds, [f"fetch {fetch}", "ops"], folder, memmapped=False)
    return set(lines[-1].split())


def _run_graph(
    home: Path,
    graph: Path,
    feeds: Mapping[str, Array],
    requests: Sequence[str],
    folder: Path,
    memmapped: bool,
) -> list[str]:
    lines = []
    for i, (name, value) in enumerate(feeds.items()):
        kind = dtype_from_numpy(value.dtype)
        assert kind is not None
        (folder / f"feed_{i}").write_bytes(np.ascontiguousarray(value).tobytes())
        dims = ",".join(map(str, value.shape)) or "-"
        lines.append(f"feed {name} {int(kind)} {dims}")
    options = ["memmapped"] if memmapped else []
    done = subprocess.run(
        [str(program(home, "run_graph")), str(graph), str(folder), *options],
        input="\n".join([*lines, *requests]) + "\n",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise NativeError(done.stderr)
    return done.stdout.splitlines()
