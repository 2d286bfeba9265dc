"""The sections of a recipe whose keys are options: what stands here is what the schema says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

from mobileprep.options.data import DataKind, Reading
from mobileprep.options.declare import Option

SourceKind: TypeAlias = Literal["frozen", "graph", "meta_graph", "saved_model"]
Abi: TypeAlias = Literal["arm64-v8a", "armeabi-v7a", "x86", "x86_64"]
Platform: TypeAlias = Literal["android", "ios", "raspberry-pi", "linux", "generic"]
QuantizeMode: TypeAlias = Literal["none", "weights", "float16", "bfloat16", "round", "nodes"]
RangeSource: TypeAlias = Literal["dynamic", "observed", "trained"]
RuleMode: TypeAlias = Literal["nodes", "weights", "float"]
Granularity: TypeAlias = Literal["tensor", "channel"]
WeightMethod: TypeAlias = Literal["min_max", "mse"]
CalibrationMethod: TypeAlias = Literal["min_max", "moving_average", "percentile", "entropy", "mse"]
Artifact: TypeAlias = Literal["frozen", "text", "memmapped"]
CacheMode: TypeAlias = Literal["read-write", "read-only"]
Engine: TypeAlias = Literal["auto", "numpy", "openvino", "tensorflow"]
CACHE_MODES: Final[tuple[CacheMode, ...]] = get_args(CacheMode)
ELEMENT_TYPES: Final = (
    *("float32", "float64", "float16", "bfloat16"),
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *("bool", "string", "complex64", "complex128"),
    *("qint8", "quint8", "qint16", "quint16", "qint32"),
)
# Where things lie and were written: no part of what decides a result.
ASIDE: Final[Mapping[str, bool]] = {"aside": True}

QUANTIZERS: Final[Mapping[str, tuple[str, str]]] = {
    "weights": ("quantize_weights", "minimum_size"),
    "float16": ("cast_weights", "minimum_size"),
    "bfloat16": ("cast_weights", "minimum_size"),
    "round": ("round_weights", "num_steps"),
}
"""The transform that each mode of ``quantize`` stands for, and the parameter that it takes."""


@dataclass(frozen=True)
class InputFile:
    """A file or folder that a recipe names.

    Args:
        name: as written, with ``/``.
        path: where it lies; a checkpoint's is its prefix.
        place: where the recipe names it, ``file:line:column``.
    """

    name: str
    path: Path = field(compare=False, metadata=ASIDE)
    place: str = field(default="", compare=False, metadata=ASIDE)


@dataclass(frozen=True)
class Pin:
    """A digest that a file must have.

    Args:
        file: the file.
        sha256: 64 hexadecimal digits in lower case.
    """

    file: InputFile
    sha256: str


# As savers name a checkpoint of the first format that is in several files: ``m-?????-of-00004``.
EVERY_SHARD: Final = "-?????-of-"


@dataclass(frozen=True)
class Source:
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


@dataclass(frozen=True)
class InputSpec:
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


@dataclass(frozen=True)
class Data:
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


@dataclass(frozen=True)
class Check:
    """How the model is compared with the source after each transform."""

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


USUAL_LABELS: Final = "label"
"""The array of labels where the recipe names none."""


@dataclass(frozen=True)
class MetricFunction:
    """A metric that is a Python function of the app's repository."""

    python: Annotated[
        InputFile,
        Option("The Python file that has the function. Required.", definition="path"),
    ]
    function: Annotated[
        str,
        Option(
            "The function: it is called with the outputs, a dict of arrays by name, and the array "
            "of labels or None, and returns a number. Required.",
            definition="function",
        ),
    ]
    higher_is_better: Annotated[
        bool, Option("Whether a model is better where the number is larger.")
    ] = True


@dataclass(frozen=True)
class MetricChoice:
    """A metric and its limits.

    Args:
        place: where the recipe asks for it, ``file:line:column``.
        limit_place: where its first limit stands.
    """

    metric: Annotated[
        str | MetricFunction,
        Option(
            "What is measured, by name, or a Python function of your own. `auto` is `top1` where "
            "the data has labels, else `agreement`.",
            definition="metric",
        ),
    ] = "auto"
    output: Annotated[
        str | None,
        Option("The output that is judged. Without it, the first.", definition="tensor"),
    ] = None
    outputs: Annotated[
        tuple[str, ...],
        Option(
            "The outputs that are judged together: boxes, scores, classes and, if there is such an "
            "output, how many of them count, for `mean_average_precision`; indices, values and "
            "shape of a decoder's sparse tensor for the error rates.",
            definition="tensor",
            min_items=3,
            max_items=4,
        ),
    ] = ()
    labels: Annotated[
        str | None,
        Option("The name of the array of labels. Without it, `label`.", min_length=1),
    ] = None
    max_drop: Annotated[
        float | None,
        Option(
            "How far the metric may fall below the source's, or an error rise above it, in the "
            "metric's unit: 0.01 is one percent of the samples for `top1`. Without a limit, 0.01 "
            "for metrics that are shares.",
            minimum=0,
        ),
    ] = None
    at_least: Annotated[
        float | None, Option("The least that the metric may be, whatever the source's.")
    ] = None
    at_most: Annotated[
        float | None, Option("The most that an error may be, whatever the source's.")
    ] = None
    peak: Annotated[
        float | None,
        Option(
            "For `psnr`: the largest value of an element, 1 or 255. Without it, the largest number "
            "of the labels' type where that is a whole one.",
            minimum=1e-30,
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Option("For `mean_iou` of one score for each element: what is above it is class 1."),
    ] = None
    ignore: Annotated[
        int | None, Option("For `mean_iou`: the label of elements that do not count, often 255.")
    ] = None
    characters: Annotated[
        str | tuple[str, ...] | None,
        Option(
            "For the error rates, where outputs are classes: the text of each class in order, as "
            "a list or as one text with a character for each.",
            definition="characters",
        ),
    ] = None
    place: str = field(default="", compare=False, metadata=ASIDE)
    limit_place: str = field(default="", compare=False, metadata=ASIDE)

    @property
    def named_outputs(self) -> tuple[str, ...]:
        """The outputs that it names, one or several; empty for the first."""
        return self.outputs if self.output is None else (self.output,)


METRIC_KEYS: Final = tuple(f.name for f in fields(MetricChoice) if not f.metadata)
"""The keys of a metric, in a list or in the section itself."""


@dataclass(frozen=True)
class Validation:
    """How a target's model is compared with the source.

    In a recipe the keys of a single metric stand in the section itself.
    """

    data: Annotated[
        Data,
        Option(
            "The test set: a file or folder, or how it is read. Required.",
            definition="data",
        ),
    ]
    metrics: Annotated[
        tuple[MetricChoice, ...],
        Option(
            "Several metrics, each with its own limits, instead of `metric`.",
            definition="metric_choice",
            min_items=1,
            max_items=100,
        ),
    ] = ()
    samples: Annotated[
        int | None,
        Option(
            "How many samples are run, spread evenly over the data. Without it, all.",
            minimum=1,
            maximum=1000000000,
        ),
    ] = None
    seed: Annotated[
        int | None,
        Option(
            "Draws the `samples`, one from each of as many equal parts of the data. Without it, "
            "the first of each part.",
            minimum=0,
            maximum=4294967295,
        ),
    ] = None
    batch: Annotated[
        int,
        Option(
            "How many samples are run at once, where the model does not say.",
            minimum=1,
            maximum=100000,
        ),
    ] = 64
    strict: Annotated[
        bool,
        Option(
            "Whether a sample that cannot be read ends the build; else it is left out, with a "
            "warning that names it."
        ),
    ] = False

    @property
    def functions(self) -> tuple[InputFile, ...]:
        """The Python files of its metrics, each once."""
        found = [c.metric.python for c in self.metrics if isinstance(c.metric, MetricFunction)]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Calibration:
    """How the ranges of tensors are measured.

    Where it runs is no part of what decides a result: neither ``workers`` nor ``dask``.
    """

    data: Annotated[
        Data | None,
        Option(
            "The samples: a file or folder, or how it is read. Needed unless a range file that is "
            "up to date is named.",
            definition="data",
        ),
    ] = None
    method: Annotated[
        CalibrationMethod,
        Option(
            "How a range comes of what a tensor holds: `min_max`, its least and greatest value; "
            "`moving_average`, their averages from batch to batch; `percentile`, what is left when "
            "as much is cut off at both ends; `entropy`, where least is lost of how values are "
            "distributed; `mse`, where the squared error of rounding and clipping is least."
        ),
    ] = "percentile"
    percentile: Annotated[
        float,
        Option("With `percentile`: how many percent of the values are kept.", 50, 100),
    ] = 99.99
    decay: Annotated[
        float,
        Option("With `moving_average`: the weight that a batch leaves to those before it.", 0, 1),
    ] = 0.99
    samples: Annotated[
        int | None,
        Option(
            "How many samples are run, spread evenly over the data. Without it, all.",
            minimum=1,
            maximum=10_000_000,
        ),
    ] = None
    seed: Annotated[
        int | None,
        Option(
            "Draws the `samples`, one from each of as many equal parts of the data. Without it, "
            "the first of each part.",
            minimum=0,
            maximum=4294967295,
        ),
    ] = None
    batch: Annotated[
        int,
        Option(
            "How many samples are run at once, where the graph takes any number.",
            minimum=1,
            maximum=4096,
        ),
    ] = 8
    strict: Annotated[
        bool,
        Option(
            "Whether a sample that cannot be read ends the build; else it is left out, with a "
            "warning that names it."
        ),
    ] = False
    range_file: Annotated[
        InputFile | None,
        Option(
            "Where `mobileprep calibrate` keeps the ranges, to be reviewed and checked in. While "
            "it is up to date it is used instead of the data, which need not be there then.",
            definition="path",
        ),
    ] = None
    workers: Annotated[
        int,
        Option(
            "How many processes run samples at once. The ranges are the same with any number.",
            minimum=1,
            maximum=256,
        ),
    ] = field(default=1, compare=False, metadata=ASIDE)
    dask: Annotated[
        str | None,
        Option(
            "The address of a dask.distributed scheduler whose workers run the samples, such as "
            "`tcp://host:8786`. The ranges are the same as here.",
            min_length=1,
        ),
    ] = field(default=None, compare=False, metadata=ASIDE)


@dataclass(frozen=True)
class QuantizeRule:
    """What is done to some layers; of several rules that fit a layer, the last one counts."""

    nodes: Annotated[
        str | None,
        Option(
            "A regular expression, as RE2 has them, that is looked for in the layer's name: "
            "`^Logits/` for what begins so. Without it, any name.",
            min_length=1,
        ),
    ] = None
    ops: Annotated[
        tuple[str, ...],
        Option("The layer's op, such as `Conv2D`. Without it, any.", min_length=1, min_items=1),
    ] = ()
    mode: Annotated[
        RuleMode | None,
        Option(
            "`nodes` computes in eight bits, `weights` only stores the weights in them, `float` "
            "does neither. Without it, what is done anyway, or `weights` where that is nothing."
        ),
    ] = None
    bits: Annotated[
        int | None,
        Option(
            "The bits of the weights. Fewer than 8 are stored in 8, and compress better.",
            minimum=2,
            maximum=8,
        ),
    ] = None
    granularity: Annotated[
        Granularity | None,
        Option(
            "Whether the weights have the same steps throughout (`tensor`), or each output "
            "channel its own (`channel`), for one more product. Without it, whichever comes nearer "
            "to the weights."
        ),
    ] = None
    method: Annotated[
        WeightMethod | None,
        Option(
            "`min_max` covers every weight; `mse` cuts the largest off where that makes the "
            "squared error smaller."
        ),
    ] = None

    @property
    def text(self) -> str:
        """The rule as the transform takes it: words with blanks between."""
        words = [
            f"{key}={value}"
            for key in ("mode", "bits", "granularity", "method")
            if (value := getattr(self, key)) is not None
        ]
        words += [f"ops={','.join(self.ops)}"] if self.ops else []
        return " ".join([*words, *([f"nodes={self.nodes}"] if self.nodes else [])])


@dataclass(frozen=True)
class Quantize:
    """How constants are made smaller; its steps are part of the target's transforms already.

    Args:
        mode: ``weights`` stores 2 to 8 bits, ``float16`` and ``bfloat16`` 16, ``round`` rounds for
            compression, ``nodes`` computes in eight bits.
        parameters: those of the mode's transform that the recipe gives.
        bits: of ``weights``; None where they are not given.
        granularity: of ``weights``; None where it is not given.
        ranges: where ``nodes`` has ranges from.
        rules: what ``nodes`` does otherwise to some layers, the last that fits one counts.
    """

    mode: Annotated[QuantizeMode, Option("What is done to the model.")] = "none"
    parameters: tuple[tuple[str, int], ...] = ()
    bits: Annotated[
        int | None,
        Option(
            "With `weights`: how many bits an element takes, 8 where `granularity` alone is given "
            "(`linear_quantize_weights`). Without both, 8 bits with one range for each constant "
            "(`quantize_weights`).",
            minimum=2,
            maximum=8,
        ),
    ] = None
    granularity: Annotated[
        Granularity | None,
        Option(
            "With `weights`: whether each constant has one scale (`tensor`), or each output "
            "channel its own (`channel`). Where `bits` alone is given, `channel`."
        ),
    ] = None
    ranges: Annotated[
        RangeSource,
        Option(
            "With `nodes`: where the ranges of tensors come from: measured in every run "
            "(`dynamic`), by the calibration (`observed`), or from the fake quantization that the "
            "model was trained with (`trained`), by the calibration for tensors without."
        ),
    ] = "dynamic"
    rules: tuple[QuantizeRule, ...] = ()


@dataclass(frozen=True)
class Budget:
    """Limits in bytes; None for none."""

    model_bytes: Annotated[
        int | None,
        Option("The largest size of the model file.", definition="size"),
    ] = None
    compressed_bytes: Annotated[
        int | None,
        Option(
            "The largest size of the model file as app packages store it: compressed by deflate, "
            "as ISA-L's level 1 does it, which mostly comes out larger than zlib's level 9.",
            definition="size",
        ),
    ] = None


@dataclass(frozen=True)
class Cache:
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
