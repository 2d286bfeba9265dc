"""JSON Schema generated from options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from msgspec import Struct

from mobileprep.core.declare import Option, declared, parameters_schema, rendered, section_schema
from mobileprep.errors import UsageError
from mobileprep.targets.op_classes import ClassCost
from mobileprep.targets.targets import devices, find_device


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


SIZE, WORD, FILE = Option("A size.", minimum=1), Option("A word."), Option("A file.")


class DeclareSample(Struct, frozen=True):
    """One option of each form, and a field that is not an option."""

    sizes: Annotated[tuple[int, ...], SIZE]
    word: Annotated[Literal["a", "b"], WORD] = "b"
    maybe: Annotated[float | None, Option("Perhaps.")] = None
    file: Annotated[Path | None, FILE] = None
    listed: Annotated[str, Option("One of two.", choices=("x", "y"))] = "x"
    internal: int = 3


def test_every_option_form_is_declared() -> None:
    sizes, word, maybe, file, listed = declared(DeclareSample)
    assert (sizes.name, sizes.kind, sizes.repeated, sizes.required) == ("sizes", int, True, True)
    assert sizes.option is SIZE
    assert (word.kind, word.choices, word.default, word.required) == (str, ("a", "b"), "b", False)
    assert (maybe.kind, maybe.default, maybe.required) == (float, None, False)
    assert (file.kind, file.repeated) == (Path, False)
    assert (listed.choices, listed.default) == (("x", "y"), "x")


def test_inherited_options_come_first() -> None:
    class More(DeclareSample, frozen=True):
        last: Annotated[bool, Option("The last.")] = False

    assert [option.name for option in declared(More)][-2:] == ["listed", "last"]


def test_known_devices_have_their_gflops() -> None:
    assert find_device("phone-2016").gflops == 20
    assert find_device("raspberry-pi-3").gflops == 5


def test_minimum_time_is_computed_from_gflops() -> None:
    costs = [ClassCost("convolution", 2, 9 * 10**9, 10**6), ClassCost("other", 1, 10**9, 0)]
    assert find_device("phone-2016").seconds(costs) == 0.5


def test_every_device_names_its_source() -> None:
    for name, device in devices().items():
        assert name == device.name
        assert device.gflops > 0
        assert device.url.startswith("https://")
        assert device.source
        assert device.basis
        assert device.title


def test_unknown_device_suggests_closest_name() -> None:
    with pytest.raises(UsageError) as error:
        find_device("raspbery-pi-3")
    assert error.value.hint == "did you mean 'raspberry-pi-3'?"
    with pytest.raises(UsageError) as error:
        find_device("?")
    assert "phone-2016" in error.value.hint
