"""JSON Schema made of options."""

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


MADE = parameters_schema(Sample, "sample", "A sample.", of_graph_transform_tool=True)


def test_a_transform_s_schema_is_closed_and_names_what_is_required() -> None:
    Draft202012Validator.check_schema(MADE)
    assert (MADE["title"], MADE["description"]) == ("sample", "A sample.")
    assert (MADE["additionalProperties"], MADE["required"]) == (False, ["names"])
    assert MADE["graphTransformTool"] is True


def test_every_parameter_has_its_type_bounds_and_default() -> None:
    keys = MADE["properties"]
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
    ("given", "fits"),
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
def test_it_refuses_what_the_declaration_refuses(given: dict[str, Any], fits: bool) -> None:
    schema = {**MADE, "$defs": {"path": {"type": "string"}}}
    assert Draft202012Validator(schema).is_valid(given) is fits


def test_keys_of_a_section_have_no_bounds_but_their_own_and_no_default_of_nothing() -> None:
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


def test_text_ends_with_a_line() -> None:
    assert rendered({"a": "\N{DEGREE SIGN}"}) == '{\n  "a": "\N{DEGREE SIGN}"\n}\n'
