"""The section ``pipeline``: models in the order in which an app runs them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, ClassVar

from msgspec import Struct

from mobileprep.core.declare import Located, Option
from mobileprep.recipe.settings import Data, SampleCount

_MAX_SIDE = 16_384


class Scales(Struct, frozen=True):
    """An image pyramid, as in MTCNN (Zhang et al., 2016, arXiv:1604.02878).

    The first scale maps objects of ``min_size`` pixels to the window. Each further scale is
    ``factor`` times the previous one, as long as the window fits in the scaled image.
    """

    min_size: Annotated[
        int,
        Option(
            "Size of the smallest object to find, in pixels of the image. Required.",
            minimum=1,
            maximum=_MAX_SIDE,
        ),
    ]
    factor: Annotated[
        float, Option("Ratio of each scale to the previous one.", minimum=0.1, maximum=0.95)
    ] = 0.709


class Windows(Struct, frozen=True):
    """A sliding window over an image. Sizes and strides are height and width in pixels."""

    image: Annotated[
        tuple[int, ...],
        Option(
            "Height and width of the image in pixels. Required.",
            minimum=1,
            maximum=_MAX_SIDE,
            min_items=2,
            max_items=2,
        ),
    ]
    window: Annotated[
        tuple[int, ...],
        Option(
            "Height and width of the window in pixels. Required.",
            minimum=1,
            maximum=_MAX_SIDE,
            min_items=2,
            max_items=2,
        ),
    ]
    stride: Annotated[
        tuple[int, ...],
        Option(
            "Vertical and horizontal step of the window in pixels. Required.",
            minimum=1,
            maximum=_MAX_SIDE,
            min_items=2,
            max_items=2,
        ),
    ]
    scales: Annotated[
        Scales | None,
        Option("The image pyramid. Default: only the image itself.", definition="scales"),
    ] = None

    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Return height and width of the image at each scale, rounded up, largest first.

        Empty if the window does not fit in the image at any scale.
        """
        return tuple(
            (math.ceil(self.image[0] * scale), math.ceil(self.image[1] * scale))
            for scale in self._scales()
        )

    def count(self, size: tuple[int, int]) -> int:
        """Return the number of window positions that fit in an image."""
        down, right = (
            (side - window) // stride + 1
            for side, window, stride in zip(size, self.window, self.stride, strict=True)
        )
        return down * right

    def _scales(self) -> Iterator[Fraction]:
        scale = Fraction(1)
        factor = Fraction(0)
        if self.scales is not None:
            scale = Fraction(min(self.window), self.scales.min_size)
            # The decimal number of the recipe, not its nearest binary fraction.
            factor = Fraction(repr(self.scales.factor))
        while scale and all(
            side * scale >= window for side, window in zip(self.image, self.window, strict=True)
        ):
            yield scale
            scale *= factor


class RunCounts(Struct, frozen=True):
    """Number of runs for one input of the pipeline, such as proposals of an image."""

    expected: Annotated[float, Option("Mean number of runs. Required.", minimum=0)]
    p95: Annotated[
        int,
        Option(
            "95th percentile of the number of runs. Required.", minimum=0, maximum=1_000_000_000
        ),
    ]
    worst: Annotated[
        int, Option("Largest number of runs. Required.", minimum=0, maximum=1_000_000_000)
    ]


class PassRate(Struct, frozen=True):
    """A pass rate to measure: the share of values of the previous model that reach a threshold."""

    data: Annotated[
        Data,
        Option(
            "Samples of the previous model's inputs: a file, a directory, or a mapping. Required.",
            definition="data",
        ),
    ]
    threshold: Annotated[float, Option("Smallest value that passes. Required.")]
    output: Annotated[
        str | None,
        Option("Output of the previous model. Default: its first output.", definition="tensor"),
    ] = None
    class_index: Annotated[
        int | None,
        Option(
            "Index in the last axis of the output, such as 1 for the second class of a softmax. "
            "Default: all values count.",
            minimum=0,
            maximum=1_000_000,
        ),
    ] = None
    samples: SampleCount = None


class PipelineStep(Located, frozen=True):
    """A model of a pipeline, and how often it runs for one input.

    Args:
        place: location of the step, ``file:line:column``.
    """

    model: Annotated[str, Option("Name of the model. Required.", definition="name")]
    runs: Annotated[
        int | RunCounts | None,
        Option(
            "Number of runs for one input: a number, or a mapping. Default: 1.", definition="runs"
        ),
    ] = None
    windows: Annotated[
        Windows | None,
        Option("A sliding window, which determines the number of runs.", definition="windows"),
    ] = None
    pass_rate: Annotated[
        float | PassRate | None,
        Option(
            "Share of the previous step's windows or runs that this step runs for: a number, or a "
            "mapping that measures it on data.",
            definition="pass_rate",
        ),
    ] = None
    place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place"})


class LatencyLimits(Struct, frozen=True):
    """Limits of the latency of a pipeline, in milliseconds."""

    expected: Annotated[float | None, Option("Limit of the mean.", minimum=1e-6)] = None
    p95: Annotated[float | None, Option("Limit of the 95th percentile.", minimum=1e-6)] = None
    worst: Annotated[float | None, Option("Limit of the worst case.", minimum=1e-6)] = None


class FlopsLimits(Struct, frozen=True):
    """Limits of the operations of a pipeline."""

    expected: Annotated[int | None, Option("Limit of the mean.", definition="flops")] = None
    p95: Annotated[int | None, Option("Limit of the 95th percentile.", definition="flops")] = None
    worst: Annotated[int | None, Option("Limit of the worst case.", definition="flops")] = None


class PipelineBudget(Struct, frozen=True):
    """Limits for one input of a pipeline; None for no limit."""

    latency_ms: Annotated[
        LatencyLimits | None,
        Option(
            "Longest times in milliseconds at the rate of the target's `device`.",
            definition="latency_limits",
        ),
    ] = None
    flops: Annotated[
        FlopsLimits | None,
        Option("Largest numbers of operations.", definition="flops_limits"),
    ] = None
    ram: Annotated[
        int | None,
        Option("Largest memory of model files and tensors.", definition="size"),
    ] = None


class Pipeline(Struct, frozen=True):
    """Models in the order in which an app runs them for one input."""

    steps: Annotated[
        tuple[PipelineStep, ...],
        Option("Models in order. Required.", definition="pipeline_step", min_items=1, max_items=50),
    ] = ()
    keep_loaded: Annotated[
        bool,
        Option(
            "Whether the app keeps all models in memory, instead of one model at a time.",
        ),
    ] = True
    budget: Annotated[
        PipelineBudget | None,
        Option(
            "Limits for one input. A build that exceeds one fails.", definition="pipeline_budget"
        ),
    ] = None
