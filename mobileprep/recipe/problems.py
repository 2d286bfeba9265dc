"""Problems of a recipe: collected, sorted by place, and rendered with the line they stand on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mobileprep.errors import RecipeError
from mobileprep.recipe.tree import Place, dotted

_SHOWN = 100
_SNIPPET_WIDTH = 100


class Problem(NamedTuple):
    """One thing that is wrong.

    Args:
        place: where.
        message: what.
        hint: the mend, or empty.
    """

    place: Place
    message: str
    hint: str = ""

    def __str__(self) -> str:
        keys = dotted(self.place.keys)
        text = f"{self.place}: {keys}: {self.message}" if keys else f"{self.place}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


class InvalidRecipeError(RecipeError):
    """A recipe with problems.

    ``message`` has a line for each, followed by the line of the recipe and a caret;
    ``problems`` holds the same for machines.
    """

    problems: tuple[Problem, ...] = ()


def recipe_error(problems: Iterable[Problem]) -> InvalidRecipeError:
    """The error that tells all problems, sorted by place, none twice."""
    ordered = in_order(problems)
    error = InvalidRecipeError(render(ordered))
    error.problems = tuple(ordered)
    return error


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Problems sorted by file, line and column; equal ones once."""

    def key(problem: Problem) -> tuple[str, int, int, str]:
        place = problem.place
        return place.source.name, place.line, place.column, str(problem)

    unique = {key(problem): problem for problem in problems}
    return [unique[k] for k in sorted(unique)]


def render(problems: Iterable[Problem]) -> str:
    """One problem after another, each with its snippet; at most 100 are shown."""
    listed = list(problems)
    blocks = [f"{problem}\n{snippet(problem.place)}" for problem in listed[:_SHOWN]]
    if len(listed) > _SHOWN:
        blocks.append(f"... and {len(listed) - _SHOWN} more")
    return "\n".join(blocks)


def snippet(place: Place) -> str:
    """The line that a place points at, with a caret under its column."""
    lines = place.source.lines
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    start = max(0, place.column - 1 - _SNIPPET_WIDTH // 2)
    shown = "".join(c if c.isprintable() else " " for c in line[start : start + _SNIPPET_WIDTH])
    return f"{place.line:5d} | {shown}".rstrip() + f"\n      | {' ' * (place.column - 1 - start)}^"
