"""Fill the templates of the code that runs a model in an app."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from mobileprep.data.options import Preprocessing
from mobileprep.errors import InvalidGraphError, UnsupportedError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.formats.memmapped import MAGIC
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.refs import parse_ref
from mobileprep.ops.shape_inference import infer_shapes, shape_of
from mobileprep.runtime.sampling.inputs import fed_tensors
from mobileprep.targets.integration import texts
from mobileprep.targets.integration.ctc import Decoding
from mobileprep.targets.integration.templating import environment
from mobileprep.targets.integration.texts import Code

Artifact: TypeAlias = Literal["frozen", "text", "memmapped", "tflite"]
Channels: TypeAlias = Literal["rgb", "bgr", "grayscale"]
_MOST_ELEMENTS: Final = (1 << 31) - 1


class AppTensor(Struct, frozen=True):
    """A tensor that the app feeds or fetches.

    Args:
        name: name in the graph, ``node`` or ``node:1``.
        dtype: dtype of the tensor.
        shape: sizes, with -1 for unknown dimensions; None for an unknown rank.
        integers: dtype of its quantized integers in a .tflite file; None if the file has values of
            ``dtype``. Scale and zero point are read from the file at run time.
    """

    name: str
    dtype: DType
    shape: TensorShape = None
    integers: DType | None = None

    @property
    def count(self) -> int | None:
        """Number of elements; None if it is unknown or exceeds the maximum array size."""
        return _product(self.shape)

    @property
    def row(self) -> int | None:
        """Number of elements per index of an unknown first dimension; otherwise None."""
        if not self.shape or self.shape[0] >= 0:
            return None
        return _product(self.shape[1:]) or None


class Images(Struct, frozen=True):
    """Conversion of an image to values of an input: ``(value - mean) / std``, by channel.

    Args:
        input: name of the input.
        channels: channels in the order of the network.
        mean: mean of each channel.
        std: standard deviation of each channel.
    """

    input: str
    channels: Channels
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Stream(Struct, frozen=True):
    """How a .tflite file runs a stream.

    Args:
        steps: number of time steps of each call.
        states: bytes of each state. The states are the last inputs and outputs of the file.
    """

    steps: int
    states: tuple[int, ...]


class AppModel(Struct, frozen=True, kw_only=True):
    """A model in an app.

    Args:
        file: name of the model file.
        artifact: format of the model file.
        encrypted: whether it is encrypted.
        inputs: the inputs.
        outputs: the outputs.
        init_ops: nodes to run once after loading.
        images: conversion of images to values of an input, if the recipe specifies it.
        labels: name of the file that lists the classes, or None.
        threads: number of threads that compute an op; None for the runtime's default.
        preprocessing: conversion of decoded images or audio to an input, which the code does
            instead of the graph; None if the app does it.
        decoding: CTC decoder of an output, which the code runs instead of the graph, or None.
        ranks: whether to write a function that finds the highest scores.
        stream: how a .tflite file runs a stream; None for whole inputs.
        package: package or namespace, with dots.
        class_name: name of the class.
    """

    file: str
    artifact: Artifact
    encrypted: bool = False
    inputs: tuple[AppTensor, ...]
    outputs: tuple[AppTensor, ...]
    init_ops: tuple[str, ...] = ()
    images: Images | None = None
    labels: str | None = None
    threads: int | None = None
    preprocessing: Preprocessing | None = None
    decoding: Decoding | None = None
    ranks: bool = False
    stream: Stream | None = None
    package: str
    class_name: str


def app_tensors(
    graph: Graph,
    inputs: Iterable[str],
    outputs: Iterable[str],
    declared: Mapping[str, TensorShape],
) -> tuple[tuple[AppTensor, ...], tuple[AppTensor, ...]]:
    """Return the input and output tensors of an app, with their dtypes and shapes.

    Args:
        declared: input shapes from a recipe, by name.
    """
    fed = tuple(
        AppTensor(tensor.name, tensor.dtype, tensor.shape)
        for tensor in fed_tensors(graph, inputs, declared)
    )
    shapes = infer_shapes(graph, {t.name: t.shape for t in fed}, recorded=True)
    fetched = []
    for name in outputs:
        ref = parse_ref(name)
        if ref.node not in graph:
            message = f"the output {name!r} is not in the graph"
            raise InvalidGraphError(message, nearest_hint(ref.node, graph.by_name))
        dtype = tensor_dtype(graph, ref)
        if dtype is None:
            message = f"the type of the output {name!r} is not known"
            raise InvalidGraphError(message, "name a tensor of a known op as the output")
        fetched.append(AppTensor(name, dtype, shape_of(shapes, ref)))
    return fed, tuple(fetched)


def _product(shape: TensorShape) -> int | None:
    if shape is None or any(size < 0 for size in shape):
        return None
    count = math.prod(shape)
    return count if count <= _MOST_ELEMENTS else None


Language: TypeAlias = Literal["java", "kotlin", "cpp", "objc", "swift"]
OF_TENSORFLOW: Final[tuple[Language, ...]] = ("java", "kotlin", "cpp", "objc")
"""Supported languages for TensorFlow."""

OF_LITERT: Final[tuple[Language, ...]] = ("java", "kotlin", "cpp", "swift")
"""Supported languages for LiteRT."""

_FILES: Final[Mapping[Language, tuple[str, ...]]] = {
    "java": ("java/{path}{name}.java",),
    "kotlin": ("kotlin/{path}{name}.kt",),
    "cpp": ("cpp/{name}.h", "cpp/{name}.cc"),
    # Objective-C++ calls the C++ class.
    "objc": ("cpp/{name}.h", "cpp/{name}.cc", "objc/{name}ObjC.h", "objc/{name}ObjC.mm"),
    "swift": ("swift/{name}.swift",),
}
_DECRYPTING: Final[Mapping[Language, tuple[str, ...]]] = {
    "java": ("java/{path}EncryptedModel.java",),
    # Kotlin calls the Java class.
    "kotlin": ("java/{path}EncryptedModel.java",),
    "cpp": ("cpp/EncryptedModel.h", "cpp/EncryptedModel.cc"),
    "objc": ("cpp/EncryptedModel.h", "cpp/EncryptedModel.cc"),
    "swift": ("swift/EncryptedModel.swift",),
}
# Element types of TensorFlowInferenceInterface: in Java and in Kotlin.
_JVM_TYPES: Final = {
    DType.FLOAT: ("float", "FloatArray"),
    DType.DOUBLE: ("double", "DoubleArray"),
    DType.INT32: ("int", "IntArray"),
    DType.INT64: ("long", "LongArray"),
    DType.UINT8: ("byte", "ByteArray"),
}


class LiteType(Struct, frozen=True):
    """Names of an element type in LiteRT's interfaces.

    Args:
        java: element type in Java.
        kotlin: array type in Kotlin.
        swift: element type in Swift.
        cpp: element type in C++.
        buffer: Java buffer class for the elements.
        width: size of an element in bytes.
    """

    java: Code
    kotlin: Code
    swift: Code
    cpp: Code
    buffer: Code
    width: int

    @property
    def element(self) -> Code:
        """Element type in Kotlin."""
        return Code(self.kotlin.removesuffix("Array"))

    @property
    def viewed(self) -> Code:
        """Method call that converts a ByteBuffer to a buffer of the elements."""
        return Code("" if self.buffer == "ByteBuffer" else f".as{self.buffer}()")


def _lite_type(java: str, kotlin: str, swift: str, cpp: str, buffer: str, width: int) -> LiteType:
    return LiteType(Code(java), Code(kotlin), Code(swift), Code(cpp), Code(buffer), width)


# TensorFlowLiteSwift cannot access int8 tensors.
_LITE_TYPES: Final = {
    DType.FLOAT: _lite_type("float", "FloatArray", "Float", "float", "FloatBuffer", 4),
    DType.INT32: _lite_type("int", "IntArray", "Int32", "std::int32_t", "IntBuffer", 4),
    DType.INT64: _lite_type("long", "LongArray", "Int64", "std::int64_t", "LongBuffer", 8),
    DType.UINT8: _lite_type("byte", "ByteArray", "UInt8", "std::uint8_t", "ByteBuffer", 1),
    DType.INT16: _lite_type("short", "ShortArray", "Int16", "std::int16_t", "ShortBuffer", 2),
    DType.INT8: _lite_type("byte", "ByteArray", "Int8", "std::int8_t", "ByteBuffer", 1),
}
_COLORS: Final[Mapping[Channels, tuple[int | None, ...]]] = {
    "rgb": (0, 1, 2),
    "bgr": (2, 1, 0),
    "grayscale": (None,),
}
_IMAGE_TYPES: Final = (DType.FLOAT, DType.UINT8)


class Named(Struct, frozen=True):
    """A tensor with its identifiers in code.

    Args:
        tensor: the tensor.
        words: words of its identifiers.
    """

    tensor: AppTensor
    words: tuple[str, ...]

    @property
    def pascal(self) -> Code:
        """PascalCase, for method names, without the suffix ``input`` or ``output``."""
        return texts.pascal(self.words[:-1])

    @property
    def camel(self) -> Code:
        """Variable name in Java, Kotlin, and Objective-C."""
        return texts.camel(self.words)

    @property
    def snake(self) -> Code:
        """Variable name in C++."""
        return texts.snake(self.words)

    @property
    def upper(self) -> Code:
        """Constant name in Java and Kotlin."""
        return texts.upper(self.words)

    @property
    def java(self) -> Code:
        """Element type in Java."""
        return Code(_JVM_TYPES[self.tensor.dtype][0])

    @property
    def kotlin(self) -> Code:
        """Array type in Kotlin."""
        return Code(_JVM_TYPES[self.tensor.dtype][1])

    @property
    def stored(self) -> DType:
        """Dtype of the elements in the file."""
        return self.tensor.integers or self.tensor.dtype

    @property
    def quantized(self) -> bool:
        """Whether the file has quantized integers, for which the app may use float values."""
        return self.tensor.integers is not None

    @property
    def unsigned(self) -> bool:
        """Whether Java must interpret bytes as 0 to 255."""
        return self.stored is DType.UINT8

    @property
    def open(self) -> bool:
        """Whether the app has to provide a shape."""
        return self.tensor.count is None and self.tensor.row is None

    @property
    def fed(self) -> Code:
        """Noun for the elements in comments."""
        return Code("quantized integers" if self.quantized else "values")

    @property
    def low(self) -> int:
        """Minimum integer of the dtype in the file."""
        return int(np.iinfo(self.stored.numpy).min)

    @property
    def high(self) -> int:
        """Maximum integer of the dtype in the file."""
        return int(np.iinfo(self.stored.numpy).max)

    @property
    def lite(self) -> LiteType:
        """Type of the elements in the file, for LiteRT."""
        return _LITE_TYPES[self.stored]

    @property
    def lite_image(self) -> LiteType:
        """Type of the values of an image, for LiteRT."""
        return _LITE_TYPES[self.tensor.dtype]

    @property
    def cpp(self) -> Code:
        """Element type of an image in C++."""
        return Code("float" if self.tensor.dtype is DType.FLOAT else "tensorflow::uint8")

    @property
    def enum(self) -> Code:
        """Value of ``tensorflow::DataType``."""
        return Code(f"DT_{self.tensor.dtype.name}")


class Channel(Struct, frozen=True):
    """A channel of an image, as the network expects it.

    Args:
        color: index of the color in RGB; None for the luminance.
        mean: mean to subtract.
        std: standard deviation to divide by.
    """

    color: int | None
    mean: float
    std: float

    @property
    def java(self) -> Code:
        """Expression for its value in Java."""
        return self._of_pixel(">>", "&")

    @property
    def kotlin(self) -> Code:
        """Expression for its value in Kotlin."""
        return self._of_pixel("shr", "and")

    @property
    def cpp(self) -> Code:
        """Expression for its value in C++."""
        return Code("luminance" if self.color is None else f"rgb[{self.color}]")

    @property
    def swift(self) -> Code:
        """Expression for its value in Swift."""
        return Code("luminance" if self.color is None else f"Float(rgb[at + {self.color}])")

    @property
    def swift_index(self) -> Code:
        """Expression for its value as an index in Swift."""
        return Code("luminance" if self.color is None else f"Int(rgb[at + {self.color}])")

    def _of_pixel(self, shift: str, mask: str) -> Code:
        """Return the value in an Android pixel, which is ARGB from the highest byte down."""
        if self.color is None:
            return Code("luminance")
        return Code(f"((pixel {shift} {16 - 8 * self.color}) {mask} 0xFF)")


def integration_files(model: AppModel, language: Language) -> tuple[str, ...]:
    """Return the names of the files with a language's code."""
    files = _FILES[language] + (_DECRYPTING[language] if model.encrypted else ())
    path = model.package.replace(".", "/") + "/"
    return tuple(file.format(path=path, name=model.class_name) for file in files)


def integration_code(model: AppModel, language: Language) -> dict[str, str]:
    """Generate the code of a language: file names and contents."""
    _check(model, language)
    variables = _variables(model)
    kind = "lite" if model.artifact == "tflite" else "app"
    return {
        name: environment().get_template(_template(name, kind)).render(variables)
        for name in integration_files(model, language)
    }


def _check(model: AppModel, language: Language) -> None:
    if not model.inputs or not model.outputs:
        message = "code for an app needs the names of the model's inputs and outputs"
        raise UnsupportedError(message, "add 'inputs' and 'outputs' to the recipe")
    if model.artifact == "tflite":
        _check_lite(model, language)
        return
    if language not in OF_TENSORFLOW:
        message = "TensorFlow has no interface in Swift"
        raise UnsupportedError(message, "ask for 'objc', or ship 'artifact: tflite'")
    if language == "cpp":
        return
    for tensor in (*model.inputs, *model.outputs):
        if language == "objc" and tensor.dtype is DType.STRING:
            message = f"Objective-C++ code does not support strings, as {tensor.name!r} has"
            raise UnsupportedError(message, "ask for 'cpp', which takes any tensor")
        if language in ("java", "kotlin") and tensor.dtype not in _JVM_TYPES:
            kind = tensor.dtype.name.lower()
            message = f"TensorFlowInferenceInterface takes no {kind}, as {tensor.name!r} is"
            raise UnsupportedError(message, "ask for 'cpp', which takes any tensor")


def _check_lite(model: AppModel, language: Language) -> None:
    if language not in OF_LITERT:
        message = "no code for LiteRT is here in Objective-C++"
        raise UnsupportedError(message, "ask for 'swift' or 'cpp'")
    for tensor in (*model.inputs, *model.outputs):
        if language == "swift" and DType.INT8 in (tensor.dtype, tensor.integers):
            message = f"TensorFlowLiteSwift cannot access int8 tensors, such as {tensor.name!r}"
            hint = "set 'inference_input_type' and 'inference_output_type' to uint8 or float"
            raise UnsupportedError(message, f"{hint}, or leave 'swift' out")
        if tensor.dtype not in _LITE_TYPES:
            kind = tensor.dtype.name.lower()
            message = f"the code for LiteRT takes no {kind}, as {tensor.name!r} is"
            raise UnsupportedError(message, "cut the model where it has floats or whole numbers")


def _template(name: str, kind: str) -> str:
    """Return the template of a file, chosen by its extension and the runtime."""
    stem, _, end = name.rpartition("/")[2].rpartition(".")
    if stem == "EncryptedModel":
        return f"encrypted.{end}"
    is_objc = stem.endswith("ObjC") and name.startswith("objc/")
    return f"objc.{end}" if is_objc else f"{kind}.{end}"


def _variables(model: AppModel) -> dict[str, object]:
    """Return the variables of the templates."""
    inputs = _named(model.inputs, "input")
    outputs = _named(model.outputs, "output")
    images = model.images
    fed = next((n for n in inputs if images and n.tensor.name == images.input), None)
    if fed is not None and fed.tensor.dtype not in _IMAGE_TYPES:
        fed = None
    return {
        "model": model,
        "package": Code(model.package),
        "namespaces": [Code(name) for name in model.package.split(".")],
        "namespaced": Code("".join(f"{name}::" for name in model.package.split("."))),
        "class_name": Code(model.class_name),
        "guard": texts.upper((*model.package.split("."), model.class_name, "H")),
        "encrypted_guard": texts.upper((*model.package.split("."), "encrypted", "model", "h")),
        "failures": _failures(model),
        "magic": Code(f"{{{', '.join(map(str, MAGIC))}}}"),
        "magic_bytes": list(MAGIC),
        "inputs": inputs,
        "outputs": outputs,
        "steps": _steps(model.stream),
        "fed_count": len(inputs) + _state_count(model.stream),
        "fetched_count": len(outputs) + _state_count(model.stream),
        "buffers": _buffers((*inputs, *outputs)) if model.artifact == "tflite" else [],
        "quantized_inputs": any(named.quantized for named in inputs),
        "quantized_outputs": any(named.quantized for named in outputs),
        "image": fed,
        "image_index": 0 if fed is None else inputs.index(fed),
        "images": images,
        "channels": _channels(images) if images is not None else [],
        **_preprocessing(model, inputs),
        **_decoding(model),
    }


def _state_count(stream: Stream | None) -> int:
    return 0 if stream is None else len(stream.states)


def _steps(stream: Stream | None) -> Code:
    """Return the time steps of a call, for comments."""
    count = 0 if stream is None else stream.steps
    return Code("time step" if count == 1 else f"{count} time steps")


def _preprocessing(model: AppModel, inputs: Sequence[Named]) -> dict[str, object]:
    """Return the variables of the templates for the preprocessing of the model."""
    pre = model.preprocessing
    if pre is None:
        return {"pre": None}
    named = next(n for n in inputs if n.tensor.name == pre.input)
    is_float = named.tensor.dtype is DType.FLOAT
    count = 1 if pre.channels == "grayscale" else 3
    mean, std = (v * count if len(v) == 1 else v for v in (pre.mean, pre.std))
    return {
        "pre": pre,
        "pre_named": named,
        "pre_type": Code("float" if is_float else "std::uint8_t"),
        "pre_java": Code("float" if is_float else "byte"),
        "pre_kotlin": Code("FloatArray" if is_float else "ByteArray"),
        "pre_swift": Code("Float" if is_float else "UInt8"),
        "pre_channels": _channels(Images(pre.input, pre.channels, mean, std)),
        # The values of a bilinear resize are not whole.
        "pre_rounds": not is_float and pre.resize is not None and pre.interpolation == "bilinear",
        "crop": "" if pre.central_crop is None else Code(repr(pre.central_crop)),
    }


def _decoding(model: AppModel) -> dict[str, object]:
    """Return the variables of the templates for the CTC decoder of the model.

    Raises:
        UnsupportedError: the shape of the logits does not have the number of classes.
    """
    ctc = model.decoding
    if ctc is None:
        return {"ctc": None}
    shape = next(t.shape for t in model.outputs if t.name == ctc.logits)
    if shape is None or len(shape) != 3 or shape[2] < 2:
        given = "unknown" if shape is None else list(shape)
        message = f"the shape of {ctc.logits!r} is {given}, not [steps, batch, classes]"
        raise UnsupportedError(message, "give the shapes of 'inputs', so that it is known")
    return {"ctc": ctc, "ctc_classes": shape[2], "ctc_blank": ctc.blank % shape[2]}


def _failures(model: AppModel) -> dict[str, Code]:
    """Return the error constructors in C++ code that decrypts models, and the error type."""
    kinds = ("DataLoss", "Unimplemented", "Internal", "InvalidArgument")
    if model.artifact == "tflite":
        return dict.fromkeys(("type", *kinds), Code("std::string"))
    constructors = {kind: Code(f"tensorflow::errors::{kind}") for kind in kinds}
    return {"type": Code("tensorflow::Status"), **constructors}


def _buffers(tensors: Sequence[Named]) -> list[Code]:
    """Return the Java buffer classes to import, except ByteBuffer."""
    return sorted({named.lite.buffer for named in tensors} - {Code("ByteBuffer")})


def _named(tensors: Sequence[AppTensor], suffix: str) -> list[Named]:
    words = texts.words_of((tensor.name.removesuffix(":0") for tensor in tensors), suffix)
    return [Named(tensor, own) for tensor, own in zip(tensors, words, strict=True)]


def _channels(images: Images) -> list[Channel]:
    return [
        Channel(color, mean, std)
        for color, mean, std in zip(_COLORS[images.channels], images.mean, images.std, strict=True)
    ]
