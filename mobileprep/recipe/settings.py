"""Sections of a recipe whose keys are options, from which the schema is generated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

from mobileprep.core.declare import Located, Option
from mobileprep.data.options import DataKind, Reading

SourceKind: TypeAlias = Literal["frozen", "graph", "meta_graph", "saved_model"]
Abi: TypeAlias = Literal["arm64-v8a", "armeabi-v7a", "x86", "x86_64", "arm64", "armhf", "aarch64"]
Platform: TypeAlias = Literal["android", "ios", "raspberry-pi", "linux", "generic"]
DetectionPostprocess: TypeAlias = Literal["keep", "auto"]
Artifact: TypeAlias = Literal["frozen", "text", "memmapped", "tflite"]
CacheMode: TypeAlias = Literal["read-write", "read-only"]
Engine: TypeAlias = Literal["auto", "litert", "numpy", "openvino", "tensorflow"]
ABIS: Final[Mapping[Platform, tuple[Abi, ...]]] = {
    "android": ("arm64-v8a", "armeabi-v7a", "x86", "x86_64"),
    "ios": ("arm64", "x86_64"),
    "raspberry-pi": ("armhf", "aarch64"),
}
"""The ABIs of each platform."""
CACHE_MODES: Final[tuple[CacheMode, ...]] = get_args(CacheMode)
SIGN_IN: Final = re.compile(r"\A(?:[^/]*@|[^/:\[]*:(?!\d*/).*@)")
"""Part of an address after its scheme that has credentials.

A secret can contain a slash, which otherwise ends the host: the text after the colon is then not a
port.
"""
ELEMENT_TYPES: Final = (
    *("float32", "float64", "float16", "bfloat16"),
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *("bool", "string", "complex64", "complex128"),
    *("qint8", "quint8", "qint16", "quint16", "qint32"),
)
SampleCount: TypeAlias = Annotated[
    int | None,
    Option(
        "Number of samples, evenly spread over the data. Default: all.",
        minimum=1,
        maximum=1_000_000_000,
    ),
]
SampleSeed: TypeAlias = Annotated[
    int | None,
    Option(
        "Seed for drawing one sample from each of as many equal parts of the data. Default: the "
        "first of each part.",
        minimum=0,
        maximum=4294967295,
    ),
]
StrictSamples: TypeAlias = Annotated[
    bool,
    Option("Whether an unreadable sample fails the build; otherwise it is skipped with a warning."),
]


class InputFile(Located, frozen=True):
    """A file or directory that a recipe names.

    Args:
        name: the name in a plan, with ``/``; the same on every machine.
        path: path of the file; the prefix of a checkpoint.
        place: location of the name in the recipe, ``file:line:column``.
        written: the name in the recipe if it differs from ``name``.
    """

    name: str
    path: Path
    place: str = ""
    written: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"path", "place", "written"})

    @property
    def shown(self) -> str:
        """The name for messages, as written in the recipe."""
        return self.written or self.name


class Pin(Struct, frozen=True):
    """The expected digest of a file.

    Args:
        file: the file.
        sha256: 64 lowercase hexadecimal digits.
    """

    file: InputFile
    sha256: str


# Sharded checkpoints of the first format: ``m-?????-of-00004``.
EVERY_SHARD: Final = "-?????-of-"


class Source(Struct, frozen=True):
    """A trained model.

    Args:
        kind: format of ``file``.
        file: the graph, MetaGraph, or SavedModel directory.
        pins: expected digests, sorted by name.
    """

    kind: SourceKind
    file: InputFile
    checkpoint: Annotated[
        InputFile | None,
        Option(
            "Prefix of the checkpoint with the variables, such as `model.ckpt-1000`.",
            definition="path",
        ),
    ] = None
    tags: Annotated[
        tuple[str, ...],
        Option(
            "Tags of the MetaGraph in a SavedModel. Default: `serve`.",
            min_length=1,
            min_items=1,
            unique=True,
        ),
    ] = ()
    signature: Annotated[
        str | None,
        Option(
            "Signature of a SavedModel or MetaGraph that names inputs and outputs.",
            min_length=1,
        ),
    ] = None
    saver: Annotated[
        InputFile | None,
        Option(
            "A SaverDef, binary or text, that names the restore op. Default: the saver of the "
            "model.",
            definition="path",
        ),
    ] = None
    pins: tuple[Pin, ...] = ()
    assets: Annotated[
        InputFile | None,
        Option(
            "A file that the graph reads, such as a vocabulary, or a directory of such files. "
            "Files are found by name. SavedModels and MetaGraphs have their own in `assets/`.",
            definition="path",
        ),
    ] = None

    @property
    def names_checkpoint(self) -> bool:
        """Whether the recipe names the checkpoint; otherwise it is the one next to a MetaGraph."""
        return self.checkpoint is not None and self.checkpoint.place != self.file.place


class InputSpec(Struct, frozen=True):
    """A tensor that the app feeds.

    Args:
        name: name in the graph, ``node`` or ``node:0``.
    """

    name: str
    dtype: Annotated[str | None, Option("The element type.", choices=ELEMENT_TYPES)] = None
    shape: Annotated[
        tuple[int, ...] | None,
        Option(
            "Sizes of the dimensions; -1 for an open dimension.",
            minimum=-1,
            maximum=2147483647,
            max_items=254,
        ),
    ] = None


class Data(Struct, frozen=True):
    """Samples for calibration, validation, or checks; see ``recipe/data.py``.

    Args:
        file: the file or directory.
        kind: format of the data; None to detect it.
        reading: how to convert the data to samples.
        labels: separate file of labels, or None.
        classes: file with the names of the classes, or None.
        files: other files that a generator reads.
    """

    file: InputFile
    kind: DataKind | None = None
    reading: Reading = field(default_factory=Reading)
    labels: InputFile | None = None
    classes: InputFile | None = None
    files: tuple[InputFile, ...] = ()

    @property
    def beside(self) -> tuple[InputFile, ...]:
        """The files besides ``file``."""
        return (*filter(None, (self.labels, self.classes)), *self.files)

    @property
    def names_labels(self) -> bool:
        """Whether the recipe names the labels, so that they are required."""
        return self.labels is not None or self.reading.labels is not None


class Check(Struct, frozen=True):
    """How to compare the model with the source after each transform and after packaging."""

    data: Annotated[
        Data | None,
        Option(
            "Samples: a file, a directory, or a mapping. Default: those of the validation, or "
            "random samples.",
            definition="data",
        ),
    ] = None
    samples: Annotated[
        int,
        Option(
            "Number of samples, evenly spread over the data.",
            minimum=1,
            maximum=10000,
        ),
    ] = 8
    max_difference: Annotated[
        float | None,
        Option(
            "Largest permitted difference of any output, as a share of the largest magnitude of "
            "that output in the source: 0.01 is one percent. Default: the difference is reported,"
            " and only NaN, infinity, and other shapes fail.",
            minimum=0,
        ),
    ] = None
    engine: Annotated[
        Literal["litert", "graph"] | None,
        Option(
            "How a packaged `.tflite` file is checked: the file with LiteRT's interpreter "
            "(`litert`, the default, `pip install 'mobileprep[litert]'`), or the graph before "
            "conversion (`graph`). Only with `artifact: tflite`."
        ),
    ] = None


class Download(Struct, frozen=True):
    """The installed model that a target updates."""

    previous: Annotated[
        InputFile,
        Option(
            "The installed model, of the same kind as the target's `artifact`. The build writes "
            "the delta from it, `download/<model>.delta`. Required.",
            definition="path",
        ),
    ]
    tolerance: Annotated[
        float,
        Option(
            "Largest difference between a weight and the installed one that is not shipped, in "
            "steps of quantization, as in `align_with_previous`. 0 ships every change. Only for "
            "weights that `quantize` rounds or stores in at most 8 bits.",
            minimum=0,
            maximum=16,
        ),
    ] = 0.5


class OpLimits(Struct, frozen=True):
    """Permitted ops of a model."""

    allow: Annotated[
        tuple[str, ...],
        Option("The ops that the model may have, and no others.", definition="op", min_items=1),
    ] = ()
    forbid: Annotated[
        tuple[str, ...],
        Option("Ops that the model may not have.", definition="op", min_items=1),
    ] = ()


class LiteRT(Struct, frozen=True):
    """Conversion of a target's graph to a .tflite file."""

    detection_postprocess: Annotated[
        DetectionPostprocess,
        Option(
            "`auto` replaces the post-processing of an SSD model from TensorFlow's object "
            "detection API with the operator TFLite_Detection_PostProcess "
            "(`replace_detection_postprocess` after the chain); `keep` converts it unchanged."
        ),
    ] = "keep"
    min_runtime: Annotated[
        str,
        Option(
            'Oldest release of TensorFlow Lite that must run the file, such as `"2.14"`. The '
            "build fails if a node needs a later release. Default: the file declares the release "
            "that it needs.",
            definition="release",
        ),
    ] = ""


class Streaming(Struct, frozen=True):
    """How a .tflite file runs a stream, a few time steps at a time."""

    steps: Annotated[
        int, Option("Number of time steps of each call.", minimum=1, maximum=1_000_000)
    ] = 1


class Budget(Struct, frozen=True):
    """Limits of a target; None for no limit."""

    model_bytes: Annotated[
        int | None,
        Option("Largest size of the model file.", definition="size"),
    ] = None
    compressed_bytes: Annotated[
        int | None,
        Option(
            "Largest compressed size of the model file, with zlib's level 1.",
            definition="size",
        ),
    ] = None
    download_bytes: Annotated[
        int | None,
        Option("Largest size of the delta of `download`.", definition="size"),
    ] = None
    parameters: Annotated[
        int | None,
        Option("Largest number of parameters: elements of all constants.", minimum=0),
    ] = None
    flops: Annotated[
        int | None,
        Option(
            "Largest number of operations for one sample, as `mobileprep benchmark --show_flops` "
            "counts them.",
            definition="flops",
        ),
    ] = None
    activation_bytes: Annotated[
        int | None,
        Option(
            "Largest peak memory of tensors for one sample, without constants.",
            definition="size",
        ),
    ] = None
    ram: Annotated[
        int | None,
        Option(
            "Largest memory of the model while it is loaded and while one sample runs, estimated "
            "for the target's `artifact` ([RAM](../how-to/set-budgets.md#limit-ram)).",
            definition="size",
        ),
    ] = None
    latency_ms: Annotated[
        float | None,
        Option(
            "Longest time of one sample: the mean of `measurement` if it is of the published "
            "model, else the time of its operations at the rate of the target's `device`, a lower "
            "bound of the latency.",
            minimum=1e-6,
        ),
    ] = None
    kernels: Annotated[
        int | None,
        Option("Largest number of kernels that the header registers.", minimum=1),
    ] = None
    kernel_bytes: Annotated[
        int | None,
        Option(
            "Largest estimated code size of these kernels ([budgets](../how-to/set-budgets.md)). "
            "Only for TensorFlow 1.15.",
            definition="size",
        ),
    ] = None
    ops: Annotated[
        OpLimits | None,
        Option("Permitted ops of the model.", definition="op_limits"),
    ] = None


class CustomOp(Struct, frozen=True):
    """An op that the app registers itself.

    Args:
        name: name of the op.
        kernels: its kernel classes, as in ``REGISTER_KERNEL_BUILDER``.
        sources: C++ files that register the op and its kernels.
    """

    name: str
    kernels: tuple[str, ...]
    sources: tuple[InputFile, ...] = ()


class Cache(Struct, frozen=True):
    """The remote cache, which does not affect results."""

    remote: Annotated[
        str,
        Option(
            "Address of the remote cache: `https://...`, `http://...`, `s3://bucket/prefix`, "
            "`gs://...`, `az://...`, or `file:///directory`. Required.",
            definition="remote",
        ),
    ]
    mode: Annotated[
        CacheMode,
        Option("Whether this machine writes to the remote cache, or only reads it."),
    ] = "read-write"
