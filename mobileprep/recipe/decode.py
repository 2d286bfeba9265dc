"""Decode nodes of a recipe's tree as the types that declare them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, ValidationError, convert

from mobileprep.data.options import DATA_KINDS, FOLDERS, LABEL_FILES, FeatureReading
from mobileprep.recipe.files import input_file
from mobileprep.recipe.model import Protection
from mobileprep.recipe.pipeline_settings import FlopsLimits, PipelineBudget, PipelineStep
from mobileprep.recipe.sections import is_null
from mobileprep.recipe.settings import Budget, Data, InputFile, Pin, Source, SourceKind
from mobileprep.recipe.tree import (
    KeyPath,
    MappingNode,
    Node,
    Scalar,
    Sequence,
    find,
    place_of,
    plain,
)
from mobileprep.recipe.units import parse_bytes, parse_flops
from mobileprep.recipe.validation_settings import (
    AUTO,
    LIMITS,
    QUANTIZERS,
    MetricChoice,
    MetricFunction,
    NamedValidation,
    Quantize,
    Validation,
    choice_facts,
)

T = TypeVar("T", bound=Struct)
# The fields of a Struct by name: nodes to decode as the types of the fields, or other values.
Fields: TypeAlias = Mapping[str, Any]

# Instead of files that an invalid recipe does not name.
_NO_FILE: Final = InputFile("", Path())
_NO_DATA: Final = Data(_NO_FILE)
NO_SOURCE: Final = Source("frozen", _NO_FILE)
SOURCE_KINDS: Final = get_args(SourceKind)
ENVIRONMENT: Final = "env:"
_QUANTIZE_PARAMETERS: Final = {parameter for _, parameter in QUANTIZERS.values()}
# Default limit of metrics that are shares.
_USUAL_DROP: Final = 0.01


class Decoder:
    """Decode nodes as declared types.

    A field whose value does not fit its type has its default, so that the checks of an invalid
    recipe cover its other keys. ``errors`` contains the reasons; the schema reports these values.
    """

    def __init__(self) -> None:
        self.errors: list[ValidationError] = []

    def struct(self, kind: type[T], fields: Fields) -> T:
        """Return a Struct; missing fields and ``null`` have their defaults."""
        values = {}
        for name in fields.keys() & _hints(kind).keys():
            value = fields[name]
            is_node = isinstance(value, Node)
            value = self.attempt(value, _hints(kind)[name]) if is_node else value
            if value is not None or not is_node:
                values[name] = value
        try:
            return kind(**values)
        except TypeError as error:
            raise ValidationError(str(error)) from error

    def attempt(self, node: Node | None, hint: Any, default: Any = None) -> Any:  # noqa: ANN401
        """Return the value of a node as a type; the default for ``null`` or a value of another."""
        if node is None or is_null(node):
            return default
        try:
            return self.decode(node, hint)
        except ValidationError as error:
            self.errors.append(error)
            return default

    def decode(self, node: Node, hint: Any) -> Any:  # noqa: ANN401 - of the type
        """Return the value of a node as a type: a Struct, a tuple, or a scalar.

        Raises:
            ValidationError: if it does not fit.
        """
        kind = _member(hint, node)
        if kind is InputFile and isinstance(node, Scalar) and isinstance(node.value, str):
            return input_file(node.value, node.place)
        if _is_struct(kind):
            return self.struct(kind, _FIELDS.get(kind, _mapping)(self, node))
        if _is_tuple(kind):
            return self._tuple(node, get_args(kind)[0])
        value = plain(node)
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)  # 1e3 is a whole number too
        return convert(value, kind)

    def _tuple(self, node: Node, item: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
        """Return items, or the pairs of a mapping; a single value is the only item."""
        if isinstance(node, MappingNode) and _is_tuple(item):
            kind = get_args(item)[1]
            return tuple((name, self.decode(child, kind)) for name, child in node.nodes().items())
        items = node.items if isinstance(node, Sequence) else (node,)
        return tuple(self.decode(child, item) for child in items)


@cache
def _hints(kind: type[Struct]) -> dict[str, Any]:
    """Return the types of a Struct's fields by name."""
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def _member(hint: Any, node: Node) -> Any:  # noqa: ANN401 - types
    """Return the member of a union for a node: a Struct for a mapping, a tuple for a list."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    members = [member for member in get_args(hint) if member is not NoneType]
    fits = _is_tuple if isinstance(node, Sequence) else _is_struct
    several = members if not isinstance(node, Scalar) else []
    return next((member for member in several if fits(member)), members[0])


def _is_struct(kind: Any) -> bool:  # noqa: ANN401 - a type
    return isinstance(kind, type) and issubclass(kind, Struct)


def _is_tuple(kind: Any) -> bool:  # noqa: ANN401 - a type
    return get_origin(kind) is tuple


def _mapping(_decoder: Decoder, node: Node) -> Fields:
    if not isinstance(node, MappingNode):
        msg = "Expected a mapping"
        raise ValidationError(msg)
    return node.nodes()


def _source(decoder: Decoder, node: Node) -> Fields:
    fields = _mapping(decoder, node)
    kind = next((kind for kind in SOURCE_KINDS if kind in fields), None)
    pins = fields.get("sha256")
    if kind is None:
        return {}
    return {
        "checkpoint": _beside(fields[kind]) if kind == "meta_graph" else None,
        **fields,
        "kind": kind,
        "file": fields[kind],
        "pins": tuple(_pins(pins)) if isinstance(pins, MappingNode) else (),
    }


def _beside(graph: Node) -> InputFile | None:
    """Return the checkpoint that a saver writes next to a MetaGraph of the same name."""
    name = str(plain(graph))
    prefix = name.removesuffix(".meta")
    return input_file(prefix, graph.place) if prefix != name else None


def _pins(pins: MappingNode) -> Iterator[Pin]:
    for name, entry in sorted(pins.items()):
        yield Pin(input_file(name, entry.key_place), str(plain(entry.value)).lower())


def _data(_decoder: Decoder, node: Node) -> Fields:
    if not isinstance(node, MappingNode):
        return {"file": node}
    fields = node.nodes()
    kind = next((kind for kind in DATA_KINDS if kind in fields), None)
    labels = fields.pop("labels", None)
    is_file = kind in LABEL_FILES and labels is not None and plain(labels) != FOLDERS
    return {
        **fields,
        "kind": kind,
        "file": fields.get(kind or ""),
        "reading": node,
        "labels": labels if is_file else None,
    }


def _feature(decoder: Decoder, node: Node) -> Fields:
    return {"key": node} if isinstance(node, Scalar) else _mapping(decoder, node)


def _quantize(decoder: Decoder, node: Node) -> Fields:
    if isinstance(node, Scalar):
        return {"mode": node}
    fields = _mapping(decoder, node)
    names = fields.keys() & _QUANTIZE_PARAMETERS
    parameters = tuple((key, decoder.attempt(fields[key], int, 0)) for key in names)
    return {**fields, "parameters": parameters}


def _protection(decoder: Decoder, node: Node) -> Fields:
    fields = _mapping(decoder, node)
    encrypt = fields.get("encrypt")
    key = encrypt.get("key") if isinstance(encrypt, MappingNode) else None
    return {**fields, "key": None if key is None else str(plain(key)).removeprefix(ENVIRONMENT)}


def _budget(decoder: Decoder, node: Node) -> Fields:
    return {key: amount(key, child) for key, child in _mapping(decoder, node).items()}


def _flops_limits(decoder: Decoder, node: Node) -> Fields:
    return {key: amount("flops", child) for key, child in _mapping(decoder, node).items()}


def _pipeline_step(decoder: Decoder, node: Node) -> Fields:
    return {"model": "", **_mapping(decoder, node), "place": str(node.place)}


def amount(key: str, node: Node | None) -> Node | int | None:
    """Return the number of a string with a unit, None for an invalid string, or another node."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return node
    return parse_flops(node.value) if key == "flops" else parse_bytes(node.value)


def _validation(decoder: Decoder, node: Node) -> Fields:
    fields = _mapping(decoder, node)
    usual = {"labels": fields.get("labels")}
    metrics = tuple(_choice(decoder, choice, usual) for choice in metric_nodes(node))
    data = decoder.attempt(fields.get("data"), Data, _NO_DATA)
    return {**fields, "metrics": metrics, "data": data}


def validation_nodes(tree: MappingNode) -> list[tuple[KeyPath, MappingNode]]:
    """Return the key path and the mapping of each validation of a target."""
    section = tree.get("validation")
    if not isinstance(section, Sequence):
        return [(("validation",), section)] if isinstance(section, MappingNode) else []
    return [
        (("validation", index), item)
        for index, item in enumerate(section.items)
        if isinstance(item, MappingNode)
    ]


def metric_nodes(validation: Node) -> list[MappingNode]:
    """Return the items of ``metrics``, or the section itself, which describes a single metric."""
    listed = find(validation, ("metrics",))
    nodes = listed.items if isinstance(listed, Sequence) else (validation,)
    return [node for node in nodes if isinstance(node, MappingNode)]


def _choice(decoder: Decoder, node: MappingNode, usual: Fields) -> MetricChoice:
    fields = {**usual, **node.nodes()}
    metric: str | MetricFunction = AUTO
    if "metric" in fields:
        metric = decoder.attempt(fields["metric"], str | MetricFunction, "")
    limits = [key for key in LIMITS if key in fields]
    facts = choice_facts(metric)
    if facts is not None and facts.is_share and not limits:
        fields["max_drop"] = _USUAL_DROP
    places = [str(place_of(node, (key,))) for key in ("metric", *limits[:1])]
    fields |= {"metric": metric, "place": places[0], "limit_place": places[-1]}
    fields["gap_place"] = str(place_of(node, ("max_gap",)))
    return decoder.struct(MetricChoice, fields)


_FIELDS: Final[Mapping[type, Callable[[Decoder, Node], Fields]]] = {
    Budget: _budget,
    Data: _data,
    FeatureReading: _feature,
    FlopsLimits: _flops_limits,
    NamedValidation: _validation,
    PipelineBudget: _budget,
    PipelineStep: _pipeline_step,
    Protection: _protection,
    Quantize: _quantize,
    Source: _source,
    Validation: _validation,
}
"""Sections whose keys differ from the fields."""
