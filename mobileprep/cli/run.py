"""The verb ``run``: runs a graph once; with ``--image`` a drop-in for ``label_image``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli.verb import bool_flag, comma_list, flag, verb, whole_number
from mobileprep.destinations import is_stdout, output_path
from mobileprep.errors import AccuracyError, UsageError

if TYPE_CHECKING:
    from mobileprep.cli._feeds import FeedOptions
    from mobileprep.ir.graph import Graph
    from mobileprep.ir.tensor import Array

# The defaults of the original label_image.
_INPUT, _OUTPUT = "input", "InceptionV3/Predictions/Reshape_1"
_TOP = 5
_MILITARY_UNIFORM = 653


def _arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "graph", required=True, metavar="FILE", help="the frozen graph")
    parser.add_argument(
        "--feed",
        action="append",
        default=[],
        metavar="NAME=WHAT",
        help="a tensor and its value: a number, random[:1,224,224,3], or a .npy, .npz[:ARRAY], "
        ".wav or picture file",
    )
    flag(parser, "fetch", default="", metavar="A,B", help="the tensors to compute")
    flag(
        parser,
        "out",
        default="",
        metavar="FILE",
        help="an .npz file for what was computed, - for stdout",
    )
    flag(parser, "engine", default="numpy", help="numpy, openvino, tensorflow, or auto")
    flag(
        parser,
        "seed",
        type=whole_number,
        default=None,
        help="of random feeds, 0 if unset, and of what the graph itself draws",
    )
    flag(parser, "image", default="", metavar="FILE", help="the picture to label")
    flag(parser, "labels", default="", metavar="FILE", help="names of the classes, a line each")
    flag(
        parser,
        "top",
        type=whole_number,
        default=0,
        help=f"how many classes to print; {_TOP} with labels",
    )
    flag(
        parser,
        "input_width",
        type=whole_number,
        default=None,
        help="the picture's width; 299 if unknown",
    )
    flag(parser, "input_height", type=whole_number, default=None, help="its height; 299 if unknown")
    flag(parser, "input_mean", type=float, default=0.0, help="what is taken from its values")
    flag(parser, "input_std", type=float, default=255.0, help="what they are divided by then")
    flag(parser, "input_layer", default="", help=f"what the picture is fed to; {_INPUT} if unset")
    flag(parser, "output_layer", default="", help=f"the scores; {_OUTPUT} if unset")
    flag(parser, "root_dir", default="", metavar="DIR", help="the folder of graph and picture")
    bool_flag(parser, "self_test", default=False, help_line="fail unless class 653 comes first")
    parser.add_argument("--json", action="store_true", help="print JSON")


@verb("run", "run a graph once, or label a picture as label_image does", _arguments)
def run(args: argparse.Namespace) -> int:
    """Feed, run, print."""
    from mobileprep.cli._feeds import check_fed
    from mobileprep.cli._results import best_scores, described, line, read_labels
    from mobileprep.ir.files import read_graph
    from mobileprep.ops.engines.choose import open_engine

    path = Path(args.root_dir) / args.graph
    target = output_path(args.out) if args.out else Path()
    results = sys.stderr if args.out and is_stdout(target) else sys.stdout
    graph = read_graph(path)
    feeds = _feeds(args, graph)
    fetches = _fetches(args, graph)
    labels = read_labels(Path(args.labels)) if args.labels else []
    engine = open_engine(args.engine, graph, path, seed=args.seed, tell=_tell)
    check_fed(graph, feeds, fetches, str(path))
    outputs = engine.run(fetches, feeds)
    if args.engine == "auto":
        _tell(f"the engine is {engine.name}")
    if args.out:
        _write(target, dict(zip(fetches, outputs, strict=True)))
    count = args.top or (_TOP if labels or args.image else 0)
    scores = best_scores(outputs[0], labels, count) if count > 0 else []
    facts = [described(name, array) for name, array in zip(fetches, outputs, strict=True)]
    if args.json:
        top = [[s.as_data() for s in row] for row in scores]
        print(
            json.dumps({"engine": engine.name, "outputs": facts, "top": top}, indent=1),
            file=results,
        )
    else:
        shown = facts[1:] if scores else facts
        lines = [*(str(s) for row in scores for s in row), *map(line, shown)]
        print("\n".join(lines), file=results)
    if args.self_test:
        _check_self(scores[0][0].index if scores else None)
    return 0


def _feeds(args: argparse.Namespace, graph: Graph) -> dict[str, Array]:
    from mobileprep.cli._feeds import FeedOptions, read_feed, split_feed

    options = FeedOptions(
        args.input_width, args.input_height, args.input_mean, args.input_std, args.seed or 0
    )
    feeds: dict[str, Array] = {}
    for text in args.feed:
        name, what = split_feed(text)
        if name in feeds:
            message = f"{name!r} is fed twice"
            raise UsageError(message, "give each --feed another name")
        feeds[name] = read_feed(graph, name, what, options)
    if args.image:
        feeds |= _photo(args, graph, options)
    return feeds


def _photo(args: argparse.Namespace, graph: Graph, options: FeedOptions) -> dict[str, Array]:
    from mobileprep.cli._feeds import read_feed
    from mobileprep.ir.ends import placeholders

    name = args.input_layer or _likely(graph, _INPUT, placeholders(graph), "--input_layer")
    return {name: read_feed(graph, name, str(Path(args.root_dir) / args.image), options)}


def _fetches(args: argparse.Namespace, graph: Graph) -> tuple[str, ...]:
    from mobileprep.ir.ends import ends

    named = comma_list(args.fetch) or comma_list(args.output_layer)
    if named:
        return named
    found = ends(graph)
    if args.image:
        return (_likely(graph, _OUTPUT, found, "--output_layer"),)
    if not found:
        msg = "no tensors are named that the graph is to compute"
        raise UsageError(msg, "give --fetch=a,b")
    return tuple(found)


def _likely(graph: Graph, usual: str, candidates: list[str], option: str) -> str:
    """The layer that label_image takes by default, or else the only one that it can be."""
    if usual in graph:
        return usual
    if len(candidates) == 1:
        return candidates[0]
    message = f"there is no layer {usual!r} in the graph"
    known = f"; it may be one of: {', '.join(candidates[:5])}" if candidates else ""
    raise UsageError(message, f"name one with {option}{known}")


def _write(path: Path, outputs: dict[str, Array]) -> None:
    from mobileprep.formats.arrays import write_arrays
    from mobileprep.fsio import atomic_writer

    with atomic_writer(path) as stream:
        # Texts become arrays of bytes of one length: objects would have to be pickled.
        write_arrays(
            stream, {n: a.astype("S") if a.dtype == object else a for n, a in outputs.items()}
        )


def _check_self(found: int | None) -> None:
    if found != _MILITARY_UNIFORM:
        message = f"class {_MILITARY_UNIFORM} should come first, and {found} does"
        raise AccuracyError(message, "run the self-test on its own picture and graph")


def _tell(sentence: str) -> None:
    print(f"mobileprep: {sentence}", file=sys.stderr)
