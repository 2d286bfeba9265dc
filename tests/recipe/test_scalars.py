from __future__ import annotations

import pytest

from mobileprep.recipe.units import resolve


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_words(text):
    assert resolve(text) is None


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("FALSE", False), ("false", False)]
)
def test_booleans(text, value):
    assert resolve(text) is value


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("-12", -12), ("+3", 3), ("9223372036854775808", 2**63)]
)
def test_integers(text, value):
    result = resolve(text)
    assert result == value
    assert isinstance(result, int)


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 1e-3), ("1.", 1.0), (".5", 0.5), ("-2.5E+2", -250.0), ("1e3", 1e3)]
)
def test_floats(text, value):
    result = resolve(text)
    assert result == value
    assert isinstance(result, float)


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "on",
        "off",
        "y",
        "n",
        "No",
        "tRue",
        "nULL",
        "010",
        "-010",
        "00.5",
        "0o17",
        "0x1f",
        "0b1",
        "1_000",
        "1:30",
        "190:20:30",
        "2024-01-31",
        "2001-12-14t21:59:43.10-05:00",
        ".inf",
        "-.inf",
        ".nan",
        "inf",
        "nan",
        "e5",
        "1e999",
        "=",
        "<<",
        "1" * 41,
        "٣",
    ],
)
def test_other_scalars_are_strings(text):
    assert resolve(text) == text
