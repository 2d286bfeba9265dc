"""Kernels of images, sound and text against TensorFlow's own."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from mobileprep.graph.serde import graph_to_bytes
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import run
from tests.ops.lookup.test_tables import filled
from tests.ops.pictures import encoded, text
from tests.ops.strings.test_joining import texts as words
from tests.reference import test_kernels
from tests.reference.cases import images, texts
from tests.reference.cases.base import Case

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("case", [*images.cases(), *texts.cases()], ids=str)
def test_a_kernel_gives_what_tensorflow_gives(case: Case, tf: ModuleType) -> None:
    test_kernels.test_a_kernel_gives_what_tensorflow_gives(case, tf)


def test_the_faster_transform_of_jpeg_is_close(tf: ModuleType) -> None:
    """TensorFlow's default differs from Pillow's decoder by a few of 255."""
    rng = np.random.default_rng(0)
    noise = np.kron(rng.integers(0, 256, (16, 16, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    data = encoded(noise, "JPEG", quality=90)
    theirs = tf.raw_ops.DecodeJpeg(contents=data).numpy().astype(int)
    apart = np.abs(run("DecodeJpeg", text(data)) - theirs)
    assert apart.max() <= 8
    assert apart.mean() <= 1.5


@pytest.mark.parametrize("older", [False, True])
def test_tables_give_what_tensorflow_gives(tf: ModuleType, older: bool) -> None:
    graph = filled(older=older)
    runner = Interpreter(graph)
    runner.run(["fill"], {})
    asked = {"words": words("no", "maybe", "yes")}
    ours = runner.run(["find", "size"], asked)
    with tf.Graph().as_default() as imported:
        definition = tf.compat.v1.GraphDef.FromString(graph_to_bytes(graph))
        tf.import_graph_def(definition, name="")
        with tf.compat.v1.Session(graph=imported) as session:
            session.run(imported.get_operation_by_name("fill"))
            theirs = session.run(["find:0", "size:0"], {"words:0": asked["words"]})
    for mine, reference in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, reference)
