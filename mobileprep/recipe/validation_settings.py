"""The section ``validation`` of a recipe: metrics and their limits."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Annotated, Final, Literal

from mobileprep.frozen import dataclass
from mobileprep.options.declare import Option
from mobileprep.recipe.settings import ASIDE, Data, InputFile, SampleCount, SampleSeed

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
