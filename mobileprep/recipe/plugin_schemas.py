"""What the schema of a plugin's parameters must be, beyond what JSON Schema asks.

A plugin's schema is a stranger's file, which is read before any of the plugin's code is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mobileprep.errors import CorruptFileError

_HINT = 'start with {"type": "object", "additionalProperties": false, "properties": {}}'
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def no_schema(reason: str, where: str) -> CorruptFileError:
    """The error for a file that is no schema of a transform's parameters."""
    message = f"is no readable JSON Schema of a transform's parameters: {reason}"
    return CorruptFileError(message, _HINT, where)


def check_parameters_schema(schema: Any, where: str) -> None:  # noqa: ANN401 - whatever JSON holds
    """Make sure that a schema describes parameters by name, and refers to nothing but itself.

    Raises:
        CorruptFileError: it does not; the message tells where.
    """
    if not isinstance(schema, dict):
        msg = "it is not a mapping"
        raise no_schema(msg, where)
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        msg = "its 'properties' are not a mapping"
        raise no_schema(msg, where)
    for name, described in properties.items():
        if not _describes(described):
            msg = f"its parameter {name!r} is not described by a mapping"
            raise no_schema(msg, where)
    for reference in _references(schema):
        if not reference.startswith("#"):
            message = f"refers to {reference!r}, and nothing is fetched for it"
            hint = "put what it refers to into the file itself, under '$defs'"
            raise CorruptFileError(message, hint, where)


def _describes(described: object) -> bool:
    """Whether the schema of one parameter has the form that reading recipes relies on."""
    if not isinstance(described, dict):
        return False
    kind, items = described.get("type", ""), described.get("items", {})
    return isinstance(kind, str | list) and isinstance(items, dict)


def _references(schema: object) -> Iterator[str]:
    """What a schema refers to, anywhere in it."""
    waiting = [schema]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        elif isinstance(found, dict):
            waiting += found.values()
            yield from (v for k in _REFERENCES if isinstance(v := found.get(k), str))
