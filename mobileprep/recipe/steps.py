"""Read and check chains of transforms, in YAML or in the syntax of ``--transforms``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.recipe.files import named_files, path_problems
from mobileprep.recipe.model import ParameterValue, Step
from mobileprep.recipe.schemas import Schema, TransformSchemas
from mobileprep.recipe.tree import (
    Entry,
    KeyPath,
    MappingNode,
    Node,
    Place,
    Problem,
    Scalar,
    ScalarValue,
    Sequence,
    SourceText,
    in_order,
    plain,
    render,
    show,
)
from mobileprep.recipe.validate import schema_problems

# Transforms of the original that are not supported, with the reason.
_NOT_OFFERED: Final = {
    "rewrite_quantized_stripped_model_for_hexagon": (
        "the Hexagon runtime that it prepares graphs for went with TensorFlow 1"
    ),
}
_SPACED: Final = "white space before '(', which the original tool refuses, is read over"


class ReadSteps(NamedTuple):
    """A chain of transforms.

    Args:
        steps: the steps without problems.
        problems: problems of the other steps.
        unclosed: problem if the last transform of a string has no ``)``; ``steps`` does not include
            it.
        unknown: problems of parameters that a flag's transforms do not have and that are ignored.
    """

    steps: tuple[Step, ...] = ()
    problems: tuple[Problem, ...] = ()
    unclosed: Problem | None = None
    unknown: tuple[Problem, ...] = ()


def read_steps(node: Node | None, schemas: TransformSchemas) -> ReadSteps:
    """Read the steps of a ``transforms`` section of either form, and check their parameters.

    Values of a wrong type, which the recipe's schema reports, are skipped.
    """
    if isinstance(node, Scalar) and isinstance(node.value, str):
        text = _read_text(node, schemas)
        unclosed = (text.unclosed,) if text.unclosed is not None else ()
        return ReadSteps(text.steps, (*text.problems, *unclosed))
    read = [_read_item(item, schemas) for item in _items(node)]
    return ReadSteps(
        tuple(step for one in read for step in one.steps),
        tuple(problem for one in read for problem in one.problems),
    )


def parse_transforms_flag(
    text: str, schemas: TransformSchemas | None = None
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return the steps of a ``--transforms`` flag, and warnings.

    Like the original, ignore a last transform without ``)`` and parameters that a transform does
    not have, but return a warning for each. White space before ``(`` also causes a warning.
    """
    place = Place(SourceText("--transforms", Path(), text), 1, 1)
    read = _read_text(Scalar(text, place, text), schemas or TransformSchemas(), as_flag=True)
    if read.problems:
        raise UsageError(render(in_order(read.problems)))
    warnings = tuple(_in_words(problem) for problem in read.unknown)
    warnings += tuple(f"{step.place}: {step.name}: {step.note}" for step in read.steps if step.note)
    if read.unclosed is not None:
        warnings += (f"{read.unclosed.place}: {read.unclosed.message} and is ignored",)
    return read.steps, warnings


def _in_words(problem: Problem) -> str:
    hint = f"; {problem.hint}" if problem.hint else ""
    return f"{problem.place}: {problem.message}{hint}"


def _items(node: Node | None) -> tuple[Node, ...]:
    return node.items if isinstance(node, Sequence) else ()


def _read_text(chain: Scalar, schemas: TransformSchemas, *, as_flag: bool = False) -> ReadSteps:
    parsed = parse_chain(chain.text)
    places = TextPlaces(chain)
    steps: list[Step] = []
    problems: list[Problem] = []
    unknown: list[Problem] = []
    for call in parsed.calls:
        schema = schemas.get(call.name)
        if schema is None:
            problems.append(_no_such(call.name, places.at(call.offset), schemas))
            continue
        parameters, repeated = from_chain(call, places, schema)
        if as_flag:
            parameters, left_out = _split_parameters(call.name, parameters, schema)
            unknown += left_out
        read = _checked(call.name, parameters, schemas, schema, places.at(call.offset))
        steps += [replace(s, note=_SPACED) for s in read.steps] if call.spaced else read.steps
        problems += [*repeated, *read.problems]
    if parsed.fault is not None:
        fault = parsed.fault
        problems.append(Problem(places.at(fault.offset), fault.message, fault.hint))
    unclosed = None
    if parsed.unfinished is not None:
        name, offset = parsed.unfinished.name, parsed.unfinished.offset
        message = f"the transform {name!r} has no closing ')'"
        unclosed = Problem(places.at(offset), message, "add it")
    return ReadSteps(tuple(steps), tuple(problems), unclosed, tuple(unknown))


def _split_parameters(
    transform: str, parameters: MappingNode, schema: Schema
) -> tuple[MappingNode, list[Problem]]:
    """Split parameters into those that a transform has, and problems for the others."""
    if schema.get("additionalProperties", True) is not False:
        return parameters, []
    names = schema.get("properties", {})
    entries = {key: entry for key, entry in parameters.items() if key in names}
    problems = [
        Problem(
            entry.key_place,
            f"{transform} has no parameter {show(key)}, which is ignored",
            nearest_hint(key, names),
        )
        for key, entry in parameters.items()
        if key not in names
    ]
    return MappingNode(entries, parameters.place), problems


def _read_item(item: Node, schemas: TransformSchemas) -> ReadSteps:
    named = _name_and_parameters(item)
    if named is None:
        return ReadSteps()
    name, place, node = named
    schema = schemas.get(name)
    if schema is None:
        return ReadSteps(problems=(_no_such(name, place, schemas),))
    parameters = from_yaml(node, MappingNode({}, place), schema)
    return _checked(name, parameters, schemas, schema, place)


def _checked(
    name: str, parameters: MappingNode, schemas: TransformSchemas, schema: Schema, place: Place
) -> ReadSteps:
    """Return the step, or the problems of its parameters."""
    plugin = schemas.plugin(name)
    where = "" if plugin is None else str(plugin.schema.path)
    problems = schema_problems(parameters, schema, where=where)
    problems = problems or path_problems(parameters, schema)
    if problems:
        return ReadSteps(problems=tuple(problems))
    values, files = typed_values(parameters, schema), named_files(parameters, schema)
    return ReadSteps((Step(name, values, plugin, files, str(place)),))


def _name_and_parameters(item: Node) -> tuple[str, Place, Node] | None:
    if isinstance(item, Scalar) and isinstance(item.value, str):
        return item.value, item.place, item
    if isinstance(item, MappingNode) and len(item.entries) == 1:
        ((name, entry),) = item.items()
        return name, entry.key_place, entry.value
    return None


def _no_such(name: str, place: Place, schemas: TransformSchemas) -> Problem:
    if name in _NOT_OFFERED:
        message = f"the original's transform {show(name)} is not offered: {_NOT_OFFERED[name]}"
        return Problem(place, message, "leave it out")
    if "(" in name:
        bare = name.partition("(")[0]
        hint = f"in a list, write '{bare}: {{parameter: value}}'"
    else:
        hint = nearest_hint(name, schemas.names)
    return Problem(place, f"unknown transform {show(name)}", hint)


IGNORE_ERRORS = "ignore_errors"

# Syntax that the original's number parsers accept, without surrounding white space.
_INTEGER = re.compile(r"-?[0-9]{1,30}\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_HEX = re.compile(r"[-+]?0[xX][0-9a-fA-F]{1,30}\Z")
_SPACE = " \t\n\v\f\r"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def from_yaml(node: Node, nothing: MappingNode, schema: Schema) -> MappingNode:
    """Read parameters in YAML form; a single value for a list becomes a list with one item.

    Args:
        node: a mapping, a list of mappings whose values are concatenated, or null.
    """
    if isinstance(node, Sequence):
        node = _joined(node)
    mapping = node if isinstance(node, MappingNode) else nothing
    entries = {
        key: Entry(entry.key_place, _listed(entry.value) if _is_list(schema, key) else entry.value)
        for key, entry in mapping.items()
    }
    return MappingNode(entries, mapping.place)


def from_chain(call: Call, places: TextPlaces, schema: Schema) -> tuple[MappingNode, list[Problem]]:
    """Read parameters in string form; return a problem for each invalid repetition."""
    repeated: dict[str, list[Argument]] = {}
    for argument in call.arguments:
        repeated.setdefault(argument.name, []).append(argument)
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    for name, arguments in repeated.items():
        key_place = places.at(arguments[0].offset, (call.name, name))
        scalars = tuple(_scalar(call, argument, places, schema) for argument in arguments)
        if _is_list(schema, name):
            entries[name] = Entry(key_place, Sequence(scalars, key_place))
            continue
        entries[name] = Entry(key_place, scalars[0])
        # Like the original, use the first ignore_errors.
        if len(scalars) > 1 and name != IGNORE_ERRORS and name in schema.get("properties", {}):
            message = f"expected a single {name!r}, found {len(scalars)}"
            problems.append(Problem(scalars[1].place, message, "keep one of them"))
    place = places.at(call.offset, (call.name,))
    return MappingNode(entries, place), problems


def typed_values(parameters: MappingNode, schema: Schema) -> tuple[tuple[str, ParameterValue], ...]:
    """Return checked parameters as Python values, with tuples and the schema's number types."""
    return tuple(
        (key, _of_kind(plain(entry.value), _item_kind(schema, key)))
        for key, entry in parameters.items()
    )


def _scalar(call: Call, argument: Argument, places: TextPlaces, schema: Schema) -> Scalar:
    place = places.at(argument.value_offset, (call.name, argument.name))
    value = _from_text(argument.value, _item_kind(schema, argument.name))
    if argument.name == IGNORE_ERRORS:
        value = {"true": True, "false": False}.get(argument.value.lower(), argument.value)
    return Scalar(value, place, argument.value)


def _from_text(text: str, kind: str) -> ScalarValue:
    """Parse a string as the original does; return the string itself if it cannot be parsed."""
    bare = text.strip(_SPACE)
    if kind == "boolean":
        return _BOOLEANS.get(text, text)
    if kind == "integer" and _INTEGER.match(bare):
        return int(bare)
    if kind == "number" and _FLOAT.match(bare):
        number = float(bare)
        return number if math.isfinite(number) else text
    if kind == "number" and _HEX.match(bare):
        return float(int(bare, 16))
    return text


def _joined(mappings: Sequence) -> MappingNode:
    entries: dict[str, Entry] = {}
    for mapping in mappings.items:
        for key, entry in mapping.items() if isinstance(mapping, MappingNode) else ():
            before = entries.get(key)
            values = _listed(entry.value)
            if before is not None:
                values = Sequence((*_listed(before.value).items, *values.items), values.place)
            entries[key] = Entry(before.key_place if before else entry.key_place, values)
    return MappingNode(entries, mappings.place)


def _listed(node: Node) -> Sequence:
    return node if isinstance(node, Sequence) else Sequence((node,), node.place)


def _of_kind(value: ParameterValue | list[ParameterValue], kind: str) -> ParameterValue:
    if isinstance(value, list):
        return tuple(_of_kind(item, kind) for item in value)  # type: ignore[misc]
    if kind == "integer":
        return int(value)  # type: ignore[arg-type]
    return float(value) if kind == "number" else value  # type: ignore[arg-type]


def _is_list(schema: Schema, name: str) -> bool:
    return _property(schema, name).get("type") == "array"


def _item_kind(schema: Schema, name: str) -> str:
    described = _property(schema, name)
    if described.get("type") == "array":
        described = described.get("items", {})
    return str(described.get("type", "string"))


def _property(schema: Schema, name: str) -> Schema:
    described: Schema = schema.get("properties", {}).get(name, {})
    return described


class TextPlaces:
    """Locations of the characters of a string scalar.

    Folding and indentation change only white space, so all other characters of the value and the
    file are matched one by one. The match ends at escapes and replaced variables; later characters
    have the location of the scalar.
    """

    def __init__(self, scalar: Scalar) -> None:
        self._place = scalar.place
        self._positions = list(_positions(scalar))

    def at(self, offset: int, keys: KeyPath = ()) -> Place:
        """Return the location of ``scalar.text[offset]``, or of the next non-blank character.

        ``keys`` are appended to the scalar's key path.
        """
        place = self._place._replace(keys=(*self._place.keys, *keys))
        if offset >= len(self._positions):
            return place
        line, column = self._positions[offset]
        return place._replace(line=line, column=column)


def _positions(scalar: Scalar) -> Iterator[tuple[int, int]]:
    """Yield line and column of each character and of the end, as far as value and file match."""
    written = _written(scalar.place)
    pending = 1
    end = scalar.place.line, scalar.place.column
    for character in scalar.text:
        if character.isspace():
            pending += 1
            continue
        line, column, actual = next(written, (0, 0, ""))
        if actual != character:
            return
        for _ in range(pending):
            yield line, column
        pending = 1
        end = line, column + 1
    for _ in range(pending):
        yield end


def _written(place: Place) -> Iterator[tuple[int, int, str]]:
    """Yield line, column, and character of each character of a scalar except white space."""
    lines = place.source.lines
    first = lines[place.line - 1]
    start = _skip_anchor(first, place.column - 1)
    if first[start : start + 1] in ("|", ">"):
        start = len(first)
    elif first[start : start + 1] in ("'", '"'):
        start += 1
    for number, line in enumerate(lines[place.line - 1 :], place.line):
        for column, character in enumerate(line[start:], start + 1):
            if not character.isspace():
                yield number, column, character
        start = 0


def _skip_anchor(line: str, start: int) -> int:
    if not line.startswith("&", start):
        return start
    anchor, _, rest = line[start:].partition(" ")
    return start + len(anchor) + 1 + len(rest) - len(rest.lstrip())


MAX_CHARACTERS = 1 << 16
MAX_CALLS = 1_000

_SPACES = re.compile(r"[ \t\n\v\f\r]*")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_BARE_VALUE = re.compile(r"[A-Za-z0-9./_-]+")
_QUOTED_VALUE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


class Argument(NamedTuple):
    """A ``name=value``; ``offset`` and ``value_offset`` are character offsets in the chain."""

    name: str
    value: str
    offset: int
    value_offset: int


class Call(NamedTuple):
    """A transform and its arguments.

    Args:
        name: name of the transform.
        arguments: arguments in the order written.
        offset: character offset of the name in the chain.
        spaced: whether there is white space between the name and ``(``.
    """

    name: str
    arguments: tuple[Argument, ...]
    offset: int
    spaced: bool = False


class Fault(NamedTuple):
    """Position and reason of a syntax error in a chain."""

    offset: int
    message: str
    hint: str = ""


class Chain(NamedTuple):
    """A parsed chain.

    Args:
        calls: the complete transforms.
        fault: the syntax error that ended the parsing, or None.
        unfinished: a last transform without ``)``, which the original silently drops.
    """

    calls: tuple[Call, ...]
    fault: Fault | None = None
    unfinished: Call | None = None


def parse_chain(text: str) -> Chain:
    """Parse a chain with the grammar of ``ParseTransformParameters`` of TensorFlow 1.15.

    Transforms are separated by white space. Arguments directly follow the name, in parentheses,
    separated by white space or by one comma directly after a value. Values consist of letters,
    digits, and ``-./_``, or are in double quotes; in quotes, a backslash escapes the next quote and
    remains part of the value. As in the original, a stray quote after a value is skipped, and white
    space before ``)`` is an error.

    White space before ``(``, which the original rejects, is accepted and marked. Chains with more
    than ``MAX_CHARACTERS`` characters or ``MAX_CALLS`` transforms are errors, unlike in the
    original.
    """
    if len(text) > MAX_CHARACTERS:
        message = f"a chain has at most {MAX_CHARACTERS:,} characters"
        return Chain((), Fault(0, message, "write it as a list"))
    return _Reader(text).chain()


class _FaultError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def chain(self) -> Chain:
        calls: list[Call] = []
        try:
            while self._skip_spaces():
                call, finished = self._call()
                if not finished:
                    return Chain(tuple(calls), unfinished=call)
                if len(calls) == MAX_CALLS:
                    message = f"a chain has at most {MAX_CALLS:,} transforms"
                    return Chain(tuple(calls), Fault(call.offset, message, "shorten it"))
                calls.append(call)
        except _FaultError as error:
            return Chain(tuple(calls), error.fault)
        return Chain(tuple(calls))

    def _call(self) -> tuple[Call, bool]:
        start = self._at
        name = self._match(_NAME, "a transform's name")
        arguments: list[Argument] = []
        spaced = self._skip_to_parenthesis()
        finished = not self._take("(")
        while not finished and self._at < len(self._text):
            if self._take(")"):
                finished = True
            elif (argument := self._argument()) is not None:
                arguments.append(argument)
        return Call(name, tuple(arguments), start, spaced), finished

    def _argument(self) -> Argument | None:
        self._take(",")
        self._skip_spaces()
        offset = self._at
        name = self._match(_NAME, "a parameter's name")
        if not self._take("="):
            expected = f"'=' after the parameter {name}"
            raise self._fault(expected)
        if self._at == len(self._text):
            return None
        value_offset = self._at
        value = self._value()
        self._take('"')
        self._take("'")
        return Argument(name, value, offset, value_offset)

    def _value(self) -> str:
        if not self._text.startswith('"', self._at):
            return self._match(_BARE_VALUE, "a parameter's value")
        quoted = _QUOTED_VALUE.match(self._text, self._at)
        if quoted is None:
            raise _FaultError(Fault(self._at, "a quoted value has no closing '\"'", "add it"))
        self._at = quoted.end()
        return quoted[1]

    def _match(self, pattern: re.Pattern[str], expected: str) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._fault(expected)
        self._at = match.end()
        return match[0]

    def _take(self, literal: str) -> bool:
        is_next = self._text.startswith(literal, self._at)
        self._at += is_next
        return is_next

    def _skip_spaces(self) -> bool:
        """Skip white space, and return whether text follows."""
        match = _SPACES.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at
        return self._at < len(self._text)

    def _skip_to_parenthesis(self) -> bool:
        """Skip white space before ``(``, and return whether there was any."""
        match = _SPACES.match(self._text, self._at)
        after = match.end() if match is not None else self._at
        if after == self._at or not self._text.startswith("(", after):
            return False
        self._at = after
        return True

    def _fault(self, expected: str) -> _FaultError:
        rest = self._text[self._at :]
        actual = show(rest, 20) if rest else "the end"
        return _FaultError(Fault(self._at, f"expected {expected}, found {actual}", self._hint()))

    def _hint(self) -> str:
        before, after = self._text[: self._at], self._text[self._at : self._at + 1]
        if after == "\\":
            return "remove the backslash: inside quotes it does not continue a line"
        if after == ")" and before[-1:].isspace():
            return "remove the white space before ')'"
        if after == ")" and before.endswith(","):
            return "remove the comma before ')'"
        if after == "," and "(" not in before.rpartition(")")[2]:
            return "separate transforms by spaces"
        if after == ",":
            return "write one comma, directly after the value before it"
        return 'put a value with other characters in double quotes: shape="1,8,8,1"'
