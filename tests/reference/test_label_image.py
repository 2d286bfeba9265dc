"""``run`` classifies images as the original ``label_image`` does."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mobileprep.cli.main import main
from mobileprep.ops.numerics.image_files import Normalization, load_image
from tests.ops.pictures import encoded

pytestmark = pytest.mark.reference


def original(tf: ModuleType, data: bytes, spec: Normalization, *, kind: str) -> np.ndarray:
    """The input tensor that the graph of label_image computes from an image."""
    decode = {
        "PNG": lambda: tf.io.decode_png(data, channels=3),
        "GIF": lambda: tf.squeeze(tf.io.decode_gif(data)),
        "BMP": lambda: tf.io.decode_bmp(data),
        "JPEG": lambda: tf.io.decode_jpeg(data, channels=3),
        "exact JPEG": lambda: tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"),
    }[kind]
    pixels = tf.expand_dims(tf.cast(decode(), tf.float32), 0)
    size = [spec.height, spec.width]
    resized = tf.compat.v1.image.resize_bilinear(pixels, size)
    return tf.divide(tf.subtract(resized, [spec.mean]), [spec.std]).numpy()


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "exact JPEG"])
def test_input_tensors_are_equal(tf: ModuleType, kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)
    data = encoded(pixels, kind.removeprefix("exact "))
    spec = Normalization(299, 224, 128, 127.5)
    np.testing.assert_array_equal(load_image(data, spec), original(tf, data, spec, kind=kind))


def test_fast_jpeg_decoder_is_close(tf: ModuleType, models: Path) -> None:
    data = (models / "data" / "grace_hopper.jpg").read_bytes()
    spec = Normalization(299, 299)
    distance = np.abs(load_image(data, spec) - original(tf, data, spec, kind="JPEG")) * 255
    assert distance.max() <= 6
    assert distance.mean() <= 1.2


def test_labels_match_tensorflow(
    tf: ModuleType, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = models / "tfjs-nsfwjs-mobilenet-v2" / "nsfwjs-mobilenet-v2.pb"
    photo = models / "data" / "grace_hopper.jpg"
    command = ["run", f"--graph={graph}", f"--image={photo}", "--json", "--top=5"]
    scores = []
    for engine in ("numpy", "tensorflow"):
        assert main([*command, f"--engine={engine}"]) == 0
        [row] = json.loads(capsys.readouterr().out)["top"]
        scores.append([(s["index"], pytest.approx(s["score"], rel=1e-4)) for s in row])
    assert scores[0] == scores[1]
