"""Data options: keys of a recipe, used by the readers of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from mobileprep.core.declare import Option

DataKind: TypeAlias = Literal["npz", "npy", "pictures", "wav", "csv", "tfrecord", "python"]


Channels: TypeAlias = Literal["rgb", "bgr", "grayscale"]


Encoding: TypeAlias = Literal["values", "raw", "picture", "wav"]


Delimiter: TypeAlias = Literal["comma", "semicolon", "tab"]


DATA_KINDS: Final[tuple[DataKind, ...]] = get_args(DataKind)


FOLDERS: Final = "folders"
"""Value of ``labels``: the name of the file's directory."""


_IMAGE_KEYS: Final = (*("resize", "half_pixel_centers", "central_crop", "mean", "std", "channels"),)


_SOUND_KEYS: Final = ("desired_channels", "desired_samples")


KINDS_OF_KEYS: Final[Mapping[str, tuple[DataKind, ...]]] = {
    "input": ("npy", "pictures", "wav"),
    "inputs": ("npz", "csv"),
    "features": ("tfrecord",),
    "labels": ("npz", "npy", "pictures", "wav", "csv", "tfrecord"),
    "classes": ("pictures", "wav", "csv", "tfrecord", "python"),
    **dict.fromkeys(_IMAGE_KEYS, ("pictures", "tfrecord")),
    **dict.fromkeys(_SOUND_KEYS, ("wav", "tfrecord")),
    "delimiter": ("csv",),
    "header": ("csv",),
    "function": ("python",),
    "files": ("python",),
}
"""The formats that support each additional key."""


LABEL_FILES: Final[tuple[DataKind, ...]] = ("npy", "pictures", "wav")
"""The formats whose ``labels`` key names a file."""


class FeatureReading(Struct, frozen=True):
    """How a feature of a ``tf.train.Example`` is converted to an input.

    Args:
        shape: the shape of one sample, all sizes known; None for the input's.
    """

    key: Annotated[str, Option("The feature's name. Required.", min_length=1)]
    encoding: Annotated[
        Encoding,
        Option(
            "Encoding of the feature: numbers or strings (`values`), the bytes of an array "
            "(`raw`), an image file (`picture`), or an audio file (`wav`)."
        ),
    ] = "values"
    dtype: Annotated[
        str | None,
        Option(
            "The element type of `raw` bytes, little-endian. Without it, the input's.",
            choices=("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
        ),
    ] = None
    shape: Annotated[
        tuple[int, ...] | None,
        Option(
            "The sizes of one sample's dimensions. Without it, the input's.",
            minimum=1,
            maximum=2147483647,
            max_items=254,
        ),
    ] = None


class Reading(Struct, frozen=True):
    """How files are converted to samples; see ``KINDS_OF_KEYS`` for the formats of each option.

    Args:
        inputs: for each input by name: the array or columns with its values.
        features: for each input by name: the feature.
        mean: one number, or one per channel; None for the default of the input's type.
        std: like ``mean``.
    """

    input: Annotated[
        str | None,
        Option("Input to feed. Required if the model has several.", definition="tensor"),
    ] = None
    inputs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    features: tuple[tuple[str, FeatureReading], ...] = ()
    labels: str | None = None
    resize: Annotated[
        tuple[int, ...] | None,
        Option(
            "Height and width to resize images to, with TensorFlow's `ResizeBilinear`. Default: "
            "those of the input's shape.",
            minimum=1,
            maximum=16384,
            min_items=2,
            max_items=2,
        ),
    ] = None
    half_pixel_centers: Annotated[
        bool,
        Option("Resize as TensorFlow 2 does, from the pixels' centers, as `tf.image.resize`."),
    ] = False
    central_crop: Annotated[
        float | None,
        Option(
            "Share of each side to keep before resizing, as in `tf.image.central_crop`.",
            minimum=0.001,
            maximum=1,
        ),
    ] = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels: Annotated[
        Channels,
        Option("Order of an image's channels, or luminance (`grayscale`)."),
    ] = "rgb"
    desired_channels: Annotated[
        int | None,
        Option(
            "Number of audio channels, as in TensorFlow's `DecodeWav`: further ones are dropped, "
            "the last one is repeated. Default: that of the file.",
            minimum=1,
            maximum=255,
        ),
    ] = None
    desired_samples: Annotated[
        int | None,
        Option(
            "Length of audio in samples, as in TensorFlow's `DecodeWav`: truncated or padded with"
            " zeros. Default: that of the input's shape, or of the file.",
            minimum=1,
            maximum=2147483647,
        ),
    ] = None
    delimiter: Annotated[Delimiter, Option("Separator between columns.")] = "comma"
    header: Annotated[
        bool,
        Option("Whether the first line names the columns. Without names they count from 0."),
    ] = True
    function: Annotated[
        str,
        Option(
            "The function that yields samples: dictionaries of an array for each input, or pairs "
            "of such a dictionary and a label.",
            min_length=1,
        ),
    ] = "samples"


Interpolation: TypeAlias = Literal["bilinear", "nearest"]


class Preprocessing(Struct, frozen=True):
    """The conversion of decoded images or audio to an input, in the order of the fields.

    Args:
        decoded: the tensor of the decoder in the original graph; empty if it has none.
        input: the input that replaces it, or that the app feeds.
        central_crop: share of each side to keep; None for the whole image.
        resize: height and width; None for the image's own.
        interpolation: how to resize.
        align_corners: corner pixels map to corner pixels.
        half_pixel_centers: positions refer to the centers of pixels.
        channels: order of an image's channels.
        mean: subtracted from each channel, after resizing.
        std: divisor of each channel.
        desired_samples: length of audio in samples, or None.
        desired_channels: number of channels of audio, or None.
        rate: the input for the sample rate of audio; empty if the graph does not read it.
        is_audio: whether the input is audio: samples from -1 to 1.
    """

    decoded: str
    input: str
    central_crop: float | None = None
    resize: tuple[int, int] | None = None
    interpolation: Interpolation = "bilinear"
    align_corners: bool = False
    half_pixel_centers: bool = False
    channels: Channels = "rgb"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    desired_samples: int | None = None
    desired_channels: int | None = None
    rate: str = ""
    is_audio: bool = False

    def __str__(self) -> str:
        """Describe the conversion in one line."""
        if self.is_audio:
            length = "" if self.desired_samples is None else f"{self.desired_samples} samples, "
            count = self.desired_channels
            channels = "" if count is None else f"{count} channel{'s' * (count != 1)}, "
            return f"audio, {length}{channels}-1 to 1"
        parts: list[str] = [self.channels]
        if self.central_crop is not None:
            parts.append(f"central crop {self.central_crop:g}")
        if self.resize is not None:
            flags = " align_corners" * self.align_corners
            flags += " half_pixel_centers" * self.half_pixel_centers
            parts.append(f"{self.interpolation} {self.resize[0]} x {self.resize[1]}{flags}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            parts.append(f"{name} {', '.join(f'{value:.6g}' for value in values)}")
        return "; ".join(parts)


AUTO: Final = "auto"


HISTOGRAM_METHODS: Final = frozenset({AUTO, "percentile", "entropy", "mse"})


MOVING_AVERAGE: Final = "moving_average"


class Method(Struct, frozen=True):
    """A calibration method.

    Args:
        name: ``auto``, ``min_max``, ``moving_average``, ``percentile``, ``entropy``, or ``mse``.
        percentile: the percentage of values that ``percentile`` covers.
        decay: the weight of previous batches in ``moving_average``.
    """

    name: str
    percentile: float
    decay: float

    @property
    def has_histogram(self) -> bool:
        """Whether the method needs a histogram besides the minimum and maximum."""
        return self.name in HISTOGRAM_METHODS

    def __str__(self) -> str:
        """Return the method as written in range files."""
        if self.name == "percentile":
            return f"{self.name} {self.percentile:g}"
        return f"{self.name} {self.decay:g}" if self.name == MOVING_AVERAGE else self.name
