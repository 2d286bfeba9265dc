"""The verb ``tflite``: a frozen graph as a file that LiteRT runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from mobileprep.cli._shared.arguments import add_ends, add_shapes, shapes_of
from mobileprep.cli.verb import bool_flag, comma_list, file_name, flag, verb
from mobileprep.core.paths import output_path
from mobileprep.errors import UsageError
from mobileprep.recipe.settings import DetectionPostprocess

if TYPE_CHECKING:
    from mobileprep.graph.attrs import TensorShape

# MODES and END_TYPES of litert, which imports numpy; a test holds them together.
_MODES: Final = ("float", "float16", "weights", "int4", "int8", "int16x8")
_TYPES: Final = ("float", "int8", "uint8", "int16")


def _arguments(parser: argparse.ArgumentParser) -> None:
    source = "a frozen graph, the folder of a SavedModel, or a MetaGraph (.meta)"
    flag(parser, "in_graph", required=True, type=file_name, metavar="FILE", help=source)
    flag(parser, "out_file", required=True, metavar="FILE", help="the .tflite file, - for stdout")
    add_ends(parser)
    add_shapes(parser)
    flag(
        parser,
        "mode",
        default="float",
        choices=_MODES,
        help="weights as they are, in float16, or in int8 or int4 with a scale for each channel; "
        "or all in integers: activations of 8 or 16 bits, weights of 8",
    )
    ranges = "with int8 and int16x8: a range file of 'calibrate', or samples, such as an .npz file"
    flag(parser, "calibration", metavar="FILE", help=ranges)
    for end in ("input", "output"):
        told = f"with int8 and int16x8: what {end}s in float become"
        flag(parser, f"inference_{end}_type", default="float", choices=_TYPES, help=told)
    bool_flag(
        parser,
        "hints",
        default=False,
        help_line="tell which operators XNNPACK leaves; needs ai-edge-litert",
    )
    bool_flag(
        parser,
        "flex",
        default=False,
        help_line="leave ops that LiteRT cannot express to the Flex delegate, which the app links",
    )
    flag(
        parser,
        "detection_postprocess",
        default="keep",
        choices=get_args(DetectionPostprocess),
        help="auto replaces the post-processor of an SSD model, as TensorFlow's object detection "
        "API exports it, by TFLite_Detection_PostProcess",
    )
    runtime = "oldest TensorFlow Lite release that has to run the file, such as 2.14"
    flag(parser, "min_runtime", type=_release, metavar="VERSION", help=runtime)


def _release(text: str) -> str:
    """A release of TensorFlow Lite, such as ``2.14`` or ``2.14.0``."""
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        message = f"invalid release {text!r}: expected two or three numbers, such as 2.14"
        raise argparse.ArgumentTypeError(message)
    return text


@verb("tflite", "write a model as a .tflite file, which LiteRT runs", _arguments)
def run(args: argparse.Namespace) -> int:
    """Convert, write, tell what was written."""
    from mobileprep.building.litert_files import convert_to_tflite

    inputs = comma_list(args.inputs)
    done = convert_to_tflite(
        Path(args.in_graph),
        output_path(args.out_file),
        inputs=inputs,
        outputs=comma_list(args.outputs),
        shapes=_shapes(args.input_shapes, inputs),
        mode=args.mode,
        calibration=Path(args.calibration) if args.calibration else None,
        input_type=args.inference_input_type,
        output_type=args.inference_output_type,
        flex=args.flex,
        detection_postprocess=args.detection_postprocess,
        min_runtime=args.min_runtime or "",
        warn=lambda sentence: print(f"mobileprep: {sentence}", file=sys.stderr),
    )
    fed, fetched = ", ".join(done.inputs), ", ".join(done.outputs)
    told = f"{args.out_file}: {done.operators} operators, {done.size:,} bytes; {fed} to {fetched}"
    if done.flex:
        told += f"\nthe app has to link the Flex delegate, for {', '.join(done.flex)}"
    if args.hints:
        told += f"\n{_hint(done.file)}"
    print(told, file=sys.stderr)
    return 0


def _hint(file: Path) -> str:
    """Which operators LiteRT's fast path leaves."""
    from mobileprep.runtime.engines.litert_engine import fast_path

    found = fast_path(file)
    taken = found.operators - sum(found.left.values())
    left = ", ".join(f"{count} {name}" for name, count in found.left.items())
    rest = f"; LiteRT's own kernels run {left}" if left else ""
    return f"XNNPACK runs {taken} of {found.operators} operators of the main subgraph{rest}"


def _shapes(text: str, inputs: tuple[str, ...]) -> dict[str, TensorShape]:
    """Shapes by the names of inputs, in their order."""
    shapes = shapes_of(text)
    if shapes and len(shapes) != len(inputs):
        message = f"{len(shapes)} shapes are given for {len(inputs)} inputs"
        raise UsageError(message, "name the inputs with --inputs, and give each a shape")
    return dict(zip(inputs, shapes, strict=True)) if shapes else {}
