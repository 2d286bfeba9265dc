"""The verb ``choose``: compares candidate models before one is prepared."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING, Final

from mobileprep.cli._shared.arguments import (
    add_ends,
    add_limit_flags,
    add_shapes,
    shapes_of,
    tensorflow_argument,
)
from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import columns, is_terminal, show
from mobileprep.cli.verb import Group, comma_list, file_name, flag, verb, whole_number
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.building.stages.candidate.spec import Candidate

_WIDTH: Final = 160
_SORTS: Final = ("parameters", "size", "flops", "latency", "ram", "metric")
_RUNTIMES: Final = ("tensorflow", "litert")


def _arguments(parser: argparse.ArgumentParser) -> None:
    model = "GraphDef, MetaGraph (.meta), SavedModel directory, .tflite file, or checkpoint"
    parser.add_argument("models", nargs="+", type=file_name, metavar="MODEL", help=model)
    device = "Device or profile to estimate latencies for"
    flag(parser, "device", default="", metavar="NAME", help=device)
    add_ends(parser)
    add_shapes(parser)
    batch = "Size assumed for unknown dimensions of inputs"
    flag(parser, "batch", type=whole_number, default=1, metavar="N", help=batch)
    runtime = "Runtime whose unsupported ops are listed: tensorflow or litert"
    flag(parser, "runtime", default="tensorflow", metavar="NAME", choices=_RUNTIMES, help=runtime)
    platform = "Platform of TensorFlow Mobile: android, ios, raspberry-pi, linux, or generic"
    flag(parser, "platform", default="android", metavar="NAME", help=platform)
    tensorflow_argument(parser)
    data = "Labeled samples to run the models on: a file or a directory"
    flag(parser, "data", type=file_name, default=None, metavar="PATH", help=data)
    labels = "File of labels, or name of the labels in the data"
    flag(parser, "labels", default="", metavar="PATH", help=labels)
    metric = "Metric of the labels, such as top1, top5, or mean_absolute_error"
    flag(parser, "metric", default="top1", metavar="NAME", help=metric)
    samples = "Number of samples [default: all]"
    flag(parser, "samples", type=whole_number, default=None, metavar="N", help=samples)
    engine = "Engine that runs the models: numpy, openvino, litert, tensorflow, or auto"
    flag(parser, "engine", default="numpy", metavar="NAME", help=engine)
    sort = f"Column to sort by, best first: {', '.join(_SORTS)} [default: order given]"
    flag(parser, "sort", default=None, metavar="COLUMN", choices=_SORTS, help=sort)
    add_limit_flags(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")


@verb(
    "choose",
    Group.INSPECT,
    "Compare the sizes, latency, memory, and accuracy of candidate models",
    _arguments,
    "mobileprep choose small.pb large.pb --device raspberry-pi-3",
    "mobileprep choose *.pb --data test.npz --metric top5 --sort latency",
)
def run(args: argparse.Namespace) -> int:
    """Print the table; return 1 if no model can be counted, else 0."""
    from msgspec import to_builtins
    from msgspec.structs import replace

    from mobileprep.building.choosing import LabeledSamples, choose
    from mobileprep.building.stages.candidate.report import candidate_lines
    from mobileprep.recipe.validation_settings import metric_facts
    from mobileprep.targets.headers import release_of

    if args.data is None and (args.labels or args.samples):
        message = "--labels and --samples need --data"
        raise UsageError(message, "name the labeled samples with --data=PATH")
    if args.samples == 0:
        message = "--samples is at least 1"
        raise UsageError(message, "leave it out for all samples")
    data = None
    if args.data is not None:
        data = LabeledSamples(args.data, args.labels, args.metric, args.samples, args.engine)
    result = choose(
        args.models,
        device=args.device,
        inputs=comma_list(args.inputs),
        outputs=comma_list(args.outputs),
        input_shapes=shapes_of(args.input_shapes),
        batch=args.batch,
        runtime=args.runtime,
        tensorflow=release_of(args.tensorflow),
        platform=args.platform,
        data=data,
        warn=warn,
    )
    if args.sort is not None:
        facts = metric_facts(args.metric)
        sign = -1 if facts is not None and facts.higher_is_better else 1
        order = sorted(result.candidates, key=lambda c: _rank(c, args.sort, sign))
        result = replace(result, candidates=tuple(order))
    if args.json:
        print(json.dumps(to_builtins(result), indent=1))
    else:
        width = columns(sys.stdout) if is_terminal(sys.stdout) else _WIDTH
        show(candidate_lines(result.candidates, width, result.metric))
    return 1 if all(candidate.reason for candidate in result.candidates) else 0


def _rank(candidate: Candidate, column: str, sign: int) -> float:
    """Return the number to sort by; models without one come last."""
    metric = None if candidate.metric is None else sign * candidate.metric
    seconds = candidate.likely_seconds[0] if candidate.likely_seconds else candidate.flops
    values = {
        "parameters": candidate.parameters,
        "size": candidate.compressed_bytes[0] if candidate.compressed_bytes else None,
        "flops": candidate.flops,
        "latency": seconds,
        "ram": candidate.ram_bytes,
        "metric": metric,
    }
    value = values[column]
    return math.inf if value is None else value
