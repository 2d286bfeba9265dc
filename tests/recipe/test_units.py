"""Tests."""

from __future__ import annotations

import pytest

from mobileprep.recipe.tree import plain
from mobileprep.recipe.units import MAX_EXPANDED, Variables, parse_bytes, parse_flops, resolve
from mobileprep.recipe.yaml_tree import parse_yaml


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("17 B", 17),
        ("60 KB", 60_000),
        ("60kb", 60_000),
        ("60 KiB", 61_440),
        ("1.5 MiB", 1_572_864),
        ("0.1 MB", 100_000),
        ("0.1 KiB", 102),
        ("2 GB", 2 * 10**9),
        ("1 TiB", 1 << 40),
        (" 3 MB ", 3_000_000),
        ("999999999999999.999999999999999 TB", 999999999999999999999999999),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("20 MFLOP", 20000000),
        ("20 mflops", 20000000),
        ("1.25 GFLOP", 1250000000),
        ("7", 7),
        ("3 FLOP", 3),
        ("0.0001 KFLOP", 0),
    ],
)
def test_operation_counts(text, count):
    assert parse_flops(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KB",
        "-1 KB",
        "+1",
        "1e3",
        "1 KBB",
        "1 K",
        "1,5 KB",
        "1. KB",
        ".5 KB",
        "1  KB",
        "0x10",
        "1 MFLOP",
        "1_000",
        "٣ KB",
        "1" * 16,
        "1 KB\nx",
        "inf",
        "1 YB",
    ],
)
def test_invalid_sizes(text):
    assert parse_bytes(text) is None


@pytest.mark.parametrize("text", ["1 KB", "1 MiFLOP", "1 flo", ""])
def test_invalid_operation_counts(text):
    assert parse_flops(text) is None


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


@pytest.fixture
def substitute(source):
    """Substitute the variables of a YAML text and return the values and problems."""

    def substitute(text, settings=None, environ=None):
        variables = Variables(settings or {}, environ or {})
        tree = variables.substitute(parse_yaml(source(text)))
        return plain(tree), [f"{p.place}: {p.message}; {p.hint}" for p in variables.problems]

    return substitute


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: ${X}/b", "x/b"),
        ("a: '${X}${X}'", "xx"),
        ("a: ${NO:-d}", "d"),
        ("a: ${NO:-}", None),
        ("a: '${NO:-}'", ""),
        ("a: ${EMPTY:-d}", "d"),
        ("a: '${EMPTY}'", ""),
        ("a: ${X:-d}", "x"),
        ("a: ${NO:-a:-b}", "a:-b"),
        ("a: $$", "$"),
        ("a: $${X}", "${X}"),
        ("a: $$$$", "$$"),
        ("a: $X $", "$X $"),
        ("a: ${N}", 16),
        ("a: '${N}'", "16"),
        ("a: ${NO:-1e-3}", 0.001),
        ("a: ${NO:-true}", True),
        ("a: ${DOLLAR}", "${X}"),
    ],
)
def test_variables_are_substituted(substitute, text, value):
    environ = {"X": "x", "EMPTY": "", "N": "16", "DOLLAR": "${X}"}
    result, problems = substitute(text, environ=environ)
    assert problems == []
    assert result == {"a": value}
    assert type(result["a"]) is type(value)


def test_settings_override_the_environment(substitute):
    result, _ = substitute("a: ${X}", settings={"X": "1st"}, environ={"X": "2nd"})
    assert result == {"a": "1st"}


def test_keys_and_other_values_are_not_changed(substitute):
    result, _ = substitute("${X}: [1, true, ~, '$$']", environ={"X": "x"})
    assert result == {"${X}": [1, True, None, "$"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a: 1\nb: [x, '${MODL}']\n",
            (
                "recipe.yaml:2:8: the variable MODL has no value; did you mean MODEL? "
                "give it with --set MODL=VALUE or write ${MODL:-default}"
            ),
        ),
        ("a: ${}\n", "recipe.yaml:1:4: '${}' is not a variable; write ${NAME}"),
        ("a: ${1A}\n", "recipe.yaml:1:4: '${1A}' is not a variable; write ${NAME}"),
        ("a: ${A:b}\n", "recipe.yaml:1:4: '${A:b}' is not a variable; write ${NAME}"),
        ("a: x${\n", "recipe.yaml:1:4: '${' is not a variable; write ${NAME}"),
        ("a: '${A:-${B}}'\n", "recipe.yaml:1:4: '${A:-${B}}' is not a variable; write ${NAME}"),
    ],
)
def test_problem_is_reported_with_its_location(substitute, text, expected):
    _, (problem, *more) = substitute(text, environ={"MODEL": "m"})
    assert problem.startswith(expected)
    assert more == []


def test_all_missing_variables_are_reported(substitute):
    _, problems = substitute("a: ${X}\nb: ${Y}${Z}\n")
    assert len(problems) == 3


def test_size_of_substituted_values_is_limited(substitute):
    result, problems = substitute(f"a: '{'${X}' * 100}'\n", environ={"X": "x" * (1 << 17)})
    assert "the variables of this recipe come to more than" in problems[0]
    assert len(problems) == 1
    assert len(result["a"]) <= MAX_EXPANDED


def test_used_names_are_collected(source):
    variables = Variables({}, {"B": "b"})
    variables.substitute(parse_yaml(source("a: ${A:-1} ${B}\n")))
    assert variables.used == {"A", "B"}
