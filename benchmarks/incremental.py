"""Measure builds of a large model: cold, unchanged, and with one edited parameter.

    python benchmarks/incremental.py [--dvc PATH] [--runs 5] [--only ROW]

The script creates a graph of the size of InceptionV3 (94 convolutions with batch norms, 24M
weights, 96 MB), and a recipe with the documented deployment chain and four targets: 8-bit weights
with a header, rounded weights, plain, and 8-bit weights with obfuscated names in execution order.
Every run is a new process with its cache and outputs in a temporary directory. With ``--dvc``, the
same stages also run under dvc as commands that copy files of the same size, and an unchanged
``dvc repro`` is timed alternately with an unchanged build.

The last rows build 50 recipes with four small targets each, and simulate a second machine with an
empty local cache and a filled remote cache on loopback, served by nginx if it is installed.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import http.server
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measure import Measured, measure, mobileprep, set_aside, take_memory

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor

LAYERS = 94
CHANNELS = 168
KERNEL = 3
SEED = 7
# More than a cold build writes and allocates.
NEEDED = 1 << 30

RECIPE = """\
version: 1
name: {name}
source: {{frozen: model.pb}}
inputs: {{input: {{dtype: float32, shape: [1, 16, 16, {channels}]}}}}
outputs: [output]
transforms:
  - strip_unused_nodes
  - remove_nodes: {{op: [Identity, CheckNumerics]}}
  - fold_constants: {{ignore_errors: true}}
  - fold_batch_norms
  - fold_old_batch_norms
targets:
  eight-bit:
    platform: android
    abis: [arm64-v8a]
    quantize: weights
    registration: {{tensorflow: "1.15"}}
  rounded:
    platform: ios
    quantize: {{mode: round, num_steps: 256}}
  plain: {{platform: linux}}
  obfuscated:
    platform: raspberry-pi
    quantize: weights
    obfuscate: true
    sort: true
"""
NGINX_FOLDERS = ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
EDIT = ("num_steps: 256", "num_steps: 128")


@dataclass(frozen=True)
class Workplace:
    """A directory with recipes, a cache, and an output directory.

    Args:
        folder: path of the directory.
        recipes: recipe files below it.
    """

    folder: Path
    recipes: tuple[Path, ...]

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def build(self, *flags: str, runs: int = 1, env: Mapping[str, str] | None = None) -> Measured:
        names = [str(path) for path in self.recipes]
        command = [mobileprep(), "build", *names, "--out", str(self.out), *flags]
        given = {"MOBILEPREP_CACHE": str(self.store), "MOBILEPREP_REMOTE_CACHE": "", **(env or {})}
        return measure(command, runs=runs, env=given)

    def build_large(self, *, env: Mapping[str, str] | None = None) -> Measured:
        """Measure a build that writes large files, after making free memory available."""
        take_memory(self.folder, NEEDED)
        return self.build(env=env)

    def start_over(self) -> None:
        for folder in (self.out, self.store):
            set_aside(folder, self.folder / "aside")


def network(layers: int, channels: int) -> Graph:
    """Create convolutions with batch norms; as in frozen graphs, constants feed an Identity."""
    rng = np.random.default_rng(SEED)
    shape = attr.shape((-1, 16, 16, channels))
    nodes = [_node("input", "Placeholder", dtype=DType.FLOAT, shape=shape)]
    source = "input"
    for number in range(layers):
        nodes += _layer(f"layer_{number}", source, channels, rng)
        source = nodes[-1].name
    return Graph([*nodes, _node("output", "Identity", source, T=DType.FLOAT)])


def _layer(name: str, source: str, channels: int, rng: np.random.Generator) -> Iterator[Node]:
    weights = rng.standard_normal((KERNEL, KERNEL, channels, channels)) * 0.05
    values = {"weights": weights, "gamma": np.ones(channels), "beta": np.zeros(channels)}
    values |= {"mean": rng.standard_normal(channels), "variance": rng.random(channels) + 0.5}
    for part, value in values.items():
        yield constant(f"{name}/{part}", Tensor.of(value.astype(np.float32)))
        yield _node(f"{name}/{part}/read", "Identity", f"{name}/{part}", T=DType.FLOAT)
    kept = {"T": DType.FLOAT, "strides": attr.integers(1, 1, 1, 1), "padding": attr.string("SAME")}
    yield _node(f"{name}/conv", "Conv2D", source, f"{name}/weights/read", **kept)
    norms = [f"{name}/{part}/read" for part in ("gamma", "beta", "mean", "variance")]
    facts = {"T": DType.FLOAT, "epsilon": attr.floating(0.001), "is_training": attr.boolean(False)}
    yield _node(f"{name}/norm", "FusedBatchNorm", f"{name}/conv", *norms, **facts)
    yield _node(f"{name}/relu", "Relu", f"{name}/norm", T=DType.FLOAT)


def _node(name: str, op: str, *inputs: str, **attrs: attr.AttrValue | DType) -> Node:
    values = {k: attr.dtype(v) if isinstance(v, DType) else v for k, v in attrs.items()}
    return Node(name, op, tuple(parse_ref(text) for text in inputs), attrs=values)


def workplace(folder: Path, count: int, layers: int, channels: int) -> Workplace:
    """Create a directory with ``count`` recipes of the same size."""
    recipes = []
    data = network(layers, channels)
    for number in range(count):
        place = folder / "recipes" / f"model-{number:02d}"
        place.mkdir(parents=True)
        write_graph(place / "model.pb", data)
        (place / "recipe.yaml").write_text(RECIPE.format(name=place.name, channels=channels))
        recipes.append(place / "recipe.yaml")
    return Workplace(folder, tuple(recipes))


def published(out: Path) -> list[Path]:
    return sorted(path for path in out.rglob("*") if path.is_file())


def read_hash_write(paths: Sequence[Path], target: Path) -> float:
    """Return the seconds to read, hash, and write files once."""
    target.mkdir()
    started = time.perf_counter()
    for number, path in enumerate(paths):
        data = path.read_bytes()
        hashlib.sha256(data).hexdigest()
        (target / str(number)).write_bytes(data)
    took = time.perf_counter() - started
    shutil.rmtree(target)
    return took


def hash_once(paths: Sequence[Path]) -> float:
    """Return the seconds to hash files with SHA-256."""
    started = time.perf_counter()
    for path in paths:
        with path.open("rb") as stream:
            hashlib.file_digest(stream, "sha256")
    return time.perf_counter() - started


def distinct_bytes(paths: Sequence[Path]) -> int:
    """Return the total size of files, counting files with equal content once."""
    return sum({hashlib.sha256(p.read_bytes()).digest(): p.stat().st_size for p in paths}.values())


def row(what: str, found: str, bound: str) -> None:
    print(f"{what:<44} {found:<42} {bound}", flush=True)


def one_model(folder: Path, runs: int, dvc: str) -> None:
    place = workplace(folder, 1, LAYERS, CHANNELS)
    model = place.recipes[0].with_name("model.pb")
    size = model.stat().st_size
    print(f"the model: {size:,} bytes")
    cold, floors = [], []
    for _ in range(runs):
        place.start_over()
        cold.append(place.build_large())
        take_memory(folder, NEEDED)
        floors.append(read_hash_write(published(place.out), folder / "copy"))
    took, floor = statistics.median(m.best for m in cold), statistics.median(floors)
    row("cold build", f"{took:.2f} s, {took / floor:.1f} of {floor:.2f} s", "4 s, 3 times reading")
    peak = max(m.peak for m in cold)
    row("peak memory, cold", f"{peak / 1e6:.0f} MB, {peak / size:.2f} times the model", "3 times")
    stored = sum(path.stat().st_size for path in published(place.store))
    share = stored / distinct_bytes(published(place.out))
    row("store after cold build", f"{stored / 1e6:.0f} MB, {share:.2f} of the published", "1.6")
    nothing_changed(place, runs, dvc)
    everything = [model, *published(place.out)]
    pairs = [(place.build("--checksum").best, hash_once(everything)) for _ in range(runs)]
    ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    row(
        "--checksum, nothing changed",
        f"{ours:.2f} s, {ours / bare:.2f} of {bare:.2f} s",
        "1.2 times",
    )
    edited(place, runs)
    second_machine(place, runs, took)


def nothing_changed(place: Workplace, runs: int, dvc: str) -> None:
    place.build()
    if not dvc:
        idle = place.build(runs=2 * runs + 1)
        row("nothing changed", f"{idle.median:.3f} s", "0.25 s")
        return
    project = dvc_project(place, dvc)
    pairs = []
    for _ in range(runs):
        ours = place.build().best
        theirs = measure([dvc, "--cd", str(project), "repro", "--quiet"], runs=1).best
        pairs.append((ours, theirs))
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    row(
        "nothing changed",
        f"{ours:.3f} s, {ours / theirs:.2f} of dvc's {theirs:.2f} s",
        "0.25 s, 0.5",
    )


def dvc_project(place: Workplace, dvc: str) -> Path:
    """Create a dvc project whose stages copy files of the same size, and run it once."""
    project = place.folder / "dvc"
    project.mkdir()
    model = place.recipes[0].with_name("model.pb")
    shutil.copy(model, project / "model.pb")
    sizes = {p.parent.name: p for p in published(place.out) if p.suffix == ".pb"}
    for name, path in sizes.items():
        shutil.copy(path, project / f"{name}.in")
    stages: dict[str, object] = {}
    before = "model.pb"
    for step in ("freeze", "strip", "remove", "constants", "norms", "old_norms"):
        stages[step] = _dvc_stage(f"cp {before} {step}.pb", before, f"{step}.pb")
        before = f"{step}.pb"
    for name in sizes:
        stages[name] = _dvc_stage(f"cp {name}.in {name}.pb", before, f"{name}.pb")
    (project / "dvc.yaml").write_text(json.dumps({"stages": stages}))
    for words in (["init", "--no-scm", "--quiet"], ["repro", "--quiet"]):
        subprocess.run([dvc, *words], cwd=project, check=True)
    return project


def _dvc_stage(command: str, dependency: str, output: str) -> dict[str, object]:
    return {"cmd": command, "deps": [dependency], "outs": [output]}


def edited(place: Workplace, runs: int) -> None:
    recipe = place.recipes[0]
    original = recipe.read_text()
    seconds = []
    for number in range(runs):
        # Use a new number each time, because earlier builds are cached.
        recipe.write_text(original.replace(EDIT[0], f"num_steps: {128 + number}"))
        seconds.append(place.build_large().best)
    recipe.write_text(original)
    row(
        "one parameter of the last transform edited", f"{statistics.median(seconds):.2f} s", "0.8 s"
    )


def second_machine(place: Workplace, runs: int, cold: float) -> None:
    server = nginx() or ""
    with remote_store(place.folder / "remote", server) as address:
        env = {"MOBILEPREP_REMOTE_CACHE": address}
        place.start_over()
        place.build(env=env)
        warm = []
        for _ in range(runs):
            place.start_over()
            warm.append(place.build_large(env=env).best)
    took = statistics.median(warm)
    what = f"second machine, warm remote ({Path(server).name or 'Python'})"
    row(what, f"{took:.2f} s, {took / cold:.2f} of cold", "0.4 of cold")


def nginx() -> str | None:
    """Return the path of nginx, or None; Debian installs it outside of the PATH of users."""
    return shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


@contextmanager
def remote_store(folder: Path, server: str) -> Iterator[str]:
    """Serve a remote cache over HTTP on loopback, with nginx or else Python's server.

    Python's server competes with the build for a CPU.
    """
    folder.mkdir()
    with _nginx_store(folder, server) if server else _python_store(folder) as address:
        yield address


@contextmanager
def _nginx_store(folder: Path, server: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    own, data = folder / "server", folder / "data"
    own.mkdir()
    data.mkdir()
    places = "".join(f"{name}_temp_path {own / name};" for name in NGINX_FOLDERS)
    config = own / "nginx.conf"
    config.write_text(
        f"daemon off; master_process off; pid {own}/pid; events {{}}\n"
        f"http {{ access_log off; {places} sendfile on; client_max_body_size 0;\n"
        f"server {{ listen 127.0.0.1:{port}; root {data}; dav_methods PUT;"
        " create_full_put_path on; }\n}\n"
    )
    command = [server, "-p", str(own), "-c", str(config), "-e", str(own / "log"), "-g", ""]
    process = subprocess.Popen(command)
    try:
        time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _python_store(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Files, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Files(http.server.SimpleHTTPRequestHandler):
    """Request handler for a directory that also accepts uploads."""

    protocol_version = "HTTP/1.1"
    # Otherwise the body is delayed by 40 ms, until the client has acknowledged the headers.
    disable_nagle_algorithm = True

    def do_PUT(self) -> None:
        target = Path(self.translate_path(self.path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


def many_recipes(folder: Path, runs: int) -> None:
    place = workplace(folder, 50, 3, 12)
    place.build()
    place.build()
    idle = place.build(runs=runs)
    row("50 recipes times 4 targets, nothing changed", f"{idle.median:.2f} s", "1.5 s")


ROWS: Mapping[str, Callable[[Path, argparse.Namespace], None]] = {
    "model": lambda folder, args: one_model(folder, args.runs, args.dvc),
    "recipes": lambda folder, args: many_recipes(folder, args.runs),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--dvc", default=shutil.which("dvc") or "", help="the dvc command")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=ROWS)
    args = parser.parse_args()
    row("what", "found", "goal")
    for name, measured in ROWS.items():
        if args.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                measured(Path(folder), args)


if __name__ == "__main__":
    main()
