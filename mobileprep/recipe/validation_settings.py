"""The section ``validation`` of a recipe: metrics and their limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Struct

from mobileprep.core.declare import Located, Option
from mobileprep.recipe.settings import Data, InputFile, SampleCount, SampleSeed, StrictSamples

USUAL_LABELS: Final = "label"
"""Default name of the array of labels."""


class MetricFunction(Struct, frozen=True):
    """A metric that is a Python function in the app's repository."""

    python: Annotated[
        InputFile,
        Option("Python file with the function. Required.", definition="path"),
    ]
    function: Annotated[
        str,
        Option(
            "Function that gets the outputs as a dictionary of arrays, and the labels or None, "
            "and returns a number. Required.",
            definition="function",
        ),
    ]
    higher_is_better: Annotated[bool, Option("Whether larger numbers are better.")] = True


class MetricChoice(Located, frozen=True):
    """A metric and its limits.

    Args:
        place: location in the recipe, ``file:line:column``.
        limit_place: location of the first limit besides ``max_gap``.
        gap_place: location of ``max_gap``.
    """

    metric: Annotated[
        str | MetricFunction,
        Option(
            "Metric name, or a Python function. `auto` is `top1` if the data has labels, "
            "otherwise `agreement`.",
            definition="metric",
        ),
    ] = "auto"
    output: Annotated[
        str | None,
        Option("Output to measure. Default: the first.", definition="tensor"),
    ] = None
    outputs: Annotated[
        tuple[str, ...],
        Option(
            "Outputs to measure together: boxes, scores, classes, and optionally their number for"
            " `mean_average_precision`; indices, values, and shape of a decoder's sparse tensor "
            "for error rates.",
            definition="tensor",
            min_items=3,
            max_items=4,
        ),
    ] = ()
    labels: Annotated[
        str | None,
        Option("Name of the array of labels. Default: `label`.", min_length=1),
    ] = None
    max_drop: Annotated[
        float | None,
        Option(
            "Largest permitted drop of the metric below the source's, or rise of an error, in the"
            " metric's unit: 0.01 is one percent of the samples for `top1`. Default without other"
            " limits: 0.01 for metrics that are shares.",
            minimum=0,
        ),
    ] = None
    at_least: Annotated[float | None, Option("Smallest permitted value of the metric.")] = None
    at_most: Annotated[float | None, Option("Largest permitted value of an error.")] = None
    max_gap: Annotated[
        float | None,
        Option(
            "In a list of validations: largest permitted difference of the model's metric from "
            "that of the first validation, in the metric's unit.",
            minimum=0,
        ),
    ] = None
    peak: Annotated[
        float | None,
        Option(
            "For `psnr`: largest value of an element, 1 or 255. Default: the largest value of the"
            " labels' integer dtype.",
            minimum=1e-30,
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Option("For `mean_iou` with one score for each element: scores above it are class 1."),
    ] = None
    ignore: Annotated[
        int | None, Option("For `mean_iou`: label of elements to ignore, often 255.")
    ] = None
    characters: Annotated[
        str | tuple[str, ...] | None,
        Option(
            "For error rates with classes as outputs: the string of each class, as a list, or as "
            "one string with a character for each class.",
            definition="characters",
        ),
    ] = None
    place: str = ""
    limit_place: str = ""
    gap_place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place", "limit_place", "gap_place"})

    @property
    def named_outputs(self) -> tuple[str, ...]:
        """The outputs to measure; empty for the first."""
        return self.outputs if self.output is None else (self.output,)

    def essentials(self) -> dict[str, Any]:
        """Return the fields that affect equality; without ``max_gap`` if it is not set."""
        fields = super().essentials()
        if self.max_gap is None:
            del fields["max_gap"]
        return fields


LIMITS: Final = ("max_drop", "at_least", "at_most")
METRIC_KEYS: Final = tuple(
    name for name in MetricChoice.__struct_fields__ if name not in MetricChoice.aside
)
"""Keys of a metric, in a list or in the section itself."""


class Validation(Struct, frozen=True):
    """How to compare the model of a target with the source.

    In a recipe, the keys of a single metric are in the section itself.
    """

    data: Annotated[
        Data,
        Option(
            "Test set: a file, a directory, or a mapping. Required.",
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
    samples: SampleCount = None
    seed: SampleSeed = None
    batch: Annotated[
        int,
        Option(
            "Batch size, if the model does not fix it.",
            minimum=1,
            maximum=100000,
        ),
    ] = 64
    engine: Annotated[
        Literal["litert", "graph"] | None,
        Option(
            "How a `.tflite` target is validated: the packaged file with LiteRT's interpreter "
            "(`litert`, the default, `pip install 'mobileprep[litert]'`), or the graph before "
            "conversion with the recipe's `engine` (`graph`). Only with `artifact: tflite`."
        ),
    ] = None
    strict: StrictSamples = False

    @property
    def functions(self) -> tuple[InputFile, ...]:
        """The Python files of its metrics, without duplicates."""
        files = [c.metric.python for c in self.metrics if isinstance(c.metric, MetricFunction)]
        return tuple(dict.fromkeys(files))


class NamedValidation(Validation, frozen=True, kw_only=True):
    """A validation of a list."""

    name: Annotated[
        str, Option("Name of the data set in reports. Required.", definition="name")
    ] = ""


QuantizeMode: TypeAlias = Literal[
    "none",
    "weights",
    "float16",
    "bfloat16",
    "round",
    "nodes",
    "auto",
    "int4",
    "int8",
    "int16x8",
]
RangeSource: TypeAlias = Literal["dynamic", "observed", "trained"]
RuleMode: TypeAlias = Literal["nodes", "int8", "int16x8", "weights", "float"]
Granularity: TypeAlias = Literal["tensor", "channel"]
BlockSize: TypeAlias = Literal[32, 64, 128, 256]
WeightMethod: TypeAlias = Literal["min_max", "percentile", "entropy", "mse"]
EndType: TypeAlias = Literal["float", "int8", "uint8", "int16"]
CalibrationMethod: TypeAlias = Literal[
    "auto", "min_max", "moving_average", "percentile", "entropy", "mse"
]
QUANTIZERS: Final[Mapping[str, tuple[str, str]]] = {
    "weights": ("quantize_weights", "minimum_size"),
    "float16": ("cast_weights", "minimum_size"),
    "bfloat16": ("cast_weights", "minimum_size"),
    "round": ("round_weights", "num_steps"),
}
"""Transform of each mode of ``quantize``, and its parameter."""
INTEGER_MODES: Final = ("int8", "int16x8")
"""Modes that compute in integers with LiteRT."""
LITERT_MODES: Final = ("float16", "weights", "int4", *INTEGER_MODES)
"""Modes of LiteRT files."""


class Calibration(Located, frozen=True):
    """How to measure the ranges of tensors.

    ``workers`` and ``dask`` do not affect results.
    """

    data: Annotated[
        Data | None,
        Option(
            "Samples: a file, a directory, or a mapping. Required unless the range file is up to "
            "date.",
            definition="data",
        ),
    ] = None
    method: Annotated[
        CalibrationMethod,
        Option(
            "Range of a tensor: `auto`, that of another method or one end of it, with little "
            "error in the results of the ops that read it; `min_max`, its smallest and largest "
            "value; `moving_average`, their averages over batches; `percentile`, without the most "
            "extreme values at both ends; `entropy`, with the smallest change of the distribution; "
            "`mse`, with the smallest squared error of rounding and clipping."
        ),
    ] = "auto"
    percentile: Annotated[
        float,
        Option("With `percentile`: percentage of the values to keep.", 50, 100),
    ] = 99.99
    decay: Annotated[
        float,
        Option("With `moving_average`: weight of the earlier batches.", 0, 1),
    ] = 0.99
    samples: SampleCount = None
    seed: SampleSeed = None
    batch: Annotated[
        int,
        Option(
            "Batch size, if the graph accepts any.",
            minimum=1,
            maximum=4096,
        ),
    ] = 8
    strict: StrictSamples = False
    range_file: Annotated[
        InputFile | None,
        Option(
            "File in which `mobileprep calibrate` stores the ranges for review and version "
            "control. While it is up to date, builds do not need the data.",
            definition="path",
        ),
    ] = None
    workers: Annotated[
        int,
        Option(
            "Number of processes. It does not affect the ranges.",
            minimum=1,
            maximum=256,
        ),
    ] = 1
    dask: Annotated[
        str | None,
        Option(
            "Address of a dask.distributed scheduler whose workers run the samples, such as "
            "`tcp://host:8786`. It does not affect the ranges.",
            min_length=1,
        ),
    ] = None
    aside: ClassVar[frozenset[str]] = frozenset({"workers", "dask"})


class QuantizeRule(Struct, frozen=True):
    """Quantization of some layers; if several rules match a layer, the last one applies."""

    nodes: Annotated[
        str | None,
        Option(
            "Regular expression (RE2) that is searched in the layer's name, such as `^Logits/`. "
            "Default: any name.",
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
            "`nodes` computes in 8 bits, `weights` only stores weights in 8 bits, `float` does "
            "neither. For LiteRT, `int8` and `int16x8` set the activations of an operator. "
            "Default: unchanged, or `weights`."
        ),
    ] = None
    bits: Annotated[
        int | None,
        Option(
            "The bits of the weights. LiteRT files store 4 bits and fewer in 4, where LiteRT has "
            "kernels for them. Other numbers below 8 are stored in 8, and compress better.",
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
            "`min_max` covers every weight; `percentile` cuts a share of them off; `entropy` loses "
            "least of how they are distributed; `mse` cuts the largest off where that makes the "
            "squared error smaller. Default: `min_max`, and `mse` for blocks."
        ),
    ] = None
    percentile: Annotated[
        float | None,
        Option("With `percentile`: percentage of the weights to keep. Default: 99.99.", 50, 100),
    ] = None

    block_size: Annotated[
        BlockSize | None,
        Option(
            "With 4 bits for LiteRT: number of weights of a channel that share a scale, for dense "
            "layers, 1x1 convolutions, and lookups that compute in float."
        ),
    ] = None

    @property
    def text(self) -> str:
        """The rule in the syntax of the transform: words separated by spaces."""
        words = [
            f"{key}={value:.15g}" if isinstance(value, float) else f"{key}={value}"
            for key in ("mode", "bits", "granularity", "method", "percentile", "block_size")
            if (value := getattr(self, key)) is not None
        ]
        words += [f"ops={','.join(self.ops)}"] if self.ops else []
        return " ".join([*words, *([f"nodes={self.nodes}"] if self.nodes else [])])


class Quantize(Struct, frozen=True):
    """Quantization of a target; its steps are already part of the target's transforms.

    Args:
        mode: ``weights`` stores 2 to 8 bits, ``float16`` and ``bfloat16`` 16, ``round`` rounds for
            compression, ``nodes`` computes with 8-bit integers, ``auto`` does so within the limits
            of the validation; ``int4``, ``int8``, and ``int16x8`` are for LiteRT.
        parameters: parameters of the mode's transform that the recipe sets.
        bits: bits of ``weights``, or None.
        granularity: granularity of ``weights``, or None.
        block_size: weights that share a scale with ``int4``, or None for a scale for each channel.
        ranges: source of the ranges for modes that compute in integers.
        rules: exceptions for some layers; the last matching rule applies.
        trials: maximum number of graphs that ``auto`` creates and measures.
        min_int8_macs: smallest share of multiply-accumulates that ``auto`` keeps in int8.
        inference_input_type: dtype of float inputs in a LiteRT file.
        inference_output_type: dtype of float outputs in a LiteRT file.
    """

    mode: Annotated[QuantizeMode, Option("Quantization mode.")] = "none"
    parameters: tuple[tuple[str, int], ...] = ()
    bits: Annotated[
        int | None,
        Option(
            "With `weights`: bits of an element, 8 if only `granularity` is set "
            "(`linear_quantize_weights`). Without both, 8 bits with one range for each constant "
            "(`quantize_weights`).",
            minimum=2,
            maximum=8,
        ),
    ] = None
    granularity: Annotated[
        Granularity | None,
        Option(
            "With `weights`: one scale for each constant (`tensor`), or for each output channel "
            "(`channel`). Default with `bits`: `channel`."
        ),
    ] = None
    block_size: Annotated[
        BlockSize | None,
        Option(
            "With `int4`: number of weights of a channel that share a scale, where LiteRT supports "
            "it: dense layers, 1x1 convolutions, and lookups in tables. Default: one scale for "
            "each channel."
        ),
    ] = None
    ranges: Annotated[
        RangeSource,
        Option(
            "Source of tensor ranges: measured in every run (`dynamic`), by the calibration "
            "(`observed`), or by the fake quantization that the model was trained with "
            "(`trained`), with the calibration for other tensors. `int8` and `int16x8` have no "
            "`dynamic`; their default is `observed`."
        ),
    ] = "dynamic"
    rules: tuple[QuantizeRule, ...] = ()
    trials: Annotated[
        int,
        Option(
            "With `auto`: largest number of trials. 30 layers need 7 if none has to be float, and"
            " 14 otherwise.",
            minimum=1,
            maximum=64,
        ),
    ] = 16
    min_int8_macs: Annotated[
        float,
        Option(
            "With `auto` and `artifact: tflite`: smallest share of multiply-accumulates to compute "
            "in int8. Operators without any, such as sums and activations, do not count.",
            minimum=0,
            maximum=1,
        ),
    ] = 0.9
    inference_input_type: Annotated[
        EndType,
        Option(
            "With `int8` and `int16x8`: dtype of float inputs in the file: `float`, or integers "
            "with a scale and a zero point, `int8` or `uint8` with `int8`, `int16` with "
            "`int16x8`."
        ),
    ] = "float"
    inference_output_type: Annotated[EndType, Option("The same for outputs.")] = "float"


_TOP_K: Final = re.compile(r"top[1-9][0-9]{0,4}")


class MetricFacts(Struct, frozen=True):
    """Properties of a metric that checking a recipe needs.

    Args:
        higher_is_better: whether larger values are better.
        is_share: whether values range from about 0 to 1, independent of the model's unit.
        of_labels: whether it compares outputs with labels, not with the outputs of the source.
        outputs: permitted numbers of outputs.
        keys: keys of the metric besides its limits.
    """

    higher_is_better: bool = True
    is_share: bool = True
    of_labels: bool = True
    outputs: tuple[int, ...] = (1,)
    keys: frozenset[str] = frozenset()


_TEXTS: Final = MetricFacts(higher_is_better=False, outputs=(1, 3), keys=frozenset({"characters"}))
_FACTS: Final[Mapping[str, MetricFacts]] = {
    "mean_absolute_error": MetricFacts(higher_is_better=False, is_share=False),
    "mean_squared_error": MetricFacts(higher_is_better=False, is_share=False),
    "r2": MetricFacts(),
    "psnr": MetricFacts(is_share=False, keys=frozenset({"peak"})),
    "cosine": MetricFacts(),
    "mean_iou": MetricFacts(keys=frozenset({"threshold", "ignore"})),
    "auc": MetricFacts(),
    "word_error_rate": _TEXTS,
    "character_error_rate": _TEXTS,
    "mean_average_precision": MetricFacts(outputs=(3, 4)),
    "agreement": MetricFacts(of_labels=False),
    "top1_agreement": MetricFacts(of_labels=False),
    "peak_agreement": MetricFacts(of_labels=False),
}
METRIC_NAMES: Final = ("auto", "top1", "top5", *_FACTS)
"""The metric names, with ``top1`` and ``top5`` for the ``topK`` metrics."""
AUTO: Final = "auto"
"""The default: ``top1`` if the data has labels, otherwise ``agreement``."""


def metric_facts(name: str) -> MetricFacts | None:
    """Return the properties of a metric; None if there is no such metric."""
    if name == AUTO or _TOP_K.fullmatch(name):
        return MetricFacts()
    return _FACTS.get(name)


def choice_facts(metric: str | MetricFunction) -> MetricFacts | None:
    """Return the properties of a metric of a validation; None if there is no such metric."""
    if isinstance(metric, MetricFunction):
        higher = metric.higher_is_better
        return MetricFacts(higher_is_better=higher, is_share=False, outputs=(1, 3, 4))
    return metric_facts(metric)
