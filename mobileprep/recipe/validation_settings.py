"""The section ``validation`` of a recipe: metrics and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Struct

from mobileprep.core.declare import Located, Option
from mobileprep.recipe.settings import Data, InputFile, SampleCount, SampleSeed

USUAL_LABELS: Final = "label"
"""The array of labels where the recipe names none."""


class MetricFunction(Struct, frozen=True):
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


class MetricChoice(Located, frozen=True):
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
    place: str = ""
    limit_place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place", "limit_place"})

    @property
    def named_outputs(self) -> tuple[str, ...]:
        """The outputs that it names, one or several; empty for the first."""
        return self.outputs if self.output is None else (self.output,)


METRIC_KEYS: Final = tuple(
    name for name in MetricChoice.__struct_fields__ if name not in MetricChoice.aside
)
"""The keys of a metric, in a list or in the section itself."""


class Validation(Struct, frozen=True):
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
    samples: SampleCount = None
    seed: SampleSeed = None
    batch: Annotated[
        int,
        Option(
            "How many samples are run at once, where the model does not say.",
            minimum=1,
            maximum=100000,
        ),
    ] = 64
    engine: Annotated[
        Literal["litert", "graph"] | None,
        Option(
            "What the validation of a `.tflite` target runs: the packaged file, with LiteRT's "
            "interpreter (`litert`, the default, `pip install 'mobileprep[litert]'`), or the graph "
            "before conversion, with the recipe's `engine` (`graph`). Only with `artifact: tflite`."
        ),
    ] = None
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
RuleMode: TypeAlias = Literal["nodes", "weights", "float"]
Granularity: TypeAlias = Literal["tensor", "channel"]
WeightMethod: TypeAlias = Literal["min_max", "percentile", "entropy", "mse"]
EndType: TypeAlias = Literal["float", "int8", "uint8", "int16"]
CalibrationMethod: TypeAlias = Literal["min_max", "moving_average", "percentile", "entropy", "mse"]
QUANTIZERS: Final[Mapping[str, tuple[str, str]]] = {
    "weights": ("quantize_weights", "minimum_size"),
    "float16": ("cast_weights", "minimum_size"),
    "bfloat16": ("cast_weights", "minimum_size"),
    "round": ("round_weights", "num_steps"),
}
"""The transform that each mode of ``quantize`` stands for, and the parameter that it takes."""
INTEGER_MODES: Final = ("int8", "int16x8")
"""The modes that compute in integers on LiteRT."""
LITERT_MODES: Final = ("float16", "weights", "int4", *INTEGER_MODES)
"""The modes that files for LiteRT have."""


class Calibration(Located, frozen=True):
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
    samples: SampleCount = None
    seed: SampleSeed = None
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
    ] = 1
    dask: Annotated[
        str | None,
        Option(
            "The address of a dask.distributed scheduler whose workers run the samples, such as "
            "`tcp://host:8786`. The ranges are the same as here.",
            min_length=1,
        ),
    ] = None
    aside: ClassVar[frozenset[str]] = frozenset({"workers", "dask"})


class QuantizeRule(Struct, frozen=True):
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
            "`min_max` covers every weight; `percentile` cuts a share of them off; `entropy` loses "
            "least of how they are distributed; `mse` cuts the largest off where that makes the "
            "squared error smaller."
        ),
    ] = None
    percentile: Annotated[
        float | None,
        Option("With `percentile`: how many percent of the weights are kept. Else 99.99.", 50, 100),
    ] = None

    @property
    def text(self) -> str:
        """The rule as the transform takes it: words with blanks between."""
        words = [
            f"{key}={value}"
            for key in ("mode", "bits", "granularity", "method", "percentile")
            if (value := getattr(self, key)) is not None
        ]
        words += [f"ops={','.join(self.ops)}"] if self.ops else []
        return " ".join([*words, *([f"nodes={self.nodes}"] if self.nodes else [])])


class Quantize(Struct, frozen=True):
    """How constants are made smaller; its steps are part of the target's transforms already.

    Args:
        mode: ``weights`` stores 2 to 8 bits, ``float16`` and ``bfloat16`` 16, ``round`` rounds for
            compression, ``nodes`` computes in eight bits, ``auto`` does as far as the validation's
            limits allow; ``int4``, ``int8`` and ``int16x8`` are for LiteRT.
        parameters: those of the mode's transform that the recipe gives.
        bits: of ``weights``; None where they are not given.
        granularity: of ``weights``; None where it is not given.
        ranges: where the modes have ranges from that compute in integers.
        rules: what is done otherwise to some layers, the last that fits one counts.
        trials: how many graphs ``auto`` makes and measures at most.
        inference_input_type: what float inputs of a file for LiteRT become.
        inference_output_type: what float outputs become.
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
            "model was trained with (`trained`), by the calibration for tensors without. `int8` "
            "and `int16x8` have no `dynamic`, and take `observed` where nothing is said."
        ),
    ] = "dynamic"
    rules: tuple[QuantizeRule, ...] = ()
    trials: Annotated[
        int,
        Option(
            "With `auto`: how many graphs are made and measured at most, of which the best is "
            "taken. For 30 layers 7 are enough if none has to be float, and 14 otherwise.",
            minimum=1,
            maximum=64,
        ),
    ] = 16
    inference_input_type: Annotated[
        EndType,
        Option(
            "With `int8` and `int16x8`: what inputs in float are in the file: `float`, or integers "
            "with the scale and zero point that the file tells, `int8` or `uint8` with `int8`, "
            "`int16` with `int16x8`."
        ),
    ] = "float"
    inference_output_type: Annotated[EndType, Option("The same of outputs.")] = "float"
