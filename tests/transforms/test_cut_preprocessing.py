"""cut_preprocessing: decoders and the ops after them, recognized and cut."""

import numpy as np
import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.cut_preprocessing.recognition import NoFrontError, find_front, prepared
from tests.transforms.graphs import apply, const, node, placeholder

EXAMPLE_NODES = (
    placeholder("file", DType.STRING),
    node("decoded", "DecodePng", "file", T=None, channels=3, dtype=DType.UINT8),
    node("floats", "Cast", "decoded", T=None, SrcT=DType.UINT8, DstT=DType.FLOAT),
    node("first_layer", "Relu", "floats"),
)
EXAMPLE_INPUTS = ("file",)
EXAMPLE_OUTPUTS = ("first_layer",)

TEXT = placeholder("file", DType.STRING)
JPEG = node("decoded", "DecodeJpeg", "file", T=None, channels=3)
CAST = node("cast", "Cast", "decoded", T=None, SrcT=DType.UINT8, DstT=DType.FLOAT)
BATCH = (const("axis", 0, np.int32), node("batch", "ExpandDims", "cast axis", Tdim=DType.INT32))
SIZE = const("size", [5, 4], np.int32)
OUT = node("out", "Relu", "last")


def _inception(**resize):
    """The front of Inception of 2015."""
    return Graph(
        [
            *(TEXT, JPEG, CAST, *BATCH, SIZE),
            node("resized", "ResizeBilinear", "batch size", **resize),
            const("mean", 128.0),
            node("centered", "Sub", "resized mean"),
            const("scale", 1 / 128),
            node("last", "Mul", "centered scale"),
            OUT,
        ]
    )


def _agrees(graph):
    """Whether the app's arithmetic and the cut graph give the outputs of the whole graph."""
    pixels = np.random.default_rng(3).integers(0, 256, (9, 7, 3), np.uint8)
    (expected,) = Interpreter(graph).run(["out"], {"decoded": pixels})
    front = find_front(graph)
    cut = apply("cut_preprocessing", graph, inputs=["file"]).graph
    values = prepared(front.preprocessing, pixels).astype(front.dtype.numpy)
    feeds = {front.preprocessing.input: values.reshape(expected.shape)}
    (out,) = Interpreter(cut).run(["out"], feeds)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("flags", [{}, {"align_corners": True}, {"half_pixel_centers": True}])
def test_inception_front(flags):
    graph = _inception(**flags)
    front = find_front(graph).preprocessing
    assert (front.resize, front.mean, front.std) == ((5, 4), (128.0,), (128.0,))
    assert front.align_corners == ("align_corners" in flags)
    result = apply("cut_preprocessing", graph, inputs=["file"])
    assert [(n.name, n.op) for n in result.graph] == [("last", "Placeholder"), ("out", "Relu")]
    assert result.graph["last"].attr_shape("shape") == (1, 5, 4, 3)
    assert "bilinear 5 x 4" in result.warnings[0]
    assert "mean 128; std 128" in result.warnings[0]
    _agrees(graph)


def test_nearest_resize_without_cast_stays_uint8():
    graph = Graph(
        [
            *(TEXT, JPEG, const("axis", 0, np.int32), SIZE),
            node("batch", "ExpandDims", "decoded axis", T=DType.UINT8, Tdim=DType.INT32),
            node("last", "ResizeNearestNeighbor", "batch size", T=DType.UINT8),
            node("out", "Cast", "last", T=None, SrcT=DType.UINT8, DstT=DType.INT32),
        ]
    )
    front = find_front(graph)
    assert front.dtype is DType.UINT8
    assert front.preprocessing.interpolation == "nearest"
    _agrees(graph)


def test_reversed_channels_take_their_own_means():
    graph = Graph(
        [
            *(TEXT, JPEG, CAST),
            const("means", [1, 2, 3]),
            node("centered", "Sub", "cast means"),
            const("axes", [2], np.int32),
            node("last", "ReverseV2", "centered axes", Tidx=DType.INT32),
            OUT,
        ]
    )
    front = find_front(graph).preprocessing
    assert (front.channels, front.mean) == ("bgr", (3.0, 2.0, 1.0))
    _agrees(graph)


def _cropped(share, factor=0.5):
    """``tf.image.central_crop`` of an image of unknown size."""
    double = {"T": DType.DOUBLE}
    to_double = {"T": None, "SrcT": DType.INT32, "DstT": DType.DOUBLE}
    to_int = {"T": None, "SrcT": DType.DOUBLE, "DstT": DType.INT32}
    ints = {"T": DType.INT32}
    return Graph(
        [
            *(TEXT, JPEG, CAST),
            node("shape", "Shape", "decoded", T=DType.UINT8, out_type=DType.INT32),
            const("zero", [0], np.int32),
            const("two", [2], np.int32),
            node("sides", "Slice", "shape zero two", **ints, Index=DType.INT32),
            node("wide", "Cast", "sides", **to_double),
            const("share", share, np.float64),
            node("kept", "Mul", "wide share", **double),
            node("rest", "Sub", "wide kept", **double),
            const("half", factor, np.float64),
            node("margin", "Mul", "rest half", **double),
            node("start", "Cast", "margin", **to_int),
            const("twice", 2, np.int32),
            node("margins", "Mul", "start twice", **ints),
            node("extent", "Sub", "sides margins", **ints),
            const("minus", [-1], np.int32),
            const("along", 0, np.int32),
            node("begin", "ConcatV2", "start zero along", **ints, N=2, Tidx=DType.INT32),
            node("size", "ConcatV2", "extent minus along", **ints, N=2, Tidx=DType.INT32),
            node("last", "Slice", "cast begin size", Index=DType.INT32),
            OUT,
        ]
    )


def test_central_crop_is_recognized_by_its_boxes():
    graph = _cropped(0.875)
    assert find_front(graph).preprocessing.central_crop == 0.875
    _agrees(graph)
    assert len(apply("cut_preprocessing", graph, inputs=["file"]).graph.nodes) == 2


def test_control_dependencies_move_to_the_new_input():
    graph = Graph([*_inception(), const("late", 2.0, inputs="^cast"), node("x2", "Neg", "late")])
    cut = apply("cut_preprocessing", graph, inputs=["file"], outputs=["out", "x2"]).graph
    assert [str(ref) for ref in cut["late"].inputs] == ["^last"]


def test_other_crops_stay_in_the_graph():
    front = find_front(_cropped(0.875, factor=0.25))
    assert front.preprocessing.central_crop is None
    assert front.preprocessing.input == "cast"


def test_wav_decoder_becomes_samples_and_rate():
    graph = Graph(
        [
            TEXT,
            node("wav", "DecodeWav", "file", T=None, desired_samples=16000, desired_channels=1),
            node("spectrum", "AudioSpectrogram", "wav", T=None, window_size=480, stride=160),
            node("out", "Mfcc", "spectrum wav:1", T=None),
        ]
    )
    front = find_front(graph)
    assert str(front.preprocessing) == "audio, 16000 samples, 1 channel, -1 to 1"
    cut = apply("cut_preprocessing", graph, inputs=["file"]).graph
    assert cut["wav"].attr_shape("shape") == (16000, 1)
    assert [str(ref) for ref in cut["out"].inputs] == ["spectrum", "wav_sample_rate"]
    assert cut["wav_sample_rate"].attr_dtype("dtype") is DType.INT32


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ([node("other", "Identity", "decoded", T=DType.UINT8)], "several nodes read"),
        ([node("second", "DecodeJpeg", "file", T=None, channels=3)], "2 decoders"),
    ],
)
def test_near_misses_are_not_cut(more, reason):
    graph = Graph([*_inception(), *more])
    with pytest.raises(NoFrontError, match=reason):
        find_front(graph)
    result = apply("cut_preprocessing", graph, inputs=["file"])
    assert result.graph is graph
    assert any(reason in text for text in result.skipped)


def test_random_distortions_are_not_cut():
    hue = node("last", "AdjustHue", "cast", T=None)
    with pytest.raises(NoFrontError, match="at random, for training"):
        find_front(Graph([TEXT, JPEG, CAST, hue, OUT]))


def test_output_before_the_new_input_is_an_error():
    with pytest.raises(TransformError, match="'centered' is before the new input"):
        apply("cut_preprocessing", _inception(), inputs=["file"], outputs=["centered", "out"])


@pytest.mark.parametrize(
    ("name", "values"), [("size", [5]), ("size", []), ("axis", []), ("axis", 1), ("mean", [1, 2])]
)
def test_odd_constants_end_the_cut(name, values):
    kind = np.float32 if name == "mean" else np.int32
    nodes = [const(name, values, kind) if n.name == name else n for n in _inception()]
    before = {"size": "batch", "axis": "cast", "mean": "resized"}[name]
    assert find_front(Graph(nodes)).preprocessing.input == before


def test_ops_without_inputs_end_the_cut():
    nodes = [node("last", "Slice", "centered") if n.name == "last" else n for n in _inception()]
    assert find_front(Graph(nodes)).preprocessing.input == "centered"
    with pytest.raises(NoFrontError, match="does not decode an input"):
        find_front(Graph([node("decoded", "DecodeJpeg", T=None, channels=3)]))
