"""``${NAME}`` and ``${NAME:-default}`` in values, from settings and the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mobileprep.errors import did_you_mean
from mobileprep.recipe.problems import Problem
from mobileprep.recipe.scalars import resolve
from mobileprep.recipe.tree import Entry, MappingNode, Node, Place, Scalar, Sequence, show

MAX_EXPANDED = 4 << 20  # characters that all substitutions of a recipe may add up to
_ENOUGH = 100  # problems; finding near names for more would only take time

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<body>[^{}]*)\}|(?P<broken>\{[^}]*\}*))")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?\Z", re.DOTALL)


class Variables:
    """Where values come from, and what was asked for.

    Args:
        settings: looked at first.
        environ: looked at next.

    ``used`` fills with the names that values refer to, ``problems`` with the references
    that have no value.
    """

    def __init__(self, settings: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._expanded = 0
        self.used: set[str] = set()
        self.problems: list[Problem] = []

    def substitute(self, node: Node) -> Node:
        """The same tree with every reference in its texts replaced.

        An unquoted scalar is read again after replacing: ``steps: ${N:-16}`` is a number.
        """
        if isinstance(node, Scalar):
            return self._scalar(node)
        if isinstance(node, Sequence):
            return Sequence(tuple(self.substitute(item) for item in node.items), node.place)
        return self.substitute_mapping(node)

    def substitute_mapping(self, node: MappingNode) -> MappingNode:
        """The same mapping with every reference in its values replaced; keys stay."""
        entries = {
            key: Entry(entry.key_place, self.substitute(entry.value)) for key, entry in node.items()
        }
        return MappingNode(entries, node.place)

    def _scalar(self, scalar: Scalar) -> Scalar:
        if not isinstance(scalar.value, str) or "$" not in scalar.value:
            return scalar
        text = self._text(scalar.value, scalar.place)
        return scalar._replace(value=resolve(text) if scalar.plain else text, text=text)

    def _text(self, text: str, place: Place) -> str:
        def expand(match: re.Match[str]) -> str:
            if match["dollar"]:
                return "$"
            value = self._value(match, place)
            self._expanded += len(value)
            return value if self._expanded <= MAX_EXPANDED else ""

        within = self._expanded <= MAX_EXPANDED
        expanded = _REFERENCE.sub(expand, text)
        if within and self._expanded > MAX_EXPANDED:
            message = f"the variables of this recipe come to more than {MAX_EXPANDED:,} characters"
            self._report(place, message, "use shorter values")
        return expanded

    def _value(self, match: re.Match[str], place: Place) -> str:
        body = _BODY.match(match["body"] or "")
        if body is None:
            message = f"{show(match[0])} is not a variable"
            hint = "write ${NAME} or ${NAME:-default}, and $$ for a dollar sign"
            self._report(place, message, hint)
            return ""
        name, default = body["name"], body["default"]
        self.used.add(name)
        value = self._settings.get(name)
        if value is None:
            value = self._environ.get(name)
        # As in the shell, ':-' stands in for an empty value too.
        if value or (value is not None and default is None):
            return value
        if default is not None:
            return default
        hint = f"give it with --set {name}=VALUE or write ${{{name}:-default}}"
        self._report(place, f"the variable {name} has no value", hint, name)
        return ""

    def _report(self, place: Place, message: str, hint: str, name: str = "") -> None:
        if len(self.problems) == _ENOUGH:
            return
        near = did_you_mean(name, {*self._settings, *self._environ}) if name else []
        meant = f"did you mean {near[0]}? " if near else ""
        self.problems.append(Problem(place, message, meant + hint))
