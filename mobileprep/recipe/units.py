"""Sizes and counts with units: ``60 KB``, ``1.5 MiB``, ``20 MFLOP``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from mobileprep.errors import did_you_mean
from mobileprep.recipe.tree import (
    Entry,
    MappingNode,
    Node,
    Place,
    Problem,
    Scalar,
    ScalarValue,
    Sequence,
    show,
)

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_BYTES = {f"{prefix}b": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_FLOPS = {f"{prefix}flop": factor for prefix, factor in _DECIMAL.items()}

_AMOUNT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))? ?([A-Za-z]*)\Z")


def parse_bytes(text: str) -> int | None:
    """Parse a size in bytes, rounded down; None if the string is not a size.

    ``KB``, ``MB``, ``GB``, and ``TB`` are powers of 1,000; ``KiB`` and so on are powers of 1,024.
    Case does not matter, and a number without a unit counts bytes.
    """
    return _parse(text, {"": 1, **_BYTES})


def parse_flops(text: str) -> int | None:
    """Parse a number of floating point operations, rounded down; None if it is invalid.

    ``KFLOP``, ``MFLOP``, ``GFLOP``, and ``TFLOP`` are powers of 1,000; a final ``s`` is allowed.
    """
    return _parse(text, {"": 1, **_FLOPS, **{f"{name}s": f for name, f in _FLOPS.items()}})


def _parse(text: str, units: dict[str, int]) -> int | None:
    match = _AMOUNT.match(text.strip())
    if match is None:
        return None
    factor = units.get(match[3].lower())
    if factor is None:
        return None
    fraction = match[2] or ""
    # Use integers only: floats would round 0.1 MB to a byte too few or too many.
    amount: int = int(match[1] + fraction) * factor // 10 ** len(fraction)
    return amount


_WORDS: dict[str, ScalarValue] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")

# Longer digit strings are names or digests, and converting them to numbers could lose digits.
_LONGEST_NUMBER = 40


def resolve(text: str) -> ScalarValue:
    """Return the value of an unquoted scalar.

    ``no``, ``on``, ``010``, ``0x1f``, ``1:30``, and dates are strings; ``1e-3`` is a number.
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_NUMBER or _LEADING_ZERO.match(text):
        return text
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


MAX_EXPANDED = 4 << 20  # Maximum total length of all substitutions in a recipe, in characters.
_ENOUGH = 100  # Maximum number of problems; suggesting similar names for more would only take time.

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<body>[^{}]*)\}|(?P<broken>\{[^}]*\}*))")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?\Z", re.DOTALL)


class Variables:
    """The values of variables, and a record of their use.

    Args:
        settings: values with precedence over ``environ``.
        environ: values of the environment.

    ``used`` contains the names of all references, ``problems`` the references without a value.
    """

    def __init__(self, settings: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._expanded = 0
        self.used: set[str] = set()
        self.problems: list[Problem] = []

    def substitute(self, node: Node) -> Node:
        """Return a tree with the references in all strings replaced.

        An unquoted scalar is parsed again after the replacement: ``steps: ${N:-16}`` is a number.
        """
        if isinstance(node, Scalar):
            return self._scalar(node)
        if isinstance(node, Sequence):
            return Sequence(tuple(self.substitute(item) for item in node.items), node.place)
        return self.substitute_mapping(node)

    def substitute_mapping(self, node: MappingNode) -> MappingNode:
        """Return a mapping with the references in its values, but not in its keys, replaced."""
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
        # As in the shell, ':-' also replaces an empty value.
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
