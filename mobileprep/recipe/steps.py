"""A chain of transforms, in YAML or as ``--transforms`` text, to checked and typed steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.recipe.chain import parse_chain
from mobileprep.recipe.model import Step
from mobileprep.recipe.named_files import named_files, path_problems
from mobileprep.recipe.offsets import TextPlaces
from mobileprep.recipe.parameters import from_chain, from_yaml, typed_values
from mobileprep.recipe.problems import Problem, in_order, render
from mobileprep.recipe.schemas import Schema, TransformSchemas
from mobileprep.recipe.tree import MappingNode, Node, Place, Scalar, Sequence, SourceText, show
from mobileprep.recipe.validate import schema_problems

# What the original registered and has no use any more: why that is.
_NOT_OFFERED: Final = {
    "rewrite_quantized_stripped_model_for_hexagon": (
        "the Hexagon runtime that it prepares graphs for went with TensorFlow 1"
    ),
}
_SPACED: Final = "white space before '(', which the original tool refuses, is read over"


class ReadSteps(NamedTuple):
    """A chain that was read.

    Args:
        steps: those without problems; the whole chain where there are none.
        problems: what is wrong with the others.
        unclosed: that the last transform of a text has no ``)``; it is not among the steps.
        unknown: the parameters of a flag's transforms that they do not have, and that are left out.
    """

    steps: tuple[Step, ...] = ()
    problems: tuple[Problem, ...] = ()
    unclosed: Problem | None = None
    unknown: tuple[Problem, ...] = ()


def read_steps(node: Node | None, schemas: TransformSchemas) -> ReadSteps:
    """The steps of a ``transforms`` section of either form, checked against their schemas.

    Values of a type that the recipe's schema refuses are left out without a problem.
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
    """The steps of a ``--transforms`` flag, and warnings.

    As the original does, a last transform without ``)`` is dropped, and so are parameters that a
    transform does not have, but with warnings. White space before ``(`` is warned of too.

    Raises:
        UsageError: the text cannot be read, names a transform that is not there, or a parameter has
            a value that it cannot have.
    """
    place = Place(SourceText("--transforms", Path(), text), 1, 1)
    read = _read_text(Scalar(text, place, text), schemas or TransformSchemas(), as_flag=True)
    if read.problems:
        raise UsageError(render(in_order(read.problems)))
    warnings = tuple(_in_words(problem) for problem in read.unknown)
    warnings += tuple(f"{step.place}: {step.name}: {step.note}" for step in read.steps if step.note)
    if read.unclosed is not None:
        warnings += (f"{read.unclosed.place}: {read.unclosed.message} and is left out",)
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
            parameters, left_out = _known(call.name, parameters, schema)
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


def _known(
    transform: str, parameters: MappingNode, schema: Schema
) -> tuple[MappingNode, list[Problem]]:
    """The parameters that a transform has, and for each other one what is said of it."""
    if schema.get("additionalProperties", True) is not False:
        return parameters, []
    names = schema.get("properties", {})
    known = {key: entry for key, entry in parameters.items() if key in names}
    left_out = [
        Problem(
            entry.key_place,
            f"{transform} has no parameter {show(key)}, which is left out",
            nearest_hint(key, names),
        )
        for key, entry in parameters.items()
        if key not in names
    ]
    return MappingNode(known, parameters.place), left_out


def _read_item(item: Node, schemas: TransformSchemas) -> ReadSteps:
    named = _name_and_parameters(item)
    if named is None:
        return ReadSteps()
    name, place, given = named
    schema = schemas.get(name)
    if schema is None:
        return ReadSteps(problems=(_no_such(name, place, schemas),))
    parameters = from_yaml(given, MappingNode({}, place), schema)
    return _checked(name, parameters, schemas, schema, place)


def _checked(
    name: str, parameters: MappingNode, schemas: TransformSchemas, schema: Schema, place: Place
) -> ReadSteps:
    """The one step of that name, or what is wrong with its parameters."""
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
    return Problem(place, f"there is no transform {show(name)}", hint)
