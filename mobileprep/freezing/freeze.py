"""Turns a loaded model into a graph without variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError, nearest_hint
from mobileprep.freezing.batch_norm import switch_fused, switch_moments
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
from mobileprep.freezing.trace import clear_devices, extract, trace, variables_of
from mobileprep.freezing.training import remove_dropout, without_updates
from mobileprep.freezing.values import read_values
from mobileprep.ir.functions import drop_unused_functions
from mobileprep.ir.graph import Graph
from mobileprep.ir.reachability import reachable
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.verify import check_inputs, check_names
from mobileprep.opdefs.signatures import output_count
from mobileprep.runtime.functions.inline import inline_calls


def freeze(source: LoadedSource, options: FreezeOptions) -> FreezeResult:
    """Replace variables by constants, and keep what the outputs need.

    Constants, their names and the ops that read them come out as the original ``freeze_graph``
    writes them. A graph without variables is only cut down to its outputs.

    Args:
        source: the model; large weights of its checkpoint become views, not copies.
        options: what to keep and convert.

    Raises:
        UsageError: no outputs are named, or a signature is not there.
        InvalidGraphError: an output is not there, or a variable has no fitting value.
        CorruptFileError: the checkpoint cannot be read.
        UnsupportedError: an output needs an op that changes a variable, or a function cannot be
            taken apart.
        ArtifactError: the result would pass protobuf's limit of 2 GiB.
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
    """A sentence for each name of a list of variables that is none."""
    known = {n.name for n in variables_of(source.graph)}
    return [
        f"{name!r} is no variable of the graph; {nearest_hint(name, known)}".rstrip("; ")
        for name in (*options.variable_names_whitelist, *options.variable_names_blacklist)
        if name not in known
    ]


def _about_files(frozen: Graph, assets: tuple[Asset, ...]) -> tuple[str, ...]:
    """A sentence for each file that only the machine of the training has."""
    return tuple(
        f"the graph reads the file {path!r}, which the app needs under that path; "
        "name the file in 'assets' of the recipe's 'source' to put its contents into the graph"
        for path in dict.fromkeys(paths_elsewhere(frozen, assets).values())
    )


def _inputs(source: LoadedSource, options: FreezeOptions, frozen: Graph) -> tuple[str, ...]:
    """The inputs of the signature that the frozen graph still has."""
    signature = chosen_signature(source, options.signature)
    named = () if signature is None else [s.name for s in signature.inputs.values()]
    return tuple(name for name in named if parse_ref(name).node in frozen)


def _for_inference(
    graph: Graph, source: LoadedSource, options: FreezeOptions, roots: list[str]
) -> tuple[Graph, tuple[str, ...]]:
    """The graph without what only training does, and what the user should know of it."""
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
                f"{len(switched)} batch normalisations were left in training mode; they use their "
                f"moving averages now: {', '.join(switched[:3])}"
            )
        if fused.left:
            warnings.append(
                f"{len(fused.left)} batch normalisations stay in training mode, as no moving "
                f"averages were found: {', '.join(fused.left[:3])}"
            )
    return extract(graph, roots), tuple(warnings)


def _needed(
    source: LoadedSource, options: FreezeOptions, roots: list[str]
) -> tuple[Graph, tuple[str, ...], set[str]]:
    """What the outputs need, calls taken apart.

    Returns:
        the graph, the ops in it that fill its lookup tables, and all that a loader would run.
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
    """The signature of that name, or for an empty name the default or the only one, or None.

    Raises:
        UsageError: there is none of that name.
    """
    signatures = source.signatures
    if name:
        if name not in signatures:
            message = f"there is no signature {name!r}"
            hint = nearest_hint(name, signatures) or _there_are(signatures)
            raise UsageError(message, hint, source.where)
        return signatures[name]
    if _DEFAULT in signatures:
        return signatures[_DEFAULT]
    return next(iter(signatures.values())) if len(signatures) == 1 else None


def output_tensors(source: LoadedSource, options: FreezeOptions) -> tuple[str, ...]:
    """The names of the tensors to keep, each once.

    Raises:
        UsageError: none is named and no signature tells, or there is no such signature.
        InvalidGraphError: a name is neither a tensor's nor a signature's; it names the nearest.
    """
    signature = chosen_signature(source, options.signature)
    if not options.outputs:
        if signature is None:
            message = "no outputs are named"
            raise UsageError(message, f"{_likely(source, signature)}; {_FLAGS}", source.where)
        return _tensors(signature, source)
    found: list[str] = []
    for name in options.outputs:
        if _is_tensor(source, name):
            found.append(name)
        elif signature is not None and name in signature.outputs:
            found.append(signature.outputs[name].name)
        elif name in source.signatures:
            found += _tensors(source.signatures[name], source)
        else:
            raise _unknown(name, signature, source)
    _check(found, source)
    return tuple(dict.fromkeys(found))


def _is_tensor(source: LoadedSource, name: str) -> bool:
    ref = parse_ref(name)
    node = source.graph.get(ref.node)
    if node is None or ref.is_control:
        return False
    count = output_count(node, source.graph.library)
    if ref.index and count is not None and ref.index >= count:
        message = f"the output {name!r} is not there: {ref.node!r} ({node.op}) gives {count}"
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
    known = [*source.graph.by_name, *source.signatures, *(signature.outputs if signature else ())]
    near = nearest_hint(parse_ref(name).node, known)
    likely = _likely(source, signature)
    return InvalidGraphError(message, f"{near} {likely}" if near else likely, source.where)


def _likely(source: LoadedSource, signature: Signature | None) -> str:
    from mobileprep.freezing.guess import described, guess  # only failures need it

    found = guess(source, signature).outputs
    hint = f"likely outputs: {described(found)}" if found else "name what the app fetches"
    if source.signatures and signature is None:
        hint += f"; signatures: {_there_are(source.signatures)}"
    return hint


def _there_are(signatures: Iterable[str]) -> str:
    return ", ".join(sorted(signatures)) or "there are none"
