"""Validation and check run the packaged bytes: one changed weight fails the build."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.pipeline import execute
from mobileprep.building.stages.base import Job, StageFunction, stage_function
from mobileprep.core.keys import key_from_environment
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.tflite.reader import read_model
from mobileprep.graph.files import parse_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.targets.memmapped import decrypt, encrypt
from tests.building.stages.jobs import op, placeholder
from tests.cli.conftest import Run

# Constants of 4,096 bytes and more are mapped into memory.
WEIGHTS = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {dtype: float32, shape: [-1, 64]}}
outputs: [y]
transforms: [remove_no_ops]
calibration: {data: data.npz, method: min_max}
SECTION
targets:
  phone: {TARGET}
"""
SECTIONS = {
    "validation": "validation: {data: data.npz, metric: peak_agreement, max_drop: 0.02}",
    "check": "check: {data: data.npz, samples: 32, max_difference: 0.02}",
}
Change = Callable[[bytes], bytes]


def float_weight(data: bytes) -> bytes:
    """Change one float32 weight in the bytes of a file."""
    old = WEIGHTS[3, 5].tobytes()
    assert data.count(old) == 1
    return data.replace(old, np.float32(100).tobytes())


def int8_weight(data: bytes) -> bytes:
    """Negate one large int8 weight of a .tflite file."""
    model = read_model(data, "r.tflite")
    stored = [t for part in model.subgraphs for t in part.tensors if t.type == "INT8" and t.buffer]
    content = max((bytes(model.buffers[t.buffer]) for t in stored), key=len)
    assert data.count(content) == 1
    values = np.frombuffer(content, np.int8).copy()
    at = int(np.argmax(np.abs(values.astype(np.int16))))
    values[at] = -values[at]
    return data.replace(content, values.tobytes())


def text_weight(data: bytes) -> bytes:
    """Change one weight of a text GraphDef."""
    graph = parse_graph(data, "r.pbtxt")
    changed = np.array(WEIGHTS)
    changed[3, 5] = 100
    nodes = [constant(n.name, Tensor.of(changed)) if n.name == "w" else n for n in graph]
    path = Path("changed.pbtxt")
    write_graph(path, Graph(nodes), as_text=True)
    return path.read_bytes()


def encrypted_weight(data: bytes) -> bytes:
    """Change one weight of an encrypted model, and encrypt it again with the same key."""
    return reencrypted(data, float_weight)


def encrypted_int8_weight(data: bytes) -> bytes:
    """Negate one large int8 weight of an encrypted .tflite file."""
    return reencrypted(data, int8_weight)


def reencrypted(data: bytes, change: Change) -> bytes:
    """Change the content of an encrypted file, and encrypt it again with the same key."""
    key = key_from_environment("MODEL_KEY")
    return encrypt(change(decrypt(data, key, "r.enc")), key)


KINDS: dict[str, tuple[str, str, Change, str]] = {
    "frozen": ("artifact: frozen", "r.pb", float_weight, "r.pb (numpy)"),
    "text": ("artifact: text", "r.pbtxt", text_weight, "r.pbtxt (numpy)"),
    "memmapped": (
        *("artifact: memmapped", "r.pb"),
        *(float_weight, "r.pb, memory-mapped (numpy)"),
    ),
    "obfuscated": ("obfuscate: true", "r.pb", float_weight, "r.pb (numpy)"),
    "encrypted": (
        *("protect: {encrypt: {key: env:MODEL_KEY}}", "r.pb.enc"),
        *(encrypted_weight, "r.pb.enc, decrypted (numpy)"),
    ),
    "tflite float": ("artifact: tflite", "r.tflite", float_weight, "r.tflite (litert "),
    "tflite int8": (
        *("artifact: tflite, quantize: int8", "r.tflite"),
        *(int8_weight, "r.tflite (litert "),
    ),
    "tflite encrypted": (
        *("artifact: tflite, protect: {encrypt: {key: env:MODEL_KEY}}", "r.tflite.enc"),
        *(encrypted_weight, "r.tflite.enc, decrypted (litert "),
    ),
    "tflite int8 encrypted": (
        "artifact: tflite, quantize: int8, protect: {encrypt: {key: env:MODEL_KEY}}",
        *("r.tflite.enc", encrypted_int8_weight, "r.tflite.enc, decrypted (litert "),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of artifact that installed packages can run."""
    if request.param.startswith("tflite"):
        pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    if request.param.endswith("encrypted"):
        pytest.importorskip("cryptography")
    return str(request.param)


@pytest.fixture(autouse=True)
def _folder(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", "5a" * 32)
    nodes = [
        placeholder((-1, 64)),
        constant("w", Tensor.of(WEIGHTS)),
        constant("b", Tensor.of(np.arange(32, dtype=np.float32))),
        op("product", "MatMul", "x", "w"),
        op("y", "BiasAdd", "product", "b"),
    ]
    write_graph(Path("model.pb"), Graph(nodes))
    samples = np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)
    write_arrays(Path("data.npz"), {"x": samples})


def written(section: str, target: str) -> Path:
    path = Path("recipe.yaml")
    path.write_text(RECIPE.replace("SECTION", section).replace("TARGET", target))
    return path


def change_file(monkeypatch: pytest.MonkeyPatch, file: str, change: Change) -> None:
    """Change the packaged file as soon as its stage has written it."""

    def changed(name: str) -> StageFunction:
        function = stage_function(name)
        output = f"files/{file}"

        def run(job: Job[Any]) -> None:
            function(job)
            if output not in job.asked.output_files:
                return
            exchange: Any = job.exchange
            stored = exchange.left.pop(output, None)
            path = job.output(output)
            data = path.read_bytes() if stored is None else b"".join(exchange._store.pieces(stored))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(change(data))

        return run

    monkeypatch.setattr(execute, "stage_function", changed)


@pytest.mark.parametrize("section", SECTIONS)
def test_changed_weight_in_the_packaged_file_fails_the_build(
    kind: str, section: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, file, change, basis = KINDS[kind]
    recipe = written(SECTIONS[section], target)
    built = run("build", recipe)
    assert built.code == 0, built.err
    assert f"measured on {basis}" in built.out
    report = json.loads(Path("out/r/phone/report.json").read_text("utf-8"))
    result = report["accuracy"] if section == "validation" else report["check"]["model"]
    assert result["basis"].startswith(f"measured on {basis}")

    change_file(monkeypatch, file, change)
    failed = run("build", recipe, "--force")
    assert failed.code == 8, failed.err
    assert file in failed.err


@pytest.mark.parametrize("kind", ["encrypted", "tflite encrypted"], indirect=True)
def test_tampered_encrypted_file_is_refused(
    kind: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, file, _, _ = KINDS[kind]
    change_file(monkeypatch, file, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    failed = run("build", written(SECTIONS["check"], target))
    assert failed.code == 4
    assert "was changed after it was encrypted" in failed.err


@pytest.mark.parametrize("section", SECTIONS)
def test_tflite_file_that_cannot_run_fails_the_build(section: str, run: Run) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    write_graph(Path("model.pb"), Graph([placeholder((-1, 64)), op("y", "Digamma", "x")]))
    failed = run("build", written(SECTIONS[section], "artifact: tflite, flex: true"))
    assert failed.code == 6
    assert ": r.tflite: LiteRT cannot run the file: " in failed.err
    assert "it needs the Flex delegate" in failed.err
    assert f"or write 'engine: graph' in '{section}'" in failed.err
