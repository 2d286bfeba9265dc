"""What a .tflite file tells the task library: pictures, how they are normalized, and classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.formats.tflite.metadata import DescriptionTable
from mobileprep.ir.attrs import TensorShape
from mobileprep.packaging.integration.app_model import AppTensor, Pictures

LABELS: Final = "labels.txt"
"""The name of the classes' file behind the model."""

# What is written here, readers of the format's first version know.
_READER: Final = "1.0.0"
_COLOURS: Final = {"rgb": "RGB", "grayscale": "GRAYSCALE"}
_WHITE: Final = 255.0


def described(
    name: str,
    inputs: Sequence[AppTensor],
    outputs: Sequence[AppTensor],
    pictures: Pictures | None,
    classes: int,
) -> DescriptionTable:
    """The description of a model.

    Args:
        name: the model's.
        inputs: what is fed, in the file's order.
        outputs: what is fetched, in the file's order.
        pictures: how pictures become values of an input; None where none are fed. Readers know no
            order but red, green and blue, so pictures in another one are told as plain numbers.
        classes: how many there are in the file of classes; 0 for none. They are of the first
            output whose last size this is.
    """
    labelled = next((t for t in outputs if classes and t.shape and t.shape[-1] == classes), None)
    graph = DescriptionTable(
        "SubGraphMetadata",
        {
            "input_tensor_metadata": [_input(tensor, pictures) for tensor in inputs],
            "output_tensor_metadata": [_output(t, is_labelled=t is labelled) for t in outputs],
        },
    )
    return DescriptionTable(
        "ModelMetadata",
        {"name": name, "subgraph_metadata": [graph], "min_parser_version": _READER},
    )


def _input(tensor: AppTensor, pictures: Pictures | None) -> DescriptionTable:
    if pictures is None or pictures.input != tensor.name or pictures.channels not in _COLOURS:
        return DescriptionTable("TensorMetadata", {"name": tensor.name})
    mean, std = pictures.mean, pictures.std
    least = [-m / s for m, s in zip(mean, std, strict=True)]
    most = [(_WHITE - m) / s for m, s in zip(mean, std, strict=True)]
    colours = {"color_space": _COLOURS[pictures.channels], **_size(tensor.shape)}
    normalization = DescriptionTable("NormalizationOptions", {"mean": mean, "std": std})
    return DescriptionTable(
        "TensorMetadata",
        {
            "name": tensor.name,
            "content": DescriptionTable(
                "Content", {"content_properties": DescriptionTable("ImageProperties", colours)}
            ),
            "process_units": [DescriptionTable("ProcessUnit", {"options": normalization})],
            "stats": DescriptionTable("Stats", {"max": most, "min": least}),
        },
    )


def _size(shape: TensorShape) -> dict[str, DescriptionTable]:
    """The size of pictures, where a shape has one."""
    if shape is None or len(shape) < 3 or min(shape[-3:-1]) < 1:
        return {}
    height, width = shape[-3:-1]
    return {"default_size": DescriptionTable("ImageSize", {"width": width, "height": height})}


def _output(tensor: AppTensor, *, is_labelled: bool) -> DescriptionTable:
    if not is_labelled:
        return DescriptionTable("TensorMetadata", {"name": tensor.name})
    file = DescriptionTable("AssociatedFile", {"name": LABELS, "type": "TENSOR_AXIS_LABELS"})
    return DescriptionTable("TensorMetadata", {"name": tensor.name, "associated_files": [file]})
