"""Run chains of transforms on a graph, and measure the change of its outputs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct

from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.errors import UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import output_count
from mobileprep.graph.reachability import name_hint
from mobileprep.graph.refs import parse_ref
from mobileprep.ops.numerics.differences import Difference, differences, not_finite
from mobileprep.recipe import model as recipe
from mobileprep.recipe.schemas import TransformSchemas, name_faults, named_plugin
from mobileprep.recipe.settings import InputFile
from mobileprep.recipe.steps import read_steps
from mobileprep.recipe.tree import Node, Place, Scalar, SourceText, in_order, render
from mobileprep.recipe.yaml_tree import parse_yaml
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, StepRecord, cautions, run_chain
from mobileprep.transforms.tf115 import copies_warning

Chain: TypeAlias = str | Sequence[str | Mapping[str, Mapping[str, Any]]]

_SAMPLES: Final = 8
_KEY: Final = "transforms"

Watch = Callable[[StepRecord, Difference | None], None]
"""Called after each step with its record, and with the difference from the source, if measured."""


class TransformResult(Struct, frozen=True):
    """The result of a chain.

    Args:
        graph: the graph after the last step; the original graph is not modified.
        steps: statistics of each step.
        differences: for each step the output with the largest difference from the source on random
            samples; empty if it was not requested.
    """

    graph: Graph
    steps: tuple[StepRecord, ...]
    differences: tuple[Difference, ...] = ()


def transform(
    graph: Graph,
    chain: Chain,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    *,
    plugins: Sequence[FilePath] = (),
    check: bool = False,
    tf115: bool = False,
    warn: Warn | None = None,
) -> TransformResult:
    """Run a chain of transforms; ``docs/reference/transforms.md`` lists them.

    Args:
        graph: graph to transform; it is not modified.
        chain: a string in the syntax of the Graph Transform Tool, ``'fold_constants
            remove_nodes(op=X)'``, or a list in the syntax of recipes, ``["fold_constants",
            {"remove_nodes": {"op": ["X"]}}]``.
        inputs: names of the tensors that are fed.
        outputs: names of the tensors that are fetched.
        plugins: Python files with custom transforms.
        check: compare outputs with the source's on random samples after each step.
        tf115: behave like the tool of TensorFlow 1.15, including its harmless bugs, as the verb
            ``transform`` does; by default the correct behavior of recipes is used.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Returns:
        The transformed graph, with statistics of each step.

    Raises:
        UsageError: the chain is invalid; the message contains the location.
        TransformError, InvalidGraphError: a step does not support the graph.
        AccuracyError: outputs are NaN or infinite where the source's are not.
    """
    warn = warn or as_warning
    steps = runnable(read_chain(chain, plugin_schemas(plugins)))
    if not steps:
        message = "no transforms are named"
        raise UsageError(message, "name some: 'strip_unused_nodes fold_constants'")
    context = Context(names_of(inputs), names_of(outputs), tf115=tf115)
    gaps: list[Difference] = []

    def note(_: StepRecord, gap: Difference | None) -> None:
        if gap is not None:
            gaps.append(gap)

    tell_beforehand(graph, steps, context, warn)
    compare = comparison(graph, None, context, warn) if check else None
    after, records = run_steps(graph, steps, context, compare=compare, watch=note, warn=warn)
    return TransformResult(after, tuple(records), tuple(gaps))


def plugin_schemas(plugins: Iterable[FilePath]) -> TransformSchemas:
    """Return the available transforms, including those of plugin files."""
    named = [named_plugin(InputFile(str(p), Path(p), str(p))) for p in plugins]
    for plugin, message, hint in name_faults(named):
        raise UsageError(message, hint, plugin.file.place)
    return TransformSchemas(plugins=named)


def read_chain(chain: Chain, schemas: TransformSchemas) -> tuple[recipe.Step, ...]:
    """Parse a chain and check it against the schemas of its transforms."""
    read = read_steps(_chain_node(chain), schemas)
    if read.problems:
        raise UsageError(render(in_order(read.problems)))
    return read.steps


def runnable(steps: Iterable[recipe.Step]) -> list[ChainStep]:
    """Convert steps of a recipe to executable ones."""
    return [
        ChainStep(s.name, s.options, s.ignore_errors, s.plugin.file.path if s.plugin else None)
        for s in steps
    ]


def tell_beforehand(graph: Graph, steps: Sequence[ChainStep], context: Context, warn: Warn) -> None:
    """Warn of unknown tensor names and of known problems with the steps."""
    _each(warn, _unknown_names(graph, context))
    for i, step in enumerate(steps):
        _each(warn, cautions(graph, [s.name for s in steps[:i]], step.name, step.options))


def run_steps(
    graph: Graph,
    steps: Sequence[ChainStep],
    context: Context,
    *,
    compare: Callable[[Graph, str], Difference | None] | None = None,
    watch: Watch,
    warn: Warn,
) -> tuple[Graph, list[StepRecord]]:
    """Run steps, and report warnings after each."""
    before = graph

    def finish_step(record: StepRecord, after: Graph) -> None:
        nonlocal before
        watch(record, None if compare is None else compare(after, record.name))
        copies = copies_warning(record.name, before, after)
        _each(warn, (*record.warnings, copies) if copies else record.warnings)
        before = after

    return run_chain(graph, steps, context, watch=finish_step)


def comparison(
    source: Graph, path: Path | None, context: Context, warn: Warn
) -> Callable[[Graph, str], Difference | None]:
    """Return a function that compares a graph's outputs with the source's on random samples."""
    # Importing engines takes 0.1 s, and most chains run without a comparison.
    from mobileprep.runtime.engines.choose import open_engine
    from mobileprep.runtime.sampling.draw import draw_samples
    from mobileprep.runtime.sampling.first_ops import standing_still
    from mobileprep.runtime.sampling.inputs import fed_tensors

    engine = open_engine("numpy", source, path, where="the source")
    samples = draw_samples(
        source,
        fed_tensors(source, context.inputs),
        _SAMPLES,
        lambda feeds: engine.run(context.outputs, feeds),
    )
    _each(warn, standing_still(context.outputs, samples.outputs, samples.inputs))

    def difference(graph: Graph, step: str) -> Difference | None:
        engine = open_engine("numpy", graph, path, where=f"after {step}")
        values = [engine.run(context.outputs, feeds) for feeds in samples.feeds]
        gaps = differences(context.outputs, samples.outputs, values, f"after {step}")
        worst = max(gaps, key=lambda gap: (gap.share, not gap.is_source_lost), default=None)
        if worst is not None and not math.isfinite(worst.share):
            hint = "leave the step out, or look at its parameters"
            raise not_finite(worst, f"after {step}", samples.feeds, hint)
        return worst

    return difference


def _chain_node(chain: Chain) -> Node | None:
    """Convert a chain to a recipe node; a list is converted through JSON."""
    if isinstance(chain, str):
        return Scalar(chain, Place(SourceText(_KEY, Path(), chain), 1, 1), chain)
    for item in chain:
        if not (isinstance(item, str) or _is_step(item)):
            message = f"{item!r} is not a step of a chain"
            raise UsageError(message, "write 'name', or {'name': {'parameter': value}}")
    try:
        text = json.dumps({_KEY: list(chain)})
    except (TypeError, ValueError) as error:
        message = f"the chain has a parameter of no type that a recipe has: {error}"
        raise UsageError(message, "use strings, numbers, booleans, and lists") from error
    return parse_yaml(SourceText(_KEY, Path(), text)).get(_KEY)


def _is_step(item: object) -> bool:
    if not isinstance(item, Mapping) or len(item) != 1:
        return False
    return all(isinstance(options, Mapping) for options in item.values())


def _each(warn: Warn, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        warn(sentence)


def _unknown_names(graph: Graph, context: Context) -> Iterator[str]:
    """Warn of inputs and outputs that are not in the graph; the original tool does not."""
    for what, names in (("input", context.inputs), ("output", context.outputs)):
        for name in names:
            ref = parse_ref(name)
            node = graph.get(ref.node)
            if node is None:
                hint = name_hint(graph, ref.node, what)
                yield f"the {what} {name!r} is not in the graph; {hint}"
                continue
            count = output_count(node, graph.library)
            if count is not None and ref.index >= count:
                gives = f"{node.name!r} ({node.op}) gives {count}; count from 0"
                yield f"the {what} {name!r} is not in the graph: {gives}"
