"""Metadata of .tflite files for the task library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.metadata import (
    ENTRY,
    DescriptionTable,
    description_bytes,
    with_files,
)
from mobileprep.formats.tflite.reader import read_model
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from mobileprep.targets.integration.render import AppTensor, Channels, Images
from mobileprep.targets.litert.build import LABELS, described
from tests.litert.graphs import answered, const, feed, op
from tests.litert.one_op import numbers

CLASSES = ["cat", "dog", "Füchse"]


def classifier() -> Graph:
    """Use the mean colors of an image as scores of three classes."""
    return Graph(
        [
            feed("image", (1, 8, 8, 3)),
            const("axes", [1, 2]),
            op("mean", "Mean", ["image", "axes"], T=DType.FLOAT, Tidx=DType.INT32),
            op("scores", "Softmax", ["mean"], T=DType.FLOAT),
        ]
    )


def table(channels: Channels = "rgb", classes: int = 3) -> DescriptionTable:
    count = 1 if channels == "grayscale" else 3
    image = AppTensor("image", DType.FLOAT, (1, 8, 8, count))
    pictures = Images("image", channels, (127.5,) * count, (127.5,) * count)
    scores = AppTensor("scores", DType.FLOAT, (1, 3))
    return described("animals", [image], [scores], pictures, classes)


def write_model(folder: Path) -> Path:
    record = converted(classifier(), [CutInput("image")], ["scores"])
    entry = (ENTRY, description_bytes(table()))
    content = model_bytes(
        type(record)(**{**structs.asdict(record), "metadata": (*record.metadata, entry)})
    )
    path = folder / "animals.tflite"
    path.write_bytes(with_files(content, {LABELS: "".join(f"{c}\n" for c in CLASSES)}))
    return path


def test_file_is_a_model_and_an_archive(tmp_path: Path) -> None:
    path = write_model(tmp_path)
    assert path.read_bytes() == write_model(tmp_path).read_bytes()
    with zipfile.ZipFile(path) as archive:
        (entry,) = archive.infolist()
        assert (entry.filename, entry.compress_type) == (LABELS, zipfile.ZIP_STORED)
        assert archive.read(LABELS).decode().splitlines() == CLASSES
    model = read_model(path.read_bytes(), str(path))
    assert [name for name, _ in model.metadata] == ["min_runtime_version", ENTRY]
    image = numbers(1, 8, 8, 3)
    (scores,) = answered(path.read_bytes(), [image])
    assert np.isclose(scores.sum(), 1)


def test_bgr_images_are_described_as_plain_tensors() -> None:
    (graph,) = table("bgr").fields["subgraph_metadata"]
    (image,) = graph.fields["input_tensor_metadata"]
    assert image.fields == {"name": "image"}


def test_mismatched_classes_are_not_described() -> None:
    (graph,) = table(classes=4).fields["subgraph_metadata"]
    (scores,) = graph.fields["output_tensor_metadata"]
    assert scores.fields == {"name": "scores"}


def run_task_library(program: str, path: Path) -> str:
    """Run a program that uses the task library and return its output.

    The library needs older packages than TensorFlow: MOBILEPREP_TASK_LIBRARY may name the Python
    of an environment with tflite-support and ``protobuf<4``.
    """
    python = os.environ.get("MOBILEPREP_TASK_LIBRARY", sys.executable)
    environ = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    command = [python, "-c", program, str(path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"tflite-support cannot be imported: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


DISPLAY = """\
import json, sys
from tensorflow_lite_support.metadata.python import metadata
shown = metadata.MetadataDisplayer.with_model_file(sys.argv[1])
names = shown.get_packed_associated_file_list()
files = {name: shown.get_associated_file_buffer(name).decode() for name in names}
print(json.dumps({"files": files, "model": json.loads(shown.get_metadata_json())}))
"""


@pytest.mark.reference
def test_metadata_library_reads_the_description(tmp_path: Path) -> None:
    content = json.loads(run_task_library(DISPLAY, write_model(tmp_path)))
    assert content["files"][LABELS].splitlines() == CLASSES
    model = content["model"]
    assert (model["name"], model["min_parser_version"]) == ("animals", "1.0.0")
    (graph,) = model["subgraph_metadata"]
    (image,) = graph["input_tensor_metadata"]
    assert image["content"]["content_properties_type"] == "ImageProperties"
    assert image["content"]["content_properties"] == {
        "color_space": "RGB",
        "default_size": {"width": 8, "height": 8},
    }
    (unit,) = image["process_units"]
    assert unit["options"] == {"mean": [127.5] * 3, "std": [127.5] * 3}
    assert image["stats"] == {"max": [1.0] * 3, "min": [-1.0] * 3}
    (scores,) = graph["output_tensor_metadata"]
    assert scores["associated_files"] == [{"name": LABELS, "type": "TENSOR_AXIS_LABELS"}]


CLASSIFY = """\
import sys
import numpy as np
from tflite_support.task import core, processor, vision
classifier = vision.ImageClassifier.create_from_file(sys.argv[1])
image = np.zeros((8, 8, 3), np.uint8)
image[..., 1] = 255
result = classifier.classify(vision.TensorImage.create_from_array(image))
print(result.classifications[0].categories[0].category_name)
"""


@pytest.mark.reference
def test_task_library_classifies_images(tmp_path: Path) -> None:
    """The image is green: the second channel, so the second class."""
    assert run_task_library(CLASSIFY, write_model(tmp_path)).strip() == "dog"
