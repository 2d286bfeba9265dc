"""Convert a loaded model to a graph without variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError, nearest_hint
from mobileprep.freezing.convert import convert
from mobileprep.freezing.model import Asset, FreezeOptions, FreezeResult, LoadedSource, Signature
from mobileprep.freezing.tables import (
    filling_ops,
    has_tables,
    initializers_of,
    matching_assets,
    paths_elsewhere,
    used_assets,
    with_contents,
    with_inlined_files,
    with_plain_paths,
)
from mobileprep.freezing.trace import (
    clear_devices,
    extract,
    is_branch_input,
    trace,
    variable_behind,
    variables_of,
)
from mobileprep.freezing.training import remove_dropout, without_updates
from mobileprep.freezing.values import read_values
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ASSIGNMENTS, FUSED_BATCH_NORMS
from mobileprep.graph.opdefs.definitions import output_count
from mobileprep.graph.reachability import drop_unused_functions, reachable
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.verify import check_inputs, check_names
from mobileprep.runtime.functions.inline import inline_calls


def freeze(source: LoadedSource, options: FreezeOptions) -> FreezeResult:
    """Replace variables with constants, and keep only the nodes that the outputs need.

    The constants, their names, and the ops that read them are those of the original
    ``freeze_graph``. In a graph without variables, only unneeded nodes are removed.

    Args:
        source: the model; large weights of its checkpoint become views, not copies.
        options: tensors to keep and variables to convert.

    Raises:
        UsageError: if no outputs are named, or a signature does not exist.
        InvalidGraphError: if an output does not exist, or a variable has no matching value.
        CorruptFileError: if the checkpoint cannot be read.
        UnsupportedError: if an output needs an op that changes a variable, or a function cannot be
            inlined.
        ArtifactError: if the result would exceed protobuf's limit of 2 GiB.
    """
    check_names(source.graph, source.where)
    check_inputs(source.graph, source.where)
    try:
        return _freeze(source, options)
    except (InvalidGraphError, UnsupportedError) as error:
        if error.where:
            raise
        raise error.at(source.where) from error


def _freeze(source: LoadedSource, options: FreezeOptions) -> FreezeResult:
    outputs = output_tensors(source, options)
    roots = [parse_ref(name).node for name in outputs]
    needed, init_ops, initial = _needed(source, options, roots)
    roots += init_ops
    needed, warnings = _for_inference(needed, source, options, roots)
    converted = [n for n in variables_of(needed) if options.converts(n.name)]
    uses = trace(needed, converted)
    if uses.blocked:
        settled = without_updates(needed, roots, uses, initial, source.where)
        needed = settled.graph
        warnings += settled.warnings
        converted = [n for n in converted if n.name in needed]
        uses = trace(needed, converted)
    values = read_values(needed, converted, source, options)
    frozen = drop_unused_functions(convert(needed, values.tensors, uses, source.where))
    if options.clear_devices:
        frozen = clear_devices(frozen)
    assets = used_assets(frozen, [*source.assets, *values.assets])
    assets = (*assets, *matching_assets(frozen, assets, source.files))
    if assets:
        frozen = extract(with_inlined_files(frozen, assets), roots)
        assets = used_assets(frozen, assets)
    warnings += _about_files(frozen, assets)
    return FreezeResult(
        with_plain_paths(frozen, assets),
        _inputs(source, options, frozen),
        outputs,
        values.keys,
        init_ops,
        assets,
        (*_about_lists(source, options), *warnings, *values.warnings),
    )


def _about_lists(source: LoadedSource, options: FreezeOptions) -> list[str]:
    """Return a warning for each name in a list of variables that is not a variable."""
    variables = {n.name for n in variables_of(source.graph)}
    return [
        f"{name!r} is not a variable of the graph; {nearest_hint(name, variables)}".rstrip("; ")
        for name in (*options.variable_names_whitelist, *options.variable_names_blacklist)
        if name not in variables
    ]


def _about_files(frozen: Graph, assets: tuple[Asset, ...]) -> tuple[str, ...]:
    """Return a warning for each file that exists only on the training machine."""
    return tuple(
        f"the graph reads the file {path!r}, which the app needs under that path; "
        "name the file in 'assets' of the recipe's 'source' to put its contents into the graph"
        for path in dict.fromkeys(paths_elsewhere(frozen, assets).values())
    )


def _inputs(source: LoadedSource, options: FreezeOptions, frozen: Graph) -> tuple[str, ...]:
    """Return the inputs of the signature that are still in the frozen graph."""
    signature = chosen_signature(source, options.signature)
    named = () if signature is None else [s.name for s in signature.inputs.values()]
    return tuple(name for name in named if parse_ref(name).node in frozen)


def _for_inference(
    graph: Graph, source: LoadedSource, options: FreezeOptions, roots: list[str]
) -> tuple[Graph, tuple[str, ...]]:
    """Remove nodes that only training needs, and return the warnings."""
    warnings: list[str] = []
    if options.remove_dropout:
        cut = remove_dropout(graph)
        graph = cut.graph
        if cut.count:
            warnings.append(f"{cut.count} dropout layers were removed")
    if options.batch_norm == "inference":
        fused = switch_fused(graph, (graph, source.graph))
        written_out = switch_moments(fused.graph, (fused.graph, source.graph))
        graph = written_out.graph
        if switched := (*fused.switched, *written_out.switched):
            warnings.append(
                f"{len(switched)} batch normalizations were left in training mode; they use their "
                f"moving averages now: {', '.join(switched[:3])}"
            )
        if fused.skipped:
            warnings.append(
                f"{len(fused.skipped)} batch normalizations stay in training mode, as no moving "
                f"averages were found: {', '.join(fused.skipped[:3])}"
            )
    return extract(graph, roots), tuple(warnings)


def _needed(
    source: LoadedSource, options: FreezeOptions, roots: list[str]
) -> tuple[Graph, tuple[str, ...], set[str]]:
    """Return the part of the graph that the outputs need, with calls inlined.

    Returns:
        the graph, its ops that fill lookup tables, and all ops that a loader would run.
    """

    def apart(names: list[str]) -> Graph:
        return inline_calls(
            extract(source.graph, names),
            names,
            source.where,
            lower_control_flow=options.control_flow == "lower",
        )

    graph = apart(roots)
    if not has_tables(graph):
        return extract(graph, roots), (), set()
    starts = [name for name in source.init_ops if name in source.graph]
    initializers = initializers_of(source.graph)
    if starts or initializers:
        graph = apart([*roots, *starts, *initializers])
    init_ops = filling_ops(graph, roots, starts)
    restore_op = options.restore_op_name or source.restore_op
    imported = with_contents(graph, roots, init_ops, source, restore_op)
    initial = reachable(graph, [*starts, *initializers])
    init_ops = (*init_ops, *imported.ops)
    return extract(imported.graph, [*roots, *init_ops]), init_ops, initial


_DEFAULT: Final = "serving_default"

_FLAGS: Final = (
    "name them by `outputs:` of a recipe, --output_node_names of `freeze`, --fetch of `run`, "
    "--output_layer of `benchmark`, or --outputs of `migrate` and `tflite`; other verbs take the "
    "graph that `freeze` writes"
)


def chosen_signature(source: LoadedSource, name: str) -> Signature | None:
    """Return the signature of that name; for an empty name the default, the only one, or None."""
    signatures = source.signatures
    if name:
        if name not in signatures:
            message = f"unknown signature {name!r}"
            hint = nearest_hint(name, signatures) or _there_are(signatures)
            raise UsageError(message, hint, source.where)
        return signatures[name]
    if _DEFAULT in signatures:
        return signatures[_DEFAULT]
    return next(iter(signatures.values())) if len(signatures) == 1 else None


def output_tensors(source: LoadedSource, options: FreezeOptions) -> tuple[str, ...]:
    """Return the names of the tensors to keep, without duplicates."""
    signature = chosen_signature(source, options.signature)
    if not options.outputs:
        if signature is None:
            message = "no outputs are named"
            raise UsageError(message, f"{_likely(source, signature)}; {_FLAGS}", source.where)
        return _tensors(signature, source)
    tensors: list[str] = []
    for name in options.outputs:
        if _is_tensor(source, name):
            tensors.append(name)
        elif signature is not None and name in signature.outputs:
            tensors.append(signature.outputs[name].name)
        elif name in source.signatures:
            tensors += _tensors(source.signatures[name], source)
        else:
            raise _unknown(name, signature, source)
    _check(tensors, source)
    return tuple(dict.fromkeys(tensors))


def _is_tensor(source: LoadedSource, name: str) -> bool:
    ref = parse_ref(name)
    node = source.graph.get(ref.node)
    if node is None or ref.is_control:
        return False
    count = output_count(node, source.graph.library)
    if ref.index and count is not None and ref.index >= count:
        message = f"the output {name!r} is not in the graph: {ref.node!r} ({node.op}) gives {count}"
        raise InvalidGraphError(message, "count from 0", source.where)
    return True


def _tensors(signature: Signature, source: LoadedSource) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(spec.name for spec in signature.outputs.values()))
    _check(names, source)
    return names


def _check(names: Iterable[str], source: LoadedSource) -> None:
    for name in names:
        if parse_ref(name).node not in source.graph:
            message = f"a signature names the output {name!r}, which is not in the graph"
            raise InvalidGraphError(message, "export the model again", source.where)


def _unknown(name: str, signature: Signature | None, source: LoadedSource) -> InvalidGraphError:
    message = f"the output {name!r} is not in the graph"
    names = [*source.graph.by_name, *source.signatures, *(signature.outputs if signature else ())]
    near = nearest_hint(parse_ref(name).node, names)
    likely = _likely(source, signature)
    return InvalidGraphError(message, f"{near} {likely}" if near else likely, source.where)


def _likely(source: LoadedSource, signature: Signature | None) -> str:
    from mobileprep.freezing.guess import described, guess  # Only needed for errors.

    outputs = guess(source, signature).outputs
    hint = f"likely outputs: {described(outputs)}" if outputs else "name the outputs of the app"
    if source.signatures and signature is None:
        hint += f"; signatures: {_there_are(source.signatures)}"
    return hint


def _there_are(signatures: Iterable[str]) -> str:
    return ", ".join(sorted(signatures)) or "there are none"


# Input indices; outputs 1 and 2 are the statistics of the batch.
_SCALE, _OFFSET, _MEAN, _VARIANCE = 1, 2, 3, 4


def switch_fused(graph: Graph, surroundings: Sequence[Graph]) -> Switched:
    """Switch every fused batch normalization in training mode to inference.

    The averages are the variables that the statistics update, or else those next to the scale with
    the names that all libraries use.
    """
    nodes: list[Node] = []
    done: list[str] = []
    skipped: list[str] = []
    added: dict[str, Node] = {}
    for node in graph:
        if not _is_left_in_training(graph, node):
            nodes.append(node)
            continue
        averages = _averages(graph, node, surroundings)
        if averages is None:
            skipped.append(node.name)
            nodes.append(node)
            continue
        done.append(node.name)
        reads = [
            read_of(graph, variable, f"{node.name}/{what}")
            for variable, what in zip(averages, MEAN_AND_VARIANCE, strict=True)
        ]
        added.update({v.name: v for v in averages if v.name not in graph})
        inputs = (*node.inputs[:_MEAN], *(Ref(r.name) for r in reads), *node.control_inputs)
        switched = replace(node, inputs=inputs).with_attrs(is_training=attr.boolean(False))
        nodes += [*reads, switched]
    if not done:
        return Switched(graph, skipped=tuple(skipped))
    return Switched(graph.with_nodes([*added.values(), *nodes]), tuple(done), tuple(skipped))


def _is_left_in_training(graph: Graph, node: Node) -> bool:
    if node.op not in FUSED_BATCH_NORMS or not node.attr_bool("is_training", True):
        return False
    # In a branch, the app selects training or inference at run time.
    return bool(node.inputs) and not is_branch_input(graph, node.inputs[0])


def _averages(graph: Graph, node: Node, surroundings: Sequence[Graph]) -> tuple[Node, Node] | None:
    variables = [variable_behind(graph, r) for r in node.data_inputs[_MEAN : _VARIANCE + 1]]
    if len(variables) == 2 and variables[0] is not None and variables[1] is not None:
        return variables[0], variables[1]
    for around in surroundings:
        if node.name in around:
            moved = [moved_by(around, Ref(node.name, output)) for output in (1, 2)]
            if moved[0] is not None and moved[1] is not None and moved[0] != moved[1]:
                return moved[0], moved[1]
    for around in surroundings:
        named = _beside_scale(around, graph, node)
        if named is not None:
            return named
    return None


def _beside_scale(around: Graph, graph: Graph, node: Node) -> tuple[Node, Node] | None:
    for index in (_SCALE, _OFFSET):
        beside = variable_behind(graph, node.inputs[index]) if index < len(node.inputs) else None
        if beside is None:
            continue
        scope = beside.name.rpartition("/")[0]
        mean, variance = (around.get(f"{scope}/{name}") for name in MEAN_AND_VARIANCE)
        if mean is not None and variance is not None:
            return mean, variance
    return None


MEAN_AND_VARIANCE: Final = ("moving_mean", "moving_variance")

# Ops between a statistic of the batch and the update of its average.
_UPDATES: Final = frozenset(
    {"AssignSub", "AssignSubVariableOp", "AssignAdd", "AssignAddVariableOp"} | ASSIGNMENTS
)
_ON_THE_WAY: Final = frozenset(
    {"Identity", "Sub", "Mul", "Add", "AddV2", "RealDiv", "Cast", "Squeeze", "Reshape"}
    | {"Switch", "Merge", "Select", "SelectV2", "StopGradient", "Neg"}
)
_DEEPEST: Final = 8


class Switched(Struct, frozen=True):
    """A graph whose batch normalization uses moving averages.

    Args:
        graph: the graph, with missing variables added.
        switched: the batch normalizations that are no longer in training mode.
        skipped: the ops for which there are no averages.
    """

    graph: Graph
    switched: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def moved_by(graph: Graph, statistic: Ref) -> Node | None:
    """Return the only variable that an op updates with a statistic of the batch, or None."""
    variables = {v.name: v for v in _updated(graph, statistic)}
    named = [v for v in variables.values() if is_average(v)]
    if len(variables) > 1 and len(named) == 1:
        return named[0]
    return next(iter(variables.values())) if len(variables) == 1 else None


def is_average(variable: Node) -> bool:
    """Return whether a variable has the usual name of a batch norm average."""
    return variable.name.rpartition("/")[2] in MEAN_AND_VARIANCE


def read_of(graph: Graph, variable: Node, name: str) -> Node:
    """Create a node that reads a variable, with an unused name that starts with ``name``."""
    while name in graph:
        name += "_"
    dtype = attr.dtype(variable.attr_dtype("dtype").base)
    if variable.op == "VarHandleOp":
        return Node(name, "ReadVariableOp", (Ref(variable.name),), "", {"dtype": dtype})
    return Node(name, "Identity", (Ref(variable.name),), "", {"T": dtype})


def _updated(graph: Graph, statistic: Ref) -> Iterator[Node]:
    frontier = {statistic}
    seen = set(frontier)
    for _ in range(_DEEPEST):
        following: set[Ref] = set()
        for ref in sorted(frontier, key=str):
            for consumer in graph.consumers.get(ref.node, ()):
                if ref not in consumer.inputs:
                    continue
                if consumer.op in _UPDATES:
                    variable = variable_behind(graph, consumer.inputs[0])
                    if variable is not None:
                        yield variable
                elif consumer.op in _ON_THE_WAY:
                    following.update(Ref(consumer.name, i) for i in (0, 1))
        frontier = following - seen
        seen |= frontier


_MEAN_OP: Final = "Mean"
_CHOICES: Final = frozenset({"Switch", "Select", "SelectV2", "If", "StatelessIf"})


def switch_moments(graph: Graph, surroundings: Sequence[Graph]) -> Switched:
    """Replace batch statistics that update moving averages with those averages."""
    by_scope: dict[str, dict[str, tuple[Ref, Node]]] = {}
    for node in graph:
        if not _is_statistic(graph, node):
            continue
        statistic = Ref(node.name)
        if _is_chosen(graph, statistic):
            continue
        around = [g for g in surroundings if node.name in g]
        variable = next((v for g in around if (v := moved_by(g, statistic))), None)
        if variable is not None and is_average(variable):
            scope, _, what = variable.name.rpartition("/")
            by_scope.setdefault(scope, {})[what] = (statistic, variable)
    pairs = {scope: two for scope, two in by_scope.items() if len(two) == len(MEAN_AND_VARIANCE)}
    if not pairs:
        return Switched(graph)
    reads: dict[Ref, Node] = {}
    added: dict[str, Node] = {}
    for two in pairs.values():
        for statistic, variable in two.values():
            reads[statistic] = read_of(graph, variable, f"{statistic.node}/average")
            if variable.name not in graph:
                added[variable.name] = variable
    nodes = [_with_averages(n, reads) for n in graph]
    changed = graph.with_nodes([*added.values(), *reads.values(), *nodes])
    return Switched(changed, tuple(pairs))


def _is_statistic(graph: Graph, node: Node) -> bool:
    """Return whether a node computes a mean over all dimensions except channels."""
    mean: Node | None = node
    if node.op == "Squeeze" and node.data_inputs:
        mean = graph.get(node.inputs[0].node)
    elif node.op == _MEAN_OP and node.attr_bool("keep_dims", False):
        return False
    if mean is None or mean.op != _MEAN_OP or not mean.data_inputs:
        return False
    # In a branch, the app selects training or inference at run time.
    return not is_branch_input(graph, mean.inputs[0])


def _is_chosen(graph: Graph, statistic: Ref) -> bool:
    """Return whether the app selects this statistic or the average at run time."""
    return any(
        c.op in _CHOICES and statistic in c.inputs for c in graph.consumers.get(statistic.node, ())
    )


def _with_averages(node: Node, reads: dict[Ref, Node]) -> Node:
    if not any(r in reads for r in node.inputs):
        return node
    inputs = tuple(Ref(reads[r].name) if r in reads else r for r in node.inputs)
    return replace(node, inputs=inputs)
