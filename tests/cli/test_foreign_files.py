"""Verbs that read a model report files of other formats with a hint."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.building.stages.jobs import classifier
from tests.cli.conftest import Run
from tests.formats.checkpoint_writer import write_bundle
from tests.transforms.graphs import node

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 1234567\n" % (b"4" * 64)
LFS = "is a Git LFS pointer, not the file itself"
PULL = "run `git lfs pull`"


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")
    return buffer.getvalue()


# The graph, opset import, and metadata of a ModelProto without a producer name.
ONNX = b"\x08\x08:\x04\x0a\x02\x0a\x00B\x02\x10\x0d"
NAMED_ONNX = b"\x08\x07\x12\x05skl2x\x1a\x031.0:\x02\x0a\x00"
KINDS = {
    "pointer.pb": (POINTER, 4, LFS, PULL),
    "m.keras": (
        zipped("metadata.json", "config.json"), 6, "is a Keras model file (.keras)", "model.export("
    ),
    "m.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), 6, "is a Keras model file (HDF5)", "model.export("),
    "plain.onnx": (ONNX, 6, "is an ONNX model", "name the TensorFlow model"),
    "named.onnx": (NAMED_ONNX, 6, "is an ONNX model", "name the TensorFlow model"),
    "m.pb.gz": (gzip.compress(b"a graph"), 6, "is a compressed file (gzip)", "`gunzip`"),
    "m.zip": (zipped("m.pb"), 6, "is a zip archive", "`unzip`"),
}  # fmt: skip
VERBS = (
    "summarize --in_graph={}",
    "freeze --input_graph={} --output_graph=o.pb --output_node_names=y",
    "freeze --input_saved_model_dir={} --output_graph=o.pb",
    "freeze --input_meta_graph={} --output_graph=o.pb",
    "transform --in_graph={} --out_graph=o.pb --outputs=y --transforms=strip_unused_nodes",
    "benchmark --graph={}",
    "run --graph={}",
    "dot --graph={} --dot_output=o.dot",
    "header --graphs={}",
    "memmap --in_graph={} --out_graph=o.pb",
    "check-target {}",
    "migrate {}",
    "tflite --in_graph={} --out_file=o.tflite",
    "diff {} {}",
    "compare {} {}",
    "init {} --recipe=o/recipe.yaml --no-try",
    *(f"{verb} {key}.yaml" for verb in ("validate", "build")
      for key in ("frozen", "meta_graph", "saved_model")),
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("workdir")


def recipe(source: str, more: str = "") -> None:
    text = f"version: 1\nname: t\nsource: {{{source}}}\n{more}targets:\n  a: {{quantize: nodes}}\n"
    Path("recipe.yaml").write_text(text)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", KINDS)
def test_every_verb_names_the_format(run: Run, name: str, verb: str) -> None:
    content, code, what, hint = KINDS[name]
    Path(name).write_bytes(content)
    words = verb.split()
    if words[-1].endswith(".yaml"):
        recipe(f"{words[-1].removesuffix('.yaml')}: {name}")
        words = [words[0], "recipe.yaml"]
    result = run(*(word.replace("{}", name) for word in words))
    assert result.code == code, result.err
    assert what in result.err
    assert hint in result.err


@pytest.mark.parametrize("verb", [v for v in VERBS if not v.startswith(("init", "summ", "dot"))])
def test_every_verb_names_a_directory(run: Run, verb: str) -> None:
    Path("empty").mkdir()
    words = [word.replace("{}", "empty") for word in verb.split()]
    if words[-1].endswith(".yaml"):
        recipe(f"{words[-1].removesuffix('.yaml')}: empty")
        words = [words[0], "recipe.yaml"]
    result = run(*words)
    assert result.code == 4, result.err
    expected = ("is a directory, not a file", "has no saved_model.pb", "is a folder without files")
    assert any(message in result.err for message in expected)


@pytest.mark.parametrize("verb", ["validate", "build"])
@pytest.mark.parametrize("key", ["frozen", "meta_graph"])
def test_saved_model_under_another_key_is_reported_with_the_right_key(
    run: Run, verb: str, key: str
) -> None:
    Path("saved").mkdir()
    Path("saved/saved_model.pb").write_bytes(b"\x08\x01")
    recipe(f"{key}: saved")
    result = run(verb, "recipe.yaml")
    assert result.code == 4
    place = f"recipe.yaml:3:{len('source: {') + len(key) + 3}"
    assert f"{place}: saved is the directory of a SavedModel, not a file" in result.err
    assert "name it as `saved_model:`" in result.err


def with_variable(checkpoint: str) -> str:
    """Write a graph with a variable and a checkpoint; return the keys of a recipe source."""
    variable = Node("v", "VariableV2", attrs={"dtype": attr.dtype(DType.FLOAT)})
    nodes = [
        node("x", "Placeholder", T=None, dtype=DType.FLOAT),
        variable.with_attrs(shape=attr.shape((2,))),
        node("y", "Add", "x v"),
    ]
    write_graph(Path("m.pb"), Graph(nodes))
    write_bundle(Path(checkpoint), {"v": np.zeros(2, np.float32)})
    return f"graph: m.pb, checkpoint: {checkpoint}"


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
@pytest.mark.parametrize("verb", ["validate", "build", "freeze", "init", "init ."])
def test_checkpoint_that_is_an_lfs_pointer_is_refused(run: Run, verb: str, suffix: str) -> None:
    recipe(with_variable("model.ckpt"), "outputs: [y]\n")
    Path(f"model.ckpt{suffix}").write_bytes(POINTER)
    commands = {
        "freeze": "freeze --input_graph=m.pb --input_checkpoint=model.ckpt --output_graph=o.pb "
        "--output_node_names=y",
        "init": "init m.pb --recipe=o/recipe.yaml",
        "init .": "init . --recipe=o/recipe.yaml",
    }
    result = run(*commands.get(verb, f"{verb} recipe.yaml").split())
    assert result.code == 4, result.err
    assert f"model.ckpt{suffix}: {LFS}" in result.err
    assert PULL in result.err


@pytest.mark.parametrize("verb", ["validate", "build"])
@pytest.mark.parametrize("section", ["calibration", "validation", "csv", "labels"])
def test_data_that_is_an_lfs_pointer_is_refused(run: Run, verb: str, section: str) -> None:
    write_graph(Path("m.pb"), classifier())
    Path("d.npz").write_bytes(POINTER)
    Path("samples.csv").write_bytes(POINTER)
    Path("labels.npy").write_bytes(POINTER)
    np.save("x.npy", np.zeros((4, 3), np.float32))
    sections = {
        "calibration": "calibration: {data: d.npz}\n",
        "validation": "validation: {data: d.npz, labels: labels, metric: top1}\n",
        "csv": "validation: {data: {csv: samples.csv}, labels: labels, metric: top1}\n",
        "labels": "validation: {data: {npy: x.npy, labels: labels.npy}, metric: top1}\n",
    }
    ends = "inputs: {x: {dtype: float32, shape: [1, 3]}}\noutputs: [y]\n"
    recipe("frozen: m.pb", ends + sections[section])
    result = run(verb, "recipe.yaml")
    assert result.code == 4, result.err
    assert LFS in result.err
    assert PULL in result.err
