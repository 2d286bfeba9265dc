"""The sections of a recipe whose keys are options: what stands here is what the schema says."""

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
"""The binary interfaces that a recipe may name of each platform."""
CACHE_MODES: Final[tuple[CacheMode, ...]] = get_args(CacheMode)
SIGN_IN: Final = re.compile(r"\A(?:[^/]*@|[^/:\[]*:(?!\d*/).*@)")
"""What an address has behind its scheme for signing in.

A secret may hold a slash, which ends the host elsewhere: what follows the colon is no port then.
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
        "How many samples are run, spread evenly over the data. Without it, all.",
        minimum=1,
        maximum=1_000_000_000,
    ),
]
SampleSeed: TypeAlias = Annotated[
    int | None,
    Option(
        "Draws the `samples`, one from each of as many equal parts of the data. Without it, "
        "the first of each part.",
        minimum=0,
        maximum=4294967295,
    ),
]
# Where things lie and were written: no part of what decides a result.
ASIDE: Final[Mapping[str, bool]] = {"aside": True}


class InputFile(Located, frozen=True):
    """A file or folder that a recipe names.

    Args:
        name: as written, with ``/``; in a plan, the same on every machine.
        path: where it lies; a checkpoint's is its prefix.
        place: where the recipe names it, ``file:line:column``.
        written: as written, where the name is another.
    """

    name: str
    path: Path
    place: str = ""
    written: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"path", "place", "written"})

    @property
    def shown(self) -> str:
        """What messages call it: as it is written."""
        return self.written or self.name


class Pin(Struct, frozen=True):
    """A digest that a file must have.

    Args:
        file: the file.
        sha256: 64 hexadecimal digits in lower case.
    """

    file: InputFile
    sha256: str


# As savers name a checkpoint of the first format that is in several files: ``m-?????-of-00004``.
EVERY_SHARD: Final = "-?????-of-"


class Source(Struct, frozen=True):
    """A trained model.

    Args:
        kind: what ``file`` is.
        file: the graph, MetaGraph or SavedModel folder.
        pins: digests to check, sorted by name.
    """

    kind: SourceKind
    file: InputFile
    checkpoint: Annotated[
        InputFile | None,
        Option(
            "The values of the variables: a checkpoint's prefix, such as `model.ckpt-1000`.",
            definition="path",
        ),
    ] = None
    tags: Annotated[
        tuple[str, ...],
        Option(
            "The tags of the MetaGraph to take from a SavedModel. Without them, `serve`.",
            min_length=1,
            min_items=1,
            unique=True,
        ),
    ] = ()
    signature: Annotated[
        str | None,
        Option(
            "The signature of a SavedModel or MetaGraph whose inputs and outputs are meant.",
            min_length=1,
        ),
    ] = None
    saver: Annotated[
        InputFile | None,
        Option(
            "A SaverDef, binary or text, that names the op by which the graph restores. Without "
            "it, the model's own.",
            definition="path",
        ),
    ] = None
    pins: tuple[Pin, ...] = ()
    assets: Annotated[
        InputFile | None,
        Option(
            "A file that the graph reads, such as the vocabulary of a lookup table, or a directory "
            "of such files. They are found by their names, whatever directory the graph expects "
            "them in. A SavedModel or MetaGraph brings its own in `assets/`.",
            definition="path",
        ),
    ] = None

    @property
    def names_checkpoint(self) -> bool:
        """Whether the recipe says which checkpoint; else it is the one beside a MetaGraph."""
        return self.checkpoint is not None and self.checkpoint.place != self.file.place


class InputSpec(Struct, frozen=True):
    """A tensor that the app feeds.

    Args:
        name: as in the graph, ``node`` or ``node:0``.
    """

    name: str
    dtype: Annotated[str | None, Option("The element type.", choices=ELEMENT_TYPES)] = None
    shape: Annotated[
        tuple[int, ...] | None,
        Option(
            "The sizes of the dimensions; -1 for one that is not fixed.",
            minimum=-1,
            maximum=2147483647,
            max_items=254,
        ),
    ] = None


class Data(Struct, frozen=True):
    """Samples for calibration, validation or checks; ``recipe/data.py`` makes it.

    Args:
        file: the file or folder.
        kind: what it is; None where its content tells.
        reading: how it becomes samples.
        labels: the file of labels, where they have one of their own.
        classes: the file that lists the names of the classes.
        files: what else a generator reads.
    """

    file: InputFile
    kind: DataKind | None = None
    reading: Reading = field(default_factory=Reading)
    labels: InputFile | None = None
    classes: InputFile | None = None
    files: tuple[InputFile, ...] = ()

    @property
    def beside(self) -> tuple[InputFile, ...]:
        """The files that it names besides ``file``."""
        return (*filter(None, (self.labels, self.classes)), *self.files)

    @property
    def names_labels(self) -> bool:
        """Whether it says what its labels are, so that they have to be there."""
        return self.labels is not None or self.reading.labels is not None


class Check(Struct, frozen=True):
    """How the model is compared with the source after each transform and once packaged."""

    data: Annotated[
        Data | None,
        Option(
            "The samples: a file or folder, or how it is read. Without it, the validation's; "
            "without that, samples are drawn.",
            definition="data",
        ),
    ] = None
    samples: Annotated[
        int,
        Option(
            "How many samples are run; of more in the data, some that are spread evenly over it.",
            minimum=1,
            maximum=10000,
        ),
    ] = 8
    max_difference: Annotated[
        float | None,
        Option(
            "How far any output may be from the source's, as a share of the largest magnitude that "
            "the source gives for that output: 0.01 is one percent of it. Without it, the "
            "difference is told, and only NaN, infinity and other shapes fail.",
            minimum=0,
        ),
    ] = None
    engine: Annotated[
        Literal["litert", "graph"] | None,
        Option(
            "What the check of a packaged `.tflite` file runs: the file, with LiteRT's interpreter "
            "(`litert`, the default, `pip install 'mobileprep[litert]'`), or the graph before "
            "conversion (`graph`). Only with `artifact: tflite`."
        ),
    ] = None


class OpLimits(Struct, frozen=True):
    """Which ops a model may have."""

    allow: Annotated[
        tuple[str, ...],
        Option("The ops that the model may have, and no others.", definition="op", min_items=1),
    ] = ()
    forbid: Annotated[
        tuple[str, ...],
        Option("Ops that the model may not have.", definition="op", min_items=1),
    ] = ()


class LiteRT(Struct, frozen=True):
    """How a target's graph becomes a .tflite file."""

    detection_postprocess: Annotated[
        DetectionPostprocess,
        Option(
            "`auto` replaces the post-processor of an SSD model, as TensorFlow's object detection "
            "API exports it, by the operator TFLite_Detection_PostProcess "
            "(`replace_detection_postprocess` after the chain); `keep` converts it as it is."
        ),
    ] = "keep"
    min_runtime: Annotated[
        str,
        Option(
            'The oldest release of TensorFlow Lite that has to run the file, such as `"2.14"`. The '
            "build fails if a node needs a later release. Without it, the file declares the "
            "release that it needs, `2.14` or earlier where operators allow it.",
            definition="release",
        ),
    ] = ""


class Budget(Struct, frozen=True):
    """Limits; None for none."""

    model_bytes: Annotated[
        int | None,
        Option("The largest size of the model file.", definition="size"),
    ] = None
    compressed_bytes: Annotated[
        int | None,
        Option(
            "The largest size of the model file as app packages store it: compressed by deflate, "
            "as zlib's level 1 does it, which is at most some percent larger than level 9.",
            definition="size",
        ),
    ] = None
    parameters: Annotated[
        int | None,
        Option("The most parameters: elements of all constants together.", minimum=0),
    ] = None
    flops: Annotated[
        int | None,
        Option(
            "The most operations for one sample, as `mobileprep benchmark --show_flops` counts "
            "them: two for a multiplication and addition.",
            definition="flops",
        ),
    ] = None
    activation_bytes: Annotated[
        int | None,
        Option(
            "The most memory that tensors take at once for one sample, constants left out.",
            definition="size",
        ),
    ] = None
    latency_ms: Annotated[
        float | None,
        Option(
            "The most milliseconds that the operations for one sample take at the rate of the "
            "target's `device`: the least that is possible there.",
            minimum=1e-6,
        ),
    ] = None
    kernels: Annotated[
        int | None,
        Option("The most kernels that the header registers.", minimum=1),
    ] = None
    kernel_bytes: Annotated[
        int | None,
        Option(
            "The most code that those kernels may come to, by an estimate: see "
            "[budgets](../how-to/set-budgets.md). Only for TensorFlow 1.15.",
            definition="size",
        ),
    ] = None
    ops: Annotated[
        OpLimits | None,
        Option("Which ops the model may have.", definition="op_limits"),
    ] = None


class CustomOp(Struct, frozen=True):
    """An op that the app registers itself.

    Args:
        name: the op.
        kernels: its kernel classes, as ``REGISTER_KERNEL_BUILDER`` names them.
        sources: the C++ files that register the op and its kernels.
    """

    name: str
    kernels: tuple[str, ...]
    sources: tuple[InputFile, ...] = ()


class Cache(Struct, frozen=True):
    """Where machines share what stages leave; no part of what decides a result."""

    remote: Annotated[
        str,
        Option(
            "The address of the remote store: `https://...`, `http://...`, `s3://bucket/prefix`, "
            "`gs://...`, `az://...`, or `file:///folder` for a shared folder. Required.",
            definition="remote",
        ),
    ]
    mode: Annotated[
        CacheMode,
        Option("Whether what this machine builds is sent there too, or only taken from there."),
    ] = "read-write"
