"""The verb ``ops``: prints the kernels, source files, and builds of ops."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from mobileprep.cli._shared.arguments import tensorflow_argument
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, flag, verb

if TYPE_CHECKING:
    from mobileprep.targets.op_facts import LiteRT, OpFacts, OpKernelFact

_LITERT: Final[dict[LiteRT, str]] = {
    "converted": "converted",
    "flex": "needs the Flex delegate",
    "no": "not supported",
}
_YES_NO: Final = {True: "yes", False: "no", None: "unknown"}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ops", nargs="+", metavar="NAME", help="Op, or a pattern such as '*Pool*'")
    tensorflow_argument(parser)
    flag(
        parser,
        "platform",
        default="android",
        metavar="NAME",
        help="Platform of the default build: android, ios, raspberry-pi, linux, or generic",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


@verb(
    "ops",
    Group.INSPECT,
    "Print the kernels, source files, and builds of ops",
    _arguments,
    "mobileprep ops Conv2D",
    "mobileprep ops '*Pool*' --tensorflow 2.21",
)
def run(args: argparse.Namespace) -> int:
    """Print each op, or a line for each match of a pattern."""
    from mobileprep.targets.op_facts import is_pattern, op_facts

    facts = op_facts(args.ops, tensorflow=args.tensorflow, platform=args.platform)
    if args.json:
        print(json.dumps(to_builtins(facts), indent=1))
    elif any(map(is_pattern, args.ops)):
        show(_table(facts))
    else:
        show(line for fact in facts for line in _lines(fact))
    return 0


def _lines(facts: OpFacts) -> Iterator[str]:
    release = f"TensorFlow {facts.tensorflow}"
    if not facts.exists:
        yield f"{facts.op}: {release} does not have it; {', '.join(facts.releases)} does"
    else:
        yield f"{facts.op} in {release}"
    yield from (f"  {line}" for line in facts.signature)
    if facts.removed_at:
        yield f"  rejected in graphs of version {facts.removed_at} and newer"
    if facts.exists:
        yield f"  default build for {facts.platform}: {_YES_NO[facts.default_build]}"
        yield f"  CPU kernels: {len(facts.kernels)}"
        yield from (f"    {_kernel(kernel)}" for kernel in facts.kernels)
        yield f"  source files: {'' if facts.files else 'unknown'}".rstrip()
        for file in facts.files:
            yield f"    {file.file} ({file.default_list or 'not in the default build'})"
    yield f"  LiteRT: {_LITERT[facts.litert]}"
    yield f"  interpreter: {_YES_NO[facts.interpreter]}"
    yield "  to add it:"
    yield from (f"    {sentence}" for sentence in facts.advice)


def _kernel(kernel: OpKernelFact) -> str:
    constraints = f": {', '.join(kernel.constraints)}" if kernel.constraints else ""
    label = f" _kernel={kernel.label}" if kernel.label else ""
    return f"{kernel.kernel}{constraints}{label}{'' if kernel.is_default else ' (not compiled)'}"


def _table(facts: Sequence[OpFacts]) -> Iterator[str]:
    """Yield a line for each op: its releases, its kernels, and who has it."""
    width = max(len(fact.op) for fact in facts)
    yield f"{'op':{width}}  {'releases':10} kernels  default build  LiteRT     interpreter"
    for fact in facts:
        yield (
            f"{fact.op:{width}}  {', '.join(fact.releases):10} {len(fact.kernels):7}  "
            f"{_YES_NO[fact.default_build]:13}  {fact.litert:9}  {_YES_NO[fact.interpreter]}"
        )
