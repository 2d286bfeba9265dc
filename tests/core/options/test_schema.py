"""JSON Schema generated from options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from msgspec import Struct

from mobileprep.core.declare import Option, parameters_schema, rendered, section_schema


class Sample(Struct, frozen=True):
    """Options with bounds of every kind."""

    names: Annotated[tuple[str, ...], Option("Names.", min_items=1, min_length=1, unique=True)]
    count: Annotated[int, Option("How many.", minimum=1)] = 3
    share: Annotated[float | None, Option("A share.", minimum=0, maximum=1)] = None
    word: Annotated[Literal["a", "b"], Option("A word.")] = "b"
    log: Annotated[str, Option("A file.", format="path")] = ""
    data: Annotated[Path | None, Option("Data.", definition="path")] = None
    sizes: Annotated[tuple[int, ...], Option("Sizes.", minimum=-1, max_items=2)] = ()


SCHEMA = parameters_schema(Sample, "sample", "A sample.", of_graph_transform_tool=True)


def test_transform_schema_is_closed_and_lists_required_parameters() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert (SCHEMA["title"], SCHEMA["description"]) == ("sample", "A sample.")
    assert (SCHEMA["additionalProperties"], SCHEMA["required"]) == (False, ["names"])
    assert SCHEMA["graphTransformTool"] is True


def test_parameters_have_type_bounds_and_default() -> None:
    keys = SCHEMA["properties"]
    assert keys["names"] == {
        "description": "Names.",
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {"type": "string", "minLength": 1},
    }
    assert keys["count"] == {
        "description": "How many.",
        "type": "integer",
        "minimum": 1,
        "maximum": 2147483647,
        "default": 3,
    }
    assert keys["share"] == {
        "description": "A share.",
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "default": None,
    }
    assert keys["word"] == {"description": "A word.", "enum": ["a", "b"], "default": "b"}
    assert keys["log"]["format"] == "path"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"names": ["a"]}, True),
        ({"names": []}, False),
        ({"names": ["a", "a"]}, False),
        ({"names": [""]}, False),
        ({"names": ["a"], "count": 0}, False),
        ({"names": ["a"], "count": 2**31}, False),
        ({"names": ["a"], "share": 1.5}, False),
        ({"names": ["a"], "word": "c"}, False),
        ({"names": ["a"], "sizes": [-1, 2]}, True),
        ({"names": ["a"], "sizes": [-2]}, False),
        ({"names": ["a"], "sizes": [1, 2, 3]}, False),
        ({"names": ["a"], "other": 1}, False),
    ],
)
def test_schema_rejects_invalid_options(options: dict[str, Any], expected: bool) -> None:
    schema = {**SCHEMA, "$defs": {"path": {"type": "string"}}}
    assert Draft202012Validator(schema).is_valid(options) is expected


def test_section_schema_has_declared_bounds_and_no_null_default() -> None:
    keys = section_schema(Sample)
    assert keys["count"] == {
        "description": "How many.",
        "type": "integer",
        "minimum": 1,
        "default": 3,
    }
    assert keys["data"] == {"description": "Data.", "$ref": "#/$defs/path"}
    assert "default" not in keys["share"]
    assert keys["sizes"]["default"] == []


def test_rendered_schema_ends_with_newline() -> None:
    assert rendered({"a": "\N{DEGREE SIGN}"}) == '{\n  "a": "\N{DEGREE SIGN}"\n}\n'
