"""The verb ``tflite``: converts a model to a ``.tflite`` file for LiteRT."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from mobileprep.cli._shared.arguments import add_ends, add_shapes, shapes_of
from mobileprep.cli._shared.telling import warn
from mobileprep.cli.verb import Group, bool_flag, comma_list, file_name, flag, verb
from mobileprep.core.paths import output_path
from mobileprep.errors import UsageError
from mobileprep.recipe.settings import DetectionPostprocess
from mobileprep.recipe.validation_settings import BlockSize

if TYPE_CHECKING:
    from mobileprep.graph.attrs import TensorShape

# Same as MODES and END_TYPES of litert, which imports numpy; a test compares them.
_MODES: Final = ("float", "float16", "weights", "int4", "int8", "int16x8")
_TYPES: Final = ("float", "int8", "uint8", "int16")


def _arguments(parser: argparse.ArgumentParser) -> None:
    source = "Frozen graph, SavedModel directory, or MetaGraph (.meta)"
    flag(parser, "in_graph", required=True, type=file_name, metavar="FILE", help=source)
    flag(
        parser,
        "out_file",
        required=True,
        metavar="FILE",
        help=".tflite file to write, or - for standard output",
    )
    add_ends(parser)
    add_shapes(parser)
    flag(
        parser,
        "mode",
        default="float",
        choices=_MODES,
        help="float; weights only: float16, or int8 or int4 per channel; "
        "or integer only, with 8-bit weights and 8-bit or 16-bit activations",
    )
    blocks = "With int4: weights of a channel that share a scale, where LiteRT supports it"
    flag(parser, "block_size", type=int, choices=get_args(BlockSize), help=blocks)
    ranges = "With int8 and int16x8: range file of 'calibrate', or samples (.npz)"
    flag(parser, "calibration", metavar="FILE", help=ranges)
    for end in ("input", "output"):
        help_text = f"With int8 and int16x8: dtype of the float {end}s"
        flag(parser, f"inference_{end}_type", default="float", choices=_TYPES, help=help_text)
    bool_flag(
        parser,
        "hints",
        default=False,
        help_line="Print the operators that XNNPACK does not run; needs ai-edge-litert",
    )
    bool_flag(
        parser,
        "flex",
        default=False,
        help_line="Keep ops without a LiteRT operator for the Flex delegate",
    )
    flag(
        parser,
        "detection_postprocess",
        default="keep",
        choices=get_args(DetectionPostprocess),
        help="auto replaces the post-processing of an SSD model from TensorFlow's object detection "
        "API with TFLite_Detection_PostProcess",
    )
    runtime = "Oldest TensorFlow Lite release that must run the file, such as 2.14"
    flag(parser, "min_runtime", type=_release, metavar="VERSION", help=runtime)
    stream = "Time steps of each call of a recurrent model; its states become inputs and outputs"
    flag(parser, "streaming", type=_count, metavar="STEPS", help=stream)


def _count(text: str) -> int:
    """Parse a positive number."""
    if not text.isdecimal() or int(text) < 1:
        message = f"invalid number of time steps {text!r}: expected 1 or more"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _release(text: str) -> str:
    """Check a TensorFlow Lite release, such as ``2.14`` or ``2.14.0``."""
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        message = f"invalid release {text!r}: expected two or three numbers, such as 2.14"
        raise argparse.ArgumentTypeError(message)
    return text


@verb(
    "tflite",
    Group.LITERT,
    "Convert a model to a .tflite file for LiteRT",
    _arguments,
    "mobileprep tflite --in_graph=frozen.pb --out_file=model.tflite",
    "mobileprep tflite --in_graph=frozen.pb --out_file=model.tflite --mode=int8 "
    "--calibration=samples.npz",
)
def run(args: argparse.Namespace) -> int:
    """Convert the model, write the file, and print its size and its operators."""
    from mobileprep.building.litert_files import to_tflite

    inputs = comma_list(args.inputs)
    done = to_tflite(
        Path(args.in_graph),
        output_path(args.out_file),
        inputs=inputs,
        outputs=comma_list(args.outputs),
        shapes=_shapes(args.input_shapes, inputs),
        mode=args.mode,
        block_size=args.block_size or 0,
        calibration=Path(args.calibration) if args.calibration else None,
        input_type=args.inference_input_type,
        output_type=args.inference_output_type,
        flex=args.flex,
        detection_postprocess=args.detection_postprocess,
        min_runtime=args.min_runtime or "",
        streaming=args.streaming,
        warn=warn,
    )
    fed, fetched = ", ".join(done.inputs), ", ".join(done.outputs)
    message = (
        f"{args.out_file}: {done.operators} operators, {done.size:,} bytes; {fed} to {fetched}"
    )
    if done.flex:
        message += f"\nthe app has to link the Flex delegate, for {', '.join(done.flex)}"
    if args.hints:
        message += f"\n{_hint(done.file)}"
    print(message, file=sys.stderr)
    return 0


def _hint(file: Path) -> str:
    """Count the operators that XNNPACK runs, and list the others."""
    from mobileprep.runtime.engines.litert_engine import fast_path

    coverage = fast_path(file)
    delegated = coverage.operators - sum(coverage.left.values())
    others = ", ".join(f"{count} {name}" for name, count in coverage.left.items())
    rest = f"; LiteRT's own kernels run {others}" if others else ""
    return f"XNNPACK runs {delegated} of {coverage.operators} operators of the main subgraph{rest}"


def _shapes(text: str, inputs: tuple[str, ...]) -> dict[str, TensorShape]:
    """Map the names of inputs to their shapes."""
    shapes = shapes_of(text)
    if shapes and len(shapes) != len(inputs):
        message = f"{len(shapes)} shapes for {len(inputs)} inputs"
        raise UsageError(message, "name the inputs with --inputs, and give each a shape")
    return dict(zip(inputs, shapes, strict=True)) if shapes else {}
