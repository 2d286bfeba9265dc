"""The verb ``run``: runs a graph; with ``--image`` a drop-in for ``label_image``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobileprep.cli._shared.arguments import add_limit_flags, add_model_flags, model_flags
from mobileprep.cli._shared.originals import LABELED, LABELED_BY
from mobileprep.cli._shared.telling import print_note
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, bool_flag, comma_list, flag, verb, whole_number
from mobileprep.core.paths import is_stdout, output_path
from mobileprep.errors import AccuracyError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from mobileprep.cli._shared.results import RunOutputs
    from mobileprep.freezing.loading import Model
    from mobileprep.graph.tensor import Array
    from mobileprep.runtime.engines.agreement import Engine
    from mobileprep.runtime.feeding.feeds import Round

# The defaults of the original label_image.
_INPUT, _OUTPUT = "input", "InceptionV3/Predictions/Reshape_1"
_TOP = 5
_SILENT = {"openvino": "OpenVINO", "litert": "LiteRT"}
_MILITARY_UNIFORM = 653


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    add_limit_flags(parser)
    parser.add_argument(
        "--feed",
        action="append",
        default=[],
        metavar="NAME=WHAT",
        help="Input tensor and value: number, list such as [[1,2],[3,4]], text:STRING, @FILE with "
        "the value, random[:1,224,224,3], or .npy, .npz[:ARRAY], .wav, or image file; several "
        "files (a.png,b.png, glob pattern, or directory) form a batch",
    )
    bool_flag(
        parser,
        "each",
        default=False,
        help_line="Run each of several files separately instead of as a batch",
    )
    flag(parser, "fetch", default="", metavar="A,B", help="Output tensors")
    flag(
        parser,
        "out",
        default="",
        metavar="FILE",
        help=".npz file for the outputs, or - for standard output",
    )
    flag(
        parser,
        "engine",
        default="numpy",
        help="Engine: numpy, openvino, litert, tensorflow, or auto; .tflite files need litert",
    )
    flag(
        parser,
        "seed",
        type=whole_number,
        default=None,
        help="Seed for random feeds and random ops of the graph",
    )
    _label_flags(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")


def _label_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the original label_image."""
    pictures = "Image to label; of several, a glob pattern, or a directory, each gets a run"
    flag(parser, "image", default="", metavar="FILE", help=pictures)
    flag(parser, "labels", default="", metavar="FILE", help="File with class names, one per line")
    flag(
        parser,
        "top",
        type=whole_number,
        default=0,
        help=f"Number of classes to print [default: {_TOP} with --labels or --image]",
    )
    flag(
        parser,
        "input_width",
        type=whole_number,
        default=None,
        help="Image width [default: from the graph, or 299]",
    )
    flag(
        parser,
        "input_height",
        type=whole_number,
        default=None,
        help="Image height [default: from the graph, or 299]",
    )
    flag(parser, "input_mean", type=float, default=0.0, help="Mean to subtract from pixel values")
    flag(
        parser,
        "input_std",
        type=float,
        default=255.0,
        help="Standard deviation to divide pixel values by",
    )
    flag(parser, "input_layer", default="", help=f"Input tensor for the image [default: {_INPUT}]")
    flag(
        parser,
        "output_layer",
        default="",
        help=f"Output tensor with the scores [default: {_OUTPUT}]",
    )
    flag(parser, "root_dir", default="", metavar="DIR", help="Directory of the graph and the image")
    bool_flag(
        parser, "self_test", default=False, help_line="Fail unless class 653 has the highest score"
    )


@verb(
    "run",
    Group.TENSORFLOW,
    "Run a graph, or label images (label_image)",
    _arguments,
    "mobileprep run --graph=model.pb --feed=image=random --fetch=probabilities",
    "mobileprep run --graph=model.pb --image=photo.jpg --labels=labels.txt",
)
def run(args: argparse.Namespace) -> int:
    """Load the model, and for each run feed it and print its outputs."""
    from mobileprep.cli._shared.results import RunOutputs, read_labels

    target = output_path(args.out) if args.out else Path()
    shown = sys.stderr if args.out and is_stdout(target) else sys.stdout
    model = _model(args)
    planned = _rounds(args, model)
    fetches = _fetches(args, model)
    labels = read_labels(Path(args.labels)) if args.labels else []
    engine = _engine(args, model)
    count = args.top or (_TOP if labels or args.image else 0)
    results: list[RunOutputs] = []
    written: dict[str, Array] = {}
    for number, turn in enumerate(planned):
        outputs = dict(zip(fetches, _computed(args, model, engine, turn, fetches), strict=True))
        results.append(RunOutputs.of(turn.title, outputs, labels, count))
        if not args.json:
            show(str(results[-1]).split("\n"), file=shown)
        if args.out:
            place = f"{number}/" if turn.title else ""
            written |= {f"{place}{name}": array for name, array in outputs.items()}
    if args.engine == "auto":
        print_note(f"the engine is {engine.name}")
    if args.out:
        _write(target, written)
    if args.json:
        print(json.dumps(_as_data(engine.name, results), indent=1), file=shown)
    if args.self_test:
        _check_self(results)
    return 0


def _model(args: argparse.Namespace) -> Model:
    from mobileprep.freezing.loading import load_model

    path = _named(args, args.graph, LABELED_BY, "--graph")
    named = comma_list(args.fetch) or comma_list(args.output_layer)
    return load_model(path, model_flags(args, named), print_note)


def _rounds(args: argparse.Namespace, model: Model) -> list[Round]:
    from mobileprep.runtime.feeding.feeds import named_feeds, rounds

    feeds = {model.tensor(name): what for name, what in named_feeds(args.feed).items()}
    apart = list(feeds) if args.each else []
    # With a layer for the image but no image, use the original's image.
    image = args.image or (LABELED if args.input_layer and not args.feed else "")
    if image:
        layer = _image_layer(args, model)
        feeds[layer] = str(_named(args, image, LABELED, "--image"))
        apart.append(layer)
    return rounds(feeds, apart)


def _named(args: argparse.Namespace, file: str, default: str, option: str) -> Path:
    """Return a file of the root directory, which must exist unless the user named it."""
    path = Path(args.root_dir) / file
    if file == default and not path.exists():
        message = f"{option} names no file, and the original's, {path}, does not exist"
        raise UsageError(message, f"give {option}=FILE")
    return path


def _image_layer(args: argparse.Namespace, model: Model) -> str:
    from mobileprep.graph.reachability import placeholders

    if args.input_layer:
        return model.tensor(args.input_layer)
    return _likely(model, _INPUT, placeholders(model.graph), "--input_layer")


def _fetches(args: argparse.Namespace, model: Model) -> tuple[str, ...]:
    from mobileprep.graph.reachability import ends

    named = comma_list(args.fetch) or comma_list(args.output_layer)
    if named or model.outputs:
        return model.tensors(named) if named else model.outputs
    candidates = ends(model.graph)
    if args.image:
        return (_likely(model, _OUTPUT, candidates, "--output_layer"),)
    if not candidates:
        msg = "no tensors are named that the graph is to compute"
        raise UsageError(msg, "give --fetch=a,b")
    return tuple(candidates)


def _likely(model: Model, usual: str, candidates: list[str], option: str) -> str:
    """Return the default layer of label_image if it exists, or else the only candidate."""
    if usual in model.graph:
        return usual
    if len(candidates) == 1:
        return candidates[0]
    message = f"the graph has no layer {usual!r}"
    suggestion = f"; it may be one of: {', '.join(candidates[:5])}" if candidates else ""
    raise UsageError(message, f"name one with {option}{suggestion}")


def _engine(args: argparse.Namespace, model: Model) -> Engine:
    """Open the engine, which must support ``Print`` ops if the graph has one."""
    from mobileprep.cli._shared.results import printer
    from mobileprep.litert.in_memory import tflite_in_memory
    from mobileprep.runtime.engines.choose import open_engine

    prints = next((n.name for n in model.graph if n.op in ("Print", "PrintV2")), None)
    if prints is not None and args.engine in _SILENT:
        message = f"{_SILENT[args.engine]} prints nothing, which the graph does at {prints!r}"
        raise UnsupportedError(message, "give --engine=numpy", str(model.path))
    return open_engine(
        args.engine,
        model.graph,
        model.path,
        seed=args.seed,
        among=None if prints is None else (),
        tell=print_note,
        printer=printer(is_result_data=args.json),
        convert=tflite_in_memory,
    )


def _computed(
    args: argparse.Namespace, model: Model, engine: Engine, turn: Round, fetches: tuple[str, ...]
) -> list[Array]:
    from mobileprep.inspection.benchmark import run_fed
    from mobileprep.runtime.feeding.feeds import read_feed
    from mobileprep.runtime.feeding.files import FeedOptions

    options = FeedOptions(
        args.input_width, args.input_height, args.input_mean, args.input_std, args.seed or 0
    )
    graph = model.graph
    feeds = {name: read_feed(graph, name, what, options) for name, what in turn.feeds.items()}
    return run_fed(engine, model, feeds, fetches)


def _as_data(engine: str, results: list[RunOutputs]) -> dict[str, Any]:
    """Return all outputs as JSON data, in a list unless there is a single run."""
    if len(results) == 1 and not results[0].title:
        return {"engine": engine, **results[0].as_data()}
    return {"engine": engine, "runs": [{"files": r.title, **r.as_data()} for r in results]}


def _write(path: Path, outputs: dict[str, Array]) -> None:
    from mobileprep.core.files import atomic_writer
    from mobileprep.formats.arrays import write_arrays

    with atomic_writer(path) as stream:
        # Strings become fixed-length byte arrays, because object arrays would be pickled.
        write_arrays(
            stream, {n: a.astype("S") if a.dtype == object else a for n, a in outputs.items()}
        )


def _check_self(results: list[RunOutputs]) -> None:
    for result in results:
        index = result.scores[0][0].index if result.scores else None
        if index != _MILITARY_UNIFORM:
            message = f"class {_MILITARY_UNIFORM} should come first, and {index} does"
            raise AccuracyError(message, "run the self-test on its own image and graph")
