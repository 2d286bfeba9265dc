"""Build and run programs that link the library of TensorFlow 1.15."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.formats.wire import delimited, encode_varint
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from tests.reference.conftest import making

PROGRAMS = Path(__file__).parent / "programs"
Array = np.ndarray


class NativeError(Exception):
    """The original runtime failed; holds its standard error."""


def tool(name: str) -> str:
    """The path of an installed program; skips the test without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def kotlin_compiler() -> str:
    """The path of a Kotlin compiler; skips the test without one that accepts trailing commas."""
    path = tool("kotlinc")
    done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r"kotlinc-jvm (\d+)\.(\d+)", done.stdout + done.stderr)
    if version is not None and tuple(map(int, version.groups())) < (1, 4):
        pytest.skip("kotlinc is older than 1.4")
    return path


def run_program(*command: object, cwd: Path | None = None) -> str:
    """Run a program that must succeed, and return its standard output."""
    process = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=600, check=False, cwd=cwd
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def program(home: Path, name: str) -> Path:
    """A program of ``programs/``, compiled against the library in ``home``."""
    source = PROGRAMS / f"{name}.cc"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    built, tf = home / f"{name}-{digest}", home / "tensorflow_core"
    with making():
        if not built.exists():
            compile_program([source], built.with_suffix(".new"), tf)
            built.with_suffix(".new").rename(built)
    return built


def compile_program(
    sources: Sequence[Path], target: Path, tf: Path, options: Sequence[str] = ()
) -> None:
    """Compile C++ against the library of TensorFlow 1.15, whose package is in ``tf``."""
    library, framework = (
        tf / "python/_pywrap_tensorflow_internal.so",
        "libtensorflow_framework.so.1",
    )
    common = ["-std=c++14", "-O1", "-w", "-rdynamic", "-D_GLIBCXX_USE_CXX11_ABI=0"]
    includes = [f"-I{tf / 'include'}", f"-I{tf / 'include/include'}"]
    libraries = [str(library), str(tf / framework), "-l:libpython3.11.so.1.0"]
    links = ["-Wl,--unresolved-symbols=ignore-all", f"-Wl,-rpath,{tf / 'python'}:{tf}"]
    files = [*map(str, sources), "-o", str(target)]
    command = [tool("g++"), *common, *includes, *options, *files, *libraries, *links]
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
        NativeError: the runtime cannot load or run the graph.
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
        NativeError: the runtime cannot load or run the graph.
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
        content = value.item() if value.dtype == object else np.ascontiguousarray(value).tobytes()
        (folder / f"feed_{i}").write_bytes(content)
        dims = ",".join(map(str, value.shape)) or "-"
        lines.append(f"feed {name} {int(kind)} {dims}")
    options = ["memmapped"] if memmapped else []
    process = subprocess.run(
        [str(program(home, "run_graph")), str(graph), str(folder), *options],
        input="\n".join([*lines, *requests]) + "\n",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if process.returncode:
        raise NativeError(process.stderr)
    return process.stdout.splitlines()


def run_memmapped(
    home: Path, model: Path, feed: str, fetch: str, value: Array
) -> subprocess.CompletedProcess[str]:
    """Run the original loader on a memory-mapped model; it writes ``out.f32`` next to it."""
    (model.parent / "in.f32").write_bytes(np.ascontiguousarray(value).tobytes())
    shape = ",".join(map(str, value.shape))
    return subprocess.run(
        [home / "run_memmapped", model.name, feed, fetch, shape, "in.f32", "out.f32"],
        cwd=model.parent,
        env={"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def fetched_memmapped(home: Path, model: Path, feed: str, fetch: str, value: Array) -> Array:
    """The flat float32 output that the original loader computes for a memory-mapped model."""
    process = run_memmapped(home, model, feed, fetch, value)
    assert process.returncode == 0, process.stderr
    return np.fromfile(model.parent / "out.f32", np.float32)


def write_as_memmapped(path: Path, graph: Graph) -> None:
    """Write a graph as a memory-mapped model without regions, which the original loader takes."""
    body = graph_to_bytes(graph)
    entry = b"\x08\x00" + delimited(2, b"memmapped_package://.") + b"\x18"
    directory = delimited(1, entry + encode_varint(len(body)))
    path.write_bytes(body + directory + struct.pack("<Q", len(body)))
