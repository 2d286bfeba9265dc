"""Preprocessing that a recipe states, for graphs that do not decode images themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from msgspec import Struct

from mobileprep.core.declare import Option
from mobileprep.data.options import Channels, Interpolation
from mobileprep.recipe.settings import InputSpec

_IMAGE_RANKS = (3, 4)


class Conflict(NamedTuple):
    """A key that does not fit the others, or the shape of the input."""

    key: str
    message: str
    hint: str


class StatedPreprocessing(Struct, frozen=True):
    """The conversion of a decoded image to an input; keys and defaults are those of ``Reading``.

    Args:
        input: the input; None for the only one.
        resize: height and width; None for those of the input's shape.
        mean: one number, or one per channel; None for 0.
        std: like ``mean``; None for 255, or for 1 if the input has an integer dtype.
    """

    input: str | None = None
    central_crop: float | None = None
    resize: Annotated[
        tuple[int, ...] | None,
        Option(
            "Height and width to resize images to. Default: those of the input's shape.",
            minimum=1,
            maximum=16384,
            min_items=2,
            max_items=2,
        ),
    ] = None
    interpolation: Annotated[
        Interpolation,
        Option("How to resize: as TensorFlow's `ResizeBilinear`, or as `ResizeNearestNeighbor`."),
    ] = "bilinear"
    align_corners: Annotated[
        bool,
        Option("Resize so that corner pixels map to corner pixels. Not with `half_pixel_centers`."),
    ] = False
    half_pixel_centers: bool = False
    channels: Channels = "rgb"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def channel_count(self) -> int:
        """Number of channels of the input."""
        return 1 if self.channels == "grayscale" else 3

    def conflicts(self) -> Iterator[Conflict]:
        """Yield the keys that do not fit the others."""
        for key, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, self.channel_count):
                message = f"{key!r} has {len(values)} numbers for {self.channel_count} channels"
                yield Conflict(key, message, "give one number, or one for each channel")
        if self.std is not None and 0 in self.std:
            yield Conflict("std", "values cannot be divided by 0", "leave 'std' out, or use 1")
        if self.align_corners and self.half_pixel_centers:
            message = "'align_corners' and 'half_pixel_centers' exclude each other"
            yield Conflict(
                "align_corners", message, "keep the one with which the model was trained"
            )

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Return the inputs to which the preprocessing can apply."""
        own = None if self.input is None else self.input.removesuffix(":0")
        return [name for name in names if own in (None, name.removesuffix(":0"))]

    def conflicts_among(self, names: Sequence[str]) -> Iterator[Conflict]:
        """Yield the key ``input`` if it does not select one of the inputs."""
        if len(self.chosen(names)) == 1:
            return
        listed = ", ".join(names) or "none"
        message = f"{self.input!r} is not one of the inputs: {listed}"
        if self.input is None:
            message = f"the preprocessing names none of {len(names)} inputs: {listed}"
        yield Conflict("input", message, "write 'input: NAME' below 'preprocessing'")

    def conflicts_with(self, name: str, shape: tuple[int, ...] | None) -> Iterator[Conflict]:
        """Yield the keys that do not fit the shape of the input, with -1 for unknown sizes."""
        if shape is None:
            return
        if len(shape) not in _IMAGE_RANKS:
            message = (
                f"the input {name!r} has the shape {list(shape)}, which is not that of an image"
            )
            hint = "name an input with the shape [batch, height, width, channels]"
            yield Conflict("input", message, hint)
            return
        height, width, count = shape[-3:]
        if count not in (-1, self.channel_count):
            message = (
                f"{self.channels!r} has {self.channel_count} channels, and the input {name!r} "
            )
            hints = {1: "write 'channels: grayscale'", 3: "write 'channels: rgb' or 'bgr'"}
            hint = hints.get(count, "name an input with 1 or 3 channels")
            yield Conflict("channels", f"{message}{count}", hint)
        if self.resize is None:
            if (height < 0) != (width < 0):
                message = f"the input {name!r} has only one known side: {list(shape)}"
                yield Conflict("resize", message, "add 'resize: [HEIGHT, WIDTH]'")
            return
        pairs = zip(self.resize, (height, width), strict=True)
        if any(side >= 0 and own != side for own, side in pairs):
            message = (
                f"the size {self.resize[0]} x {self.resize[1]} does not fit the input {name!r} "
            )
            message += f"with the shape {list(shape)}"
            yield Conflict("resize", message, "give the height and width of the input's shape")


def stated_conflicts(
    stated: StatedPreprocessing, inputs: tuple[InputSpec, ...]
) -> Iterator[Conflict]:
    """Yield the keys that do not fit the others, or the inputs as the recipe declares them."""
    yield from stated.conflicts()
    if not inputs:
        return
    names = [spec.name for spec in inputs]
    yield from stated.conflicts_among(names)
    for name in stated.chosen(names)[:1]:
        yield from stated.conflicts_with(name, inputs[names.index(name)].shape)
