"""Models that documentation pages use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node
from tests.cli.inception import inception
from tests.freezing.graphs import placeholder as shaped_placeholder
from tests.freezing.saved import write_saved_model
from tests.ops.lookup.test_tables import from_file
from tests.ops.pictures import encoded
from tests.targets.migration.graphs import speech
from tests.targets.test_decoding import speech as decoded_speech
from tests.transforms.graphs import const, conv, node, normal, placeholder
from tests.transforms.test_raise_control_flow import doubling
from tests.transforms.test_replace_detection_postprocess import EXAMPLE_NODES

DETECTION_NAMES = {
    "ssd/image": "image_tensor",
    "ssd/boxes": "detection_boxes",
    "ssd/scores": "detection_scores",
    "ssd/classes": "detection_classes",
    "ssd/count": "num_detections",
}


def detector() -> Graph:
    """A small SSD model with the names that the object detection API uses."""

    def renamed(original: Node) -> Node:
        inputs = (r.renamed(DETECTION_NAMES.get(r.node, r.node)) for r in original.inputs)
        name = DETECTION_NAMES.get(original.name, original.name)
        return replace(original, name=name, inputs=tuple(inputs))

    return Graph(map(renamed, EXAMPLE_NODES))


def _litert() -> None:
    Path("assets").mkdir()
    Path("assets/words.txt").write_text("yes\nno\n")
    words = from_file(Path("words.txt"), key=DType.STRING, value=DType.INT64)
    write_graph(Path("words.pb"), words)
    write_graph(Path("ssd.pb"), detector())
    loop = [placeholder(), *doubling(3), node("y", "Identity", "v/out")]
    write_graph(Path("loop.pb"), Graph(loop))
    write_graph(Path("speech.pb"), speech())


def _run_graphs() -> None:
    write_graph(Path("inception.pb"), inception())
    image = shaped_placeholder("image", -1, 4)
    keep = shaped_placeholder("keep_prob", 1)
    layers = [node("logits", "Mul", "image keep_prob"), node("probabilities", "Softmax", "logits")]
    write_graph(Path("model.pb"), Graph([image, keep, *layers]))
    Path("exported").mkdir()
    write_saved_model(Path("exported"))
    Path("labels.txt").write_text("".join(f"label {i}\n" for i in range(7)))
    Path("photos").mkdir()
    Path("samples").mkdir()
    generator = np.random.default_rng(0)
    for number in range(3):
        pixels = generator.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Path(f"photos/{number}.jpg").write_bytes(encoded(pixels, "JPEG"))
        np.save(f"samples/{number}.npy", generator.random((1, 4), dtype=np.float32))
    Path("photos/0.jpg").rename("photo.jpg")
    Path("samples/0.npy").rename("sample.npy")


def newer_graph() -> Graph:
    """A graph with one example of each cause that keeps an older build from loading it."""
    return Graph(
        [
            placeholder(), placeholder("jpeg", DType.STRING), placeholder("a", DType.INT32),
            const("k", 0, np.int32), const("size", -1, np.int32), const("padding", 0.0),
            node("pixels", "DecodeJpeg", "jpeg", T=None),
            node("pool", "MaxPool", "x", explicit_paddings=(), ksize=(1, 2, 2, 1),
                 strides=(1, 2, 2, 1), padding="SAME"),
            node("row", "Identity", "x"),
            node("matrix", "MatrixDiagV3", "row k size size padding", align="RIGHT_LEFT"),
            node("same", "Equal", "a a", T=DType.INT32),
        ],
        versions=Versions(1200, 12),
    )  # fmt: skip


def _targets() -> None:
    write_graph(Path("newer.pb"), newer_graph())
    pool = newer_graph().by_name["pool"]
    write_graph(Path("pool.pb"), Graph([placeholder(), pool], versions=Versions(1200, 12)))
    write_graph(Path("log.pb"), Graph([placeholder(), node("out", "Xlog1py", "x x")]))
    weights = const("weights", np.ones((100, 100)))
    dense = [placeholder(), weights, node("out", "MatMul", "x weights")]
    write_graph(Path("dense.pb"), Graph(dense))
    scaled = [placeholder(), weights, node("scaled", "Mul", "weights weights")]
    write_graph(Path("scaled.pb"), Graph([*scaled, node("out", "MatMul", "x scaled")]))


def _custom_ops() -> None:
    custom = node("y", "FancyNewOp", "x", T=None)
    write_graph(Path("custom.pb"), Graph([placeholder(), custom]))
    Path("ops").mkdir()
    Path("ops/fancy_new_op.cc").write_text("// REGISTER_OP and REGISTER_KERNEL_BUILDER\n")


def _custom_transforms() -> None:
    slopes = [
        node("mild", "LeakyRelu", "x", alpha=0.25),
        node("out", "LeakyRelu", "mild", alpha=0.75),
    ]
    write_graph(Path("model.pb"), Graph([shaped_placeholder("x", 2, 3), *slopes]))


def _deltas() -> None:
    pytest.importorskip("bsdiff4")


def _cascade() -> None:
    """Face detectors with the window sizes of MTCNN's networks, and four images."""
    scanned = [
        shaped_placeholder("image", -1, -1, -1, 3),
        const("filters", 0.1 * normal(12, 12, 3, 8)),
        conv("features", "image filters", strides=(1, 2, 2, 1), padding="VALID"),
        node("active", "Relu", "features"),
        const("classes", 0.4 * normal(1, 1, 8, 2, seed=1)),
        conv("scores", "active classes"),
        node("prob", "Softmax", "scores"),
    ]
    write_graph(Path("pnet.pb"), Graph(scanned))
    for name, side, filters in (("rnet", 24, 28), ("onet", 48, 32)):
        rest = [
            shaped_placeholder("image", -1, side, side, 3),
            const("filters", normal(5, 5, 3, filters)),
            conv("features", "image filters", strides=(1, 2, 2, 1)),
            node("active", "Relu", "features"),
            const("sides", [1, 2], np.int32),
            node("mean", "Mean", "active sides", Tidx=DType.INT32, keep_dims=False),
            const("classes", normal(filters, 2)),
            node("scores", "MatMul", "mean classes"),
            node("prob", "Softmax", "scores"),
        ]
        write_graph(Path(f"{name}.pb"), Graph(rest))
    np.savez("faces.npz", image=np.random.default_rng(0).random((4, 240, 320, 3), np.float32))


def _photos() -> None:
    front = [
        placeholder("contents", DType.STRING),
        node("decoded", "DecodeJpeg", "contents", T=None, channels=3),
        node("floats", "Cast", "decoded", T=None, SrcT=DType.UINT8, DstT=DType.FLOAT),
        const("axis", 0, np.int32),
        node("batch", "ExpandDims", "floats axis", Tdim=DType.INT32),
        const("size", [5, 4], np.int32),
        node("resized", "ResizeBilinear", "batch size"),
        const("mean", 128.0),
        node("centered", "Sub", "resized mean"),
        const("scale", 1 / 128),
        node("scaled", "Mul", "centered scale"),
        node("scores", "Softmax", "scaled"),
    ]
    write_graph(Path("photos.pb"), Graph(front))
    Path("photo_labels.txt").write_text("red\ngreen\nblue\n")
    write_graph(
        Path("scenes.pb"), Graph([placeholder("image"), node("scores", "Softmax", "image")])
    )


def _decoding() -> None:
    write_graph(Path("speech.pb"), Graph(decoded_speech()))


def _data_sets() -> None:
    """The digits with less contrast, and noise."""
    with np.load("digits/data/test.npz") as test:
        image, label = test["image"], test["label"]
    noise = np.random.default_rng(0).random(image.shape)
    faint = (0.8 * image + 0.2 * noise).astype(np.float32)
    np.savez("digits/data/phone.npz", image=faint, label=label)


SETUPS: dict[str, Callable[[], None]] = {
    "how-to/check-targets": _targets,
    "how-to/convert-to-litert": _litert,
    "how-to/custom-ops": _custom_ops,
    "how-to/custom-transforms": _custom_transforms,
    "how-to/memory-map": _targets,
    "how-to/decode-sequences": _decoding,
    "how-to/move-preprocessing": _photos,
    "how-to/run-a-cascade": _cascade,
    "how-to/run-graphs": _run_graphs,
    "how-to/validate-accuracy": _data_sets,
    "how-to/ship-small-updates": _deltas,
}
