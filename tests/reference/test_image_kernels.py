"""Kernels with state or a special tolerance match TensorFlow."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import run
from tests.ops.lookup.test_tables import filled
from tests.ops.pictures import encoded, text
from tests.ops.strings.test_conversion import texts as words
from tests.reference.newest import session

pytestmark = pytest.mark.reference


def test_fast_jpeg_decoder_is_close(tf: ModuleType) -> None:
    """TensorFlow's default decoder differs from Pillow's by a few levels."""
    rng = np.random.default_rng(0)
    noise = np.kron(rng.integers(0, 256, (16, 16, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    data = encoded(noise, "JPEG", quality=90)
    theirs = tf.raw_ops.DecodeJpeg(contents=data).numpy().astype(int)
    distance = np.abs(run("DecodeJpeg", text(data)) - theirs)
    assert distance.max() <= 8
    assert distance.mean() <= 1.5


@pytest.mark.parametrize("older", [False, True])
def test_tables_match_tensorflow(tf: ModuleType, older: bool) -> None:
    graph = filled(older=older)
    feeds = {"words": words("no", "maybe", "yes")}
    runner = Interpreter(graph)
    runner.run(["fill"], {})
    ours = runner.run(["find", "size"], feeds)
    with session(tf, graph) as opened:
        opened.run("fill")
        theirs = opened.run(["find:0", "size:0"], {"words:0": feeds["words"]})
    for mine, reference in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, reference)
