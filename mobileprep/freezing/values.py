"""Read the values of variables from a checkpoint, and check them against the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.errors import ArtifactError, InternalError, InvalidGraphError, did_you_mean
from mobileprep.formats.checkpoint_reader import region_of, shape_of_box
from mobileprep.freezing.convert import convert
from mobileprep.freezing.model import (
    Asset,
    FreezeOptions,
    LoadedSource,
    SavedValue,
    candidates,
    restored_from,
)
from mobileprep.freezing.tables import with_plain_paths
from mobileprep.freezing.trace import extract, trace, upstream, variable_behind, variables_of
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ASSIGNMENTS
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.functions.inline import inline_calls

_PROTOBUF_LIMIT: Final = (1 << 31) - 1
_AVERAGE_SUFFIX: Final = "/ExponentialMovingAverage"
_NAMED_AT_MOST: Final = 10


class Values(Struct, frozen=True):
    """The values of variables.

    Args:
        tensors: values by variable node.
        keys: checkpoint keys by variable node; an empty string for computed values.
        assets: files whose paths are values.
        warnings: warnings for the user.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    assets: tuple[Asset, ...] = ()
    warnings: tuple[str, ...] = ()


def read_values(
    graph: Graph, variables: Sequence[Node], source: LoadedSource, options: FreezeOptions
) -> Values:
    """Read the value of each variable.

    Ops that the user names as initializers override the checkpoint, because the original runs them
    after it restores the checkpoint. The model's own init ops do not override it.

    Raises:
        InvalidGraphError: if variables have no value, or differ from the checkpoint.
        ArtifactError: if the frozen graph would be too large.
    """
    if not variables:
        return Values()
    saved = _Saved(source, options)
    places = {v.name: place for v in variables if (place := saved.place(v)) is not None}
    _check_all(variables, places, source)
    _check_size(graph, places, source)
    names = [v.name for v in variables]
    overrides = initial_values(source, names, options.initializer_nodes, saved.read)
    lacking = [n for n in names if n not in places and n not in overrides.tensors]
    own = initial_values(source, lacking, source.init_ops, saved.read)
    _check_complete([n for n in lacking if n not in own.tensors], saved, source)
    computed = {**own.tensors, **overrides.tensors}
    tensors = {
        v.name: computed[v.name] if v.name in computed else saved.read_at(v, places[v.name])
        for v in variables
    }
    keys = {n: "" if n in computed else places[n].key for n in names}
    assets = (*overrides.assets, *own.assets)
    return Values(tensors, keys, assets, _about_averages(keys, options))


def without_value(variables: Iterable[Node], source: LoadedSource) -> list[str]:
    """Return the names of variables that are not in the checkpoint of a model."""
    saved = _Saved(source, FreezeOptions())
    listed = list(variables)
    places = {v.name: place for v in listed if (place := saved.place(v)) is not None}
    _check_all(listed, places, source)
    return [v.name for v in listed if v.name not in places]


class _Saved:
    """The values of variables in the checkpoint."""

    def __init__(self, source: LoadedSource, options: FreezeOptions) -> None:
        self._source = source
        self._options = options
        self._names = frozenset(source.checkpoint.names() if source.checkpoint else ())
        restore_op = options.restore_op_name or source.restore_op
        self._restored = restored_from(source.graph, restore_op) if self._names else {}

    def places(self, variable: Node) -> list[SavedValue]:
        """Return the possible locations of a variable, best first."""
        return _places(variable, self._restored, self._source, self._options)

    def place(self, variable: Node) -> SavedValue | None:
        """Return the location of a variable, or None if it is not in the checkpoint."""
        return next((p for p in self.places(variable) if p.key in self._names), None)

    def read(self, variable: Node) -> Tensor | None:
        """Return the value of a variable, or None if it is not in the checkpoint."""
        place = self.place(variable)
        return None if place is None else self.read_at(variable, place)

    def read_at(self, variable: Node, place: SavedValue) -> Tensor:
        """Return the value at a location as a view of the file."""
        if self._source.checkpoint is None:
            message = f"{variable.name!r} is read from no checkpoint"
            raise InternalError(message)
        array = self._source.checkpoint.read(place.key, place.slice_spec)
        return Tensor.of(array, variable.attr_dtype("dtype").base)


def _places(
    variable: Node,
    restored: Mapping[str, list[SavedValue]],
    source: LoadedSource,
    options: FreezeOptions,
) -> list[SavedValue]:
    key = source.keys.get(variable.name)
    places = candidates(variable, restored, [key] if key else [])
    if not options.moving_averages:
        return places
    # If the graph has the average as a separate variable, it also has its own key.
    averaged = restored.get(variable.name + _AVERAGE_SUFFIX, [])
    return [
        *averaged,
        *(SavedValue(p.key + _AVERAGE_SUFFIX, p.slice_spec) for p in places),
        *places,
    ]


def _check_all(
    variables: Sequence[Node], places: Mapping[str, SavedValue], source: LoadedSource
) -> None:
    faults = []
    for variable in variables:
        place = places.get(variable.name)
        if place is None or source.checkpoint is None:
            continue
        entry = source.checkpoint.entry(place.key)
        dtype = variable.attr_dtype("dtype").base
        shape = _shape_of(place, entry.shape)
        declared = variable.attr_shape("shape")
        if entry.dtype != dtype:
            faults.append(f"{variable.name!r} is {dtype.short}, {place.key!r} {entry.dtype.short}")
        elif declared is not None and not _fits(shape, declared):
            faults.append(f"{variable.name!r} is {list(declared)}, {place.key!r} {list(shape)}")
    if faults:
        message = "variables differ from the checkpoint: " + _listed(faults)
        hint = "graph and checkpoint are of different models"
        raise InvalidGraphError(message, hint, source.where)


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(
        d in (-1, s) for s, d in zip(shape, declared, strict=True)
    )


def _shape_of(place: SavedValue, full: Sequence[int]) -> tuple[int, ...]:
    if not place.slice_spec:
        return tuple(full)
    return shape_of_box(region_of(place.slice_spec, full))


def _check_size(graph: Graph, places: Mapping[str, SavedValue], source: LoadedSource) -> None:
    """Reject a graph that would be too large before reading the values."""
    size = 0
    if source.checkpoint is not None:
        for place in places.values():
            entry = source.checkpoint.entry(place.key)
            size += math.prod(_shape_of(place, entry.shape)) * entry.dtype.itemsize
    for node in graph:
        size += sum(v.value.nbytes for v in node.attrs.values() if v.kind == "tensor")
    if size > _PROTOBUF_LIMIT:
        message = f"the frozen graph would take {size} bytes, more than protobuf's limit of 2 GiB"
        hint = (
            "store the weights with 8 bits first (quantize_weights), or leave large variables out "
            "with variable_names_blacklist"
        )
        raise ArtifactError(message, hint, source.where)


def _check_complete(missing: Sequence[str], saved: _Saved, source: LoadedSource) -> None:
    """Raise an error that lists all variables without a value."""
    if not missing:
        return
    if source.checkpoint is None:
        message = f"{len(missing)} variables have no value, and no checkpoint is named: "
        message += _listed([repr(name) for name in missing])
        raise InvalidGraphError(message, "name the checkpoint that holds them", source.where)
    names = source.checkpoint.names()
    listed: list[str] = []
    for name in missing:
        key = saved.places(source.graph[name])[0].key
        near = _near(key, names) if len(listed) < _NAMED_AT_MOST else ""
        listed.append(f"{name!r}" + (f" (the nearest is {near!r})" if near else ""))
    message = f"{len(missing)} variables are not in the checkpoint: {_listed(listed)}"
    hint = (
        "graph and checkpoint are of different models; variables that only an initializer gives "
        "need initializer_nodes"
    )
    raise InvalidGraphError(message, hint, source.where)


def _near(key: str, names: Sequence[str]) -> str:
    inside = [n for n in names if n.endswith(f"/{key}") or key.endswith(f"/{n}")]
    return next(iter(inside or did_you_mean(key, names)), "")


def _about_averages(keys: Mapping[str, str], options: FreezeOptions) -> tuple[str, ...]:
    if not options.moving_averages:
        return ()
    raw = [k for k in keys.values() if not k.endswith(_AVERAGE_SUFFIX)]
    if len(raw) == len(keys):
        return ("the checkpoint has no moving averages; raw values are used",)
    if raw:
        return (f"{len(raw)} variables have no moving average; their raw values are used",)
    return ()


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _NAMED_AT_MOST} more" if len(items) > _NAMED_AT_MOST else ""
    return ", ".join(items[:_NAMED_AT_MOST]) + more


class Initialized(Struct, frozen=True):
    """Tensors by variable node, and the assets whose paths are among them."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    assets: tuple[Asset, ...] = ()


def initial_values(
    source: LoadedSource,
    names: Sequence[str],
    ops: Sequence[str],
    saved: Callable[[Node], Tensor | None],
) -> Initialized:
    """Return the values that ops assign to variables, without variables that they do not assign.

    Args:
        saved: function that returns the checkpoint's value of another variable, which initializers
            may read.
    """
    for name in ops:
        if name not in source.graph:
            message = f"the initializer node {name!r} is not in the graph"
            raise InvalidGraphError(message, "name an op that assigns variables", source.where)
    graph = inline_calls(extract(source.graph, ops), ops, source.where)
    assigned = _assigned(graph, frozenset(names))
    graph = with_plain_paths(graph, source.assets)
    paths = {parse_ref(a.tensor).node: a for a in source.assets}
    values: dict[str, Tensor] = {}
    assets: list[Asset] = []
    waiting = dict(assigned)
    while waiting:
        before = len(waiting)
        for variable, ref in list(waiting.items()):
            value = _computed(graph, ref, values, saved, source.where)
            if value is None:
                continue
            del waiting[variable]
            values[variable] = value
            assets += [
                replace(paths[n.name], tensor=f"{variable}:0")
                for n, _ in upstream(graph, ref)
                if n.name in paths
            ]
        if len(waiting) == before:
            break
    return Initialized({v: values[v] for v in assigned if v in values}, tuple(assets))


def _assigned(graph: Graph, names: frozenset[str]) -> dict[str, Ref]:
    """Return the tensor that is assigned to each named variable."""
    refs: dict[str, Ref] = {}
    for node in graph:
        if node.op in ASSIGNMENTS and len(node.data_inputs) > 1:
            variable = variable_behind(graph, node.inputs[0])
            if variable is not None and variable.name in names:
                refs.setdefault(variable.name, node.inputs[1])
    return refs


def _computed(
    graph: Graph,
    ref: Ref,
    values: Mapping[str, Tensor],
    saved: Callable[[Node], Tensor | None],
    where: str,
) -> Tensor | None:
    """Return the value of a tensor, or None if it needs a variable without a value so far."""
    from mobileprep.runtime.interpreter import (
        Interpreter,  # Slow to import, and few models need it.
    )

    part = extract(graph, [ref.node])
    variables = variables_of(part)
    tensors: dict[str, Tensor] = {}
    for variable in variables:
        value = values.get(variable.name) or saved(variable)
        if value is None:
            return None
        tensors[variable.name] = value
    constant = convert(part, tensors, trace(part, variables), where)
    return Tensor.of(Interpreter(constant, where=where).run([str(ref)], {})[0])
