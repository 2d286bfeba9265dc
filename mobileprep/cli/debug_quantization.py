"""The verb ``debug-quantization``: ranks layers and tensors by quantization error."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mobileprep.cli._shared.arguments import add_limit_flags, recipe_arguments
from mobileprep.cli.verb import Group, verb
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.building.quantization_debugging import FileDamage, QuantizationDamage
    from mobileprep.data.calibration.damage import TensorDamage

_SHOWN = 10


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    add_limit_flags(parser)
    parser.add_argument("--target", default="", help="Target, if the recipe quantizes several")
    parser.add_argument(
        "--samples",
        type=int,
        help="Number of validation or calibration samples [default: 16, or 4 for a LiteRT file]",
    )
    parser.add_argument("--seed", type=int, default=0, help="Seed for choosing the samples")
    parser.add_argument("--tensors", type=int, default=_SHOWN, help="Number of tensors to show")
    parser.add_argument("--json", action="store_true", help="Print all layers and tensors as JSON")


@verb(
    "debug-quantization",
    Group.INSPECT,
    "Rank layers and tensors by quantization error",
    _arguments,
    "mobileprep debug-quantization recipe.yaml --target phone",
)
def run(args: argparse.Namespace) -> int:
    """Print the errors of layers, largest first.

    For nodes, each layer is quantized alone, and all layers but one. For a LiteRT file, each layer
    is measured before and after each repair, as in the report.

    Raises:
        UsageError: there are several recipes, or a number is out of range.
    """
    from msgspec import to_builtins

    from mobileprep.building.quantization_debugging import (
        debug_quantization,
        debug_tflite,
        one_target,
    )
    from mobileprep.cli._shared.folders import load_recipes
    from mobileprep.cli._shared.telling import warn
    from mobileprep.core.parallel import report_progress

    if (args.samples is not None and args.samples < 1) or args.tensors < 0 or args.seed < 0:
        message = "--samples is at least 1, --seed and --tensors at least 0"
        raise UsageError(message, "leave them out for the defaults")
    recipes = load_recipes(args)
    if len(recipes) != 1:
        message = f"{len(recipes)} recipes are named"
        raise UsageError(message, "name the one whose target is to be looked into")
    alone = one_target(recipes[0], args.target)
    options = {"samples": args.samples, "seed": args.seed, "warn": warn}
    damage: FileDamage | QuantizationDamage
    if alone.targets[0].artifact == "tflite":
        damage = debug_tflite(
            alone,
            **options,
            tell=lambda done, count: report_progress("measuring", done, count, "runs"),
        )
        lines = _file_lines(damage)
    else:
        damage = debug_quantization(
            alone,
            **options,
            tell=lambda done, count: report_progress("quantizing", done, count, "layers"),
        )
        lines = _lines(damage, args.tensors)
    print(
        json.dumps(to_builtins(damage), sort_keys=True, indent=1) if args.json else "\n".join(lines)
    )
    return 0


def _file_lines(damage: FileDamage) -> Iterator[str]:
    from mobileprep.building.report.layout import TextTable, columns
    from mobileprep.building.stages.layers.report import (
        LAYER_HEADINGS,
        layer_cells,
        output_text,
        ranked_layers,
    )

    errors = damage.errors
    samples = f"{errors.samples} samples of {errors.data}"
    yield f"{damage.recipe}/{damage.target}: {samples}, against float"
    for output in errors.outputs:
        yield f"output {output.output}: {output_text(output, errors.repairs)}"
    if errors.layers:
        yield ""
        yield from columns(
            TextTable(LAYER_HEADINGS, tuple(map(layer_cells, ranked_layers(errors))), 2)
        )
    if damage.rule:
        yield ""
        yield "to leave the worst in float, under quantize:"
        yield f"  rules: [{damage.rule}]"


def _lines(damage: QuantizationDamage, tensors: int) -> Iterator[str]:
    samples = f"{damage.samples} samples of {damage.data}"
    yield f"{damage.recipe}/{damage.target}: {samples}, against float"
    decibels, share = damage.whole.sqnr, damage.whole.share_of_peak
    yield f"all layers: outputs at {decibels:.1f} dB, off by {share:.2g} of the peak"
    if damage.layers:
        yield ""
        yield from _layers(damage)
        yield ""
        yield "to leave the worst in float, under quantize:"
        yield f"  rules: [{damage.rule}]"
    if tensors and damage.tensors:
        yield ""
        yield from _tensors(damage.tensors[:tensors], len(damage.tensors))


def _layers(damage: QuantizationDamage) -> Iterator[str]:
    width = max(len("layer"), *(len(layer.layer) for layer in damage.layers))
    yield f"{'layer':{width}}  it alone        all but it"
    yield f"{'':{width}}  {'dB':>6} {'off by':>8} {'dB':>6} {'off by':>8}"
    for layer in damage.layers:
        numbers = " ".join(
            f"{part.sqnr:6.1f} {part.share_of_peak:8.2g}" for part in (layer.alone, layer.without)
        )
        yield f"{layer.layer:{width}}  {numbers}"


def _tensors(tensors: tuple[TensorDamage, ...], count: int) -> Iterator[str]:
    width = max(len("tensor"), *(len(tensor.tensor) for tensor in tensors))
    yield f"{'tensor':{width}}  {'dB':>6} {'cosine':>7} {'clipped':>8} {'RMSE/scale':>10}"
    for tensor in tensors:
        damage = tensor.damage
        clipped = "" if damage.clipped is None else f"{damage.clipped:.2%}"
        steps = "" if damage.rmse_over_scale is None else f"{damage.rmse_over_scale:.3f}"
        yield (
            f"{tensor.tensor:{width}}  {damage.sqnr:6.1f} {damage.cosine:7.4f} "
            f"{clipped:>8} {steps:>10}".rstrip()
        )
    yield f"{len(tensors)} of {count} tensors; rounding alone has an RMSE of 0.289 of the scale"
