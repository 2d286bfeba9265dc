"""A chain of transforms, in YAML or as ``--transforms`` text, to checked and typed steps."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.recipe.chain import parse_chain
from mobileprep.recipe.model import Step
from mobileprep.recipe.offsets import TextPlaces
from mobileprep.recipe.parameters import from_chain, from_yaml, typed_values
from mobileprep.recipe.problems import Problem, in_order, render
from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.tree import MappingNode, Node, Place, Scalar, Sequence, SourceText, show
from mobileprep.recipe.validate import schema_problems


class ReadSteps(NamedTuple):
    """A chain that was read.

    Args:
        steps: those without problems; the whole chain where there are none.
        problems: what is wrong with the others.
        unclosed: that the last transform of a text has no ``)``; it is not among the steps.
    """

    steps: tuple[Step, ...] = ()
    problems: tuple[Problem, ...] = ()
    unclosed: Problem | None = None


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

    As the original does, a last transform without ``)`` is dropped, but with a warning.

    Raises:
        UsageError: the text cannot be read, or names a transform or parameter that is not there.
    """
    place = Place(SourceText("--transforms", Path(), text), 1, 1)
    read = _read_text(Scalar(text, place, text), schemas or TransformSchemas())
    if read.problems:
        raise UsageError(render(in_order(read.problems)))
    if read.unclosed is None:
        return read.steps, ()
    return read.steps, (f"{read.unclosed.place}: {read.unclosed.message} and is left out",)


def _items(node: Node | None) -> tuple[Node, ...]:
    return node.items if isinstance(node, Sequence) else ()


def _read_text(chain: Scalar, schemas: TransformSchemas) -> ReadSteps:
    parsed = parse_chain(chain.text)
    places = TextPlaces(chain)
    steps: list[Step] = []
    problems: list[Problem] = []
    for call in parsed.calls:
        schema = schemas.get(call.name)
        if schema is None:
            problems.append(_no_such(call.name, places.at(call.offset), schemas))
            continue
        parameters, repeated = from_chain(call, places, schema)
        found = [*repeated, *schema_problems(parameters, schema)]
        problems += found
        if not found:
            steps.append(
                Step(call.name, typed_values(parameters, schema), schemas.plugin(call.name))
            )
    if parsed.fault is not None:
        fault = parsed.fault
        problems.append(Problem(places.at(fault.offset), fault.message, fault.hint))
    unclosed = None
    if parsed.unfinished is not None:
        name, offset = parsed.unfinished.name, parsed.unfinished.offset
        message = f"the transform {name!r} has no closing ')'"
        unclosed = Problem(places.at(offset), message, "add it")
    return ReadSteps(tuple(steps), tuple(problems), unclosed)


def _read_item(item: Node, schemas: TransformSchemas) -> ReadSteps:
    named = _name_and_parameters(item)
    if named is None:
        return ReadSteps()
    name, place, given = named
    schema = schemas.get(name)
    if schema is None:
        return ReadSteps(problems=(_no_such(name, place, schemas),))
    parameters = from_yaml(given, MappingNode({}, place), schema)
    problems = schema_problems(parameters, schema)
    if problems:
        return ReadSteps(problems=tuple(problems))
    return ReadSteps((Step(name, typed_values(parameters, schema), schemas.plugin(name)),))


def _name_and_parameters(item: Node) -> tuple[str, Place, Node] | None:
    if isinstance(item, Scalar) and isinstance(item.value, str):
        return item.value, item.place, item
    if isinstance(item, MappingNode) and len(item.entries) == 1:
        ((name, entry),) = item.items()
        return name, entry.key_place, entry.value
    return None


def _no_such(name: str, place: Place, schemas: TransformSchemas) -> Problem:
    if "(" in name:
        bare = name.partition("(")[0]
        hint = f"in a list, write '{bare}: {{parameter: value}}'"
    else:
        hint = nearest_hint(name, schemas.names)
    return Problem(place, f"there is no transform {show(name)}", hint)
