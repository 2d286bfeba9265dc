"""The values of variables, found in a checkpoint and checked against the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mobileprep.errors import ArtifactError, InvalidGraphError, did_you_mean
from mobileprep.formats.checkpoint import Checkpoint
from mobileprep.formats.slices import region_of, shape_of_box
from mobileprep.freeze.model import LoadedSource
from mobileprep.freeze.options import FreezeOptions
from mobileprep.freeze.restore import Source, candidates, restored_from
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Tensor

_PROTOBUF_LIMIT: Final = (1 << 31) - 1
_AVERAGE_SUFFIX: Final = "/ExponentialMovingAverage"
_NAMED_AT_MOST: Final = 10


@dataclass(frozen=True)
class Values:
    """Tensors by variable node, the checkpoint keys they have, and what to tell the user."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def read_values(
    graph: Graph, variables: Sequence[Node], source: LoadedSource, options: FreezeOptions
) -> Values:
    """The value of each variable.

    Args:
        graph: what is to be frozen, for its size.
        variables: nodes of it.
        source: the whole model.
        options: which saver's names and which of raw values and averages to take.

    Raises:
        InvalidGraphError: a variable is not in the checkpoint, or differs in shape or type.
        ArtifactError: the constants together would pass protobuf's limit; nothing was read.
    """
    if not variables:
        return Values()
    if source.checkpoint is None:
        raise _no_checkpoint(variables, source.where)
    found = _find(variables, source.checkpoint, source, options)
    _check_all(variables, found, source.checkpoint, source.where)
    _check_size(graph, found, source.checkpoint, source.where)
    tensors = {v.name: _read(v, found[v.name], source.checkpoint) for v in variables}
    keys = {v.name: found[v.name].key for v in variables}
    return Values(tensors, keys, _about_averages(keys, options))


def _find(
    variables: Sequence[Node],
    checkpoint: Checkpoint,
    source: LoadedSource,
    options: FreezeOptions,
) -> dict[str, Source]:
    """Where each variable lies; those that lie nowhere are all named in one error."""
    restored = restored_from(source.graph, options.restore_op_name or source.restore_op)
    names = frozenset(checkpoint.names())
    found: dict[str, Source] = {}
    missing: dict[str, str] = {}
    for variable in variables:
        places = _places(variable, restored, source, options)
        place = next((p for p in places if p.key in names), None)
        if place is None:
            missing[variable.name] = places[0].key
        else:
            found[variable.name] = place
    if missing:
        raise _missing(missing, sorted(names), source.where)
    return found


def _places(
    variable: Node,
    restored: Mapping[str, list[Source]],
    source: LoadedSource,
    options: FreezeOptions,
) -> list[Source]:
    known = source.keys.get(variable.name)
    places = candidates(variable, restored, [known] if known else [])
    if not options.moving_averages:
        return places
    # The average is a variable of its own where the graph has it, and has its own key then.
    averaged = restored.get(variable.name + _AVERAGE_SUFFIX, [])
    return [*averaged, *(Source(p.key + _AVERAGE_SUFFIX, p.slice_spec) for p in places), *places]


def _check_all(
    variables: Sequence[Node], found: Mapping[str, Source], checkpoint: Checkpoint, where: str
) -> None:
    faults = []
    for variable in variables:
        place = found[variable.name]
        entry = checkpoint.entry(place.key)
        dtype = variable.attr_dtype("dtype").base
        shape = _shape_of(place, entry.shape)
        declared = variable.attr_shape("shape")
        if entry.dtype != dtype:
            faults.append(f"{variable.name!r} is {dtype.short}, {place.key!r} {entry.dtype.short}")
        elif declared is not None and not _fits(shape, declared):
            faults.append(f"{variable.name!r} is {list(declared)}, {place.key!r} {list(shape)}")
    if faults:
        message = "variables differ from the checkpoint: " + _listed(faults)
        raise InvalidGraphError(message, "graph and checkpoint are of different models", where)


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(
        d in (-1, s) for s, d in zip(shape, declared, strict=True)
    )


def _shape_of(place: Source, full: Sequence[int]) -> tuple[int, ...]:
    if not place.slice_spec:
        return tuple(full)
    return shape_of_box(region_of(place.slice_spec, full))


def _check_size(
    graph: Graph, found: Mapping[str, Source], checkpoint: Checkpoint, where: str
) -> None:
    """Refuse what cannot be written, before anything is read."""
    size = 0
    for place in found.values():
        entry = checkpoint.entry(place.key)
        size += math.prod(_shape_of(place, entry.shape)) * entry.dtype.itemsize
    for node in graph:
        size += sum(v.value.nbytes for v in node.attrs.values() if v.kind == "tensor")
    if size > _PROTOBUF_LIMIT:
        message = f"the frozen graph would take {size} bytes, more than protobuf's limit of 2 GiB"
        hint = (
            "store the weights with 8 bits first (quantize_weights), or leave large variables out "
            "with variable_names_blacklist"
        )
        raise ArtifactError(message, hint, where)


def _read(variable: Node, place: Source, checkpoint: Checkpoint) -> Tensor:
    array = checkpoint.read(place.key, place.slice_spec)
    return Tensor.of(array, variable.attr_dtype("dtype").base)


def _no_checkpoint(variables: Sequence[Node], where: str) -> InvalidGraphError:
    message = (
        f"the outputs need {len(variables)} variables, and no checkpoint is given: "
        + _listed([repr(v.name) for v in variables])
    )
    return InvalidGraphError(message, "name the checkpoint that holds their values", where)


def _missing(missing: Mapping[str, str], names: Sequence[str], where: str) -> InvalidGraphError:
    listed: list[str] = []
    for variable, key in missing.items():
        near = did_you_mean(key, names) if len(listed) < _NAMED_AT_MOST else []
        listed.append(f"{variable!r}" + (f" (the nearest is {near[0]!r})" if near else ""))
    message = f"{len(missing)} variables are not in the checkpoint: {_listed(listed)}"
    hint = (
        "graph and checkpoint are of different models; variables that only an initializer gives "
        "need initializer_nodes"
    )
    return InvalidGraphError(message, hint, where)


def _about_averages(keys: Mapping[str, str], options: FreezeOptions) -> tuple[str, ...]:
    if not options.moving_averages:
        return ()
    raw = [name for name, key in keys.items() if not key.endswith(_AVERAGE_SUFFIX)]
    if len(raw) == len(keys):
        return ("the checkpoint holds no moving averages; raw values were taken",)
    if raw:
        return (f"{len(raw)} variables have no moving average; their raw values were taken",)
    return ()


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _NAMED_AT_MOST} more" if len(items) > _NAMED_AT_MOST else ""
    return ", ".join(items[:_NAMED_AT_MOST]) + more
