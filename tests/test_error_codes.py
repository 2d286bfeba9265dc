"""Error codes."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from mobileprep.error_codes import CODES, ErrorCode, code_of, find_app_message
from mobileprep.errors import (
    ArtifactError,
    CorruptFileError,
    InternalError,
    InvalidGraphError,
    MobileprepError,
    RecipeError,
    UsageError,
)
from tests.sources import sources
from tools import make_error_page

OF_APPS = [entry for entry in CODES if entry.code.startswith("MP1")]
OF_MESSAGES = [e for e in CODES if e.patterns and e not in OF_APPS]

# Lines that TensorFlow 1.15, TensorFlow 2, and LiteRT print, with the names that they contain.
APP_LINES = [
    (
        "No OpKernel was registered to support Op 'Erf' used by {{node gelu/Erf}}with these attrs",
        "MP101",
        {"op": "Erf", "node": "gelu/Erf"},
    ),
    (
        "No OpKernel was registered to support Op 'Pad' with these attrs.\n\t [[Node: pads/Pad = P",
        "MP101",
        {"op": "Pad", "node": "pads/Pad"},
    ),
    (
        "NodeDef mentions attr 'dilations' not in Op<name=Conv2D; attr=T>; NodeDef: {{node a/b}} =",
        "MP102",
        {"attr": "dilations", "op": "Conv2D", "node": "a/b"},
    ),
    (
        "Op type not registered 'MatrixDiagV3' in binary running on localhost.",
        "MP103",
        {"op": "MatrixDiagV3"},
    ),
    ("Not found: No session factory registered for the given session options: {}", "MP104", {}),
    (
        "Didn't find op for builtin opcode 'CONV_2D' version '5'. An older version might be",
        "MP105",
        {"op": "CONV_2D", "version": "5"},
    ),
    (
        "NodeDef mentions attribute explicit which is not in the op definition: Op<name=Conv2D; a",
        "MP102",
        {"attr": "explicit", "op": "Conv2D"},
    ),
    ("Encountered an unresolved custom op. Did you miss a custom op or delegate?", "MP107", {}),
    ("Encountered unresolved custom op: FlexErf.\nSee instructions", "MP106", {"op": "Erf"}),
    (
        "Regular TensorFlow ops are not supported by this interpreter. Make sure you apply/link",
        "MP106",
        {},
    ),
    ("Node number 7 (FlexErf) failed to prepare.", "MP106", {"op": "Erf"}),
    (
        "Encountered unresolved custom op: TFLite_Detection_PostProcess.",
        "MP107",
        {"op": "TFLite_Detection_PostProcess"},
    ),
    (
        "You must feed a value for placeholder tensor 'keep_prob' with dtype float",
        "MP108",
        {"node": "keep_prob"},
    ),
    ("Attempting to use uninitialized value dense/kernel", "MP109", {"node": "dense/kernel"}),
    (
        "GraphDef min consumer version 1087 above current version 134 for TensorFlow 1.15.0.",
        "MP110",
        {"version": "1087"},
    ),
    ("Input to reshape is a tensor with 10 values, but the requested shape has 4", "MP111", {}),
    ("Can't parse model.pb as binary proto", "MP112", {}),
]


@pytest.mark.parametrize(("line", "code", "names"), APP_LINES)
def test_app_messages_are_recognized(line: str, code: str, names: dict[str, str]) -> None:
    match = find_app_message(line)
    assert match is not None
    assert (match[0].code, match[1]) == (code, names)


def test_each_app_message_has_an_example() -> None:
    assert {code for _, code, _ in APP_LINES} == {entry.code for entry in OF_APPS}


def test_codes_are_unique() -> None:
    codes = [entry.code for entry in CODES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"MP\d{3}", code) for code in codes)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("r/a/package: a.yaml:3:1: 2 batch norms are left that can be folded: put ...", "MP001"),
        ("quantize_weights a second time: weights that are stored in 8 bits stay so", "MP002"),
        ("no range is known of 'y': measured each time the graph runs", "MP003"),
        ("photos/: only 2 of 9 samples are distinct, so the ranges are those of 2", "MP010"),
        ("TensorFlow 1.15 has no op Xlog1py (node 'out')", "MP020"),
        ("mobileprep.lock does not fit: graph.pb is not pinned", "MP030"),
        ("the remote store https://cache is too slow; building without it", "MP031"),
        ("anything else", "MP000"),
    ],
)
def test_warnings_have_codes(message: str, code: str) -> None:
    assert code_of(message, 0) == code


@cache
def _strings() -> tuple[str, ...]:
    """All strings of the product, with X for the fields of f-strings."""
    strings = []
    for source in sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "X" for v in node.values]
                strings.append("".join(map(str, parts)))
    return tuple(strings)


@pytest.mark.parametrize("entry", OF_MESSAGES, ids=lambda entry: entry.code)
def test_each_pattern_matches_a_message(entry: ErrorCode) -> None:
    for pattern in entry.patterns:
        # The key before the problem of a recipe is added later.
        searched = re.compile(pattern.removeprefix(": "))
        assert any(searched.search(text) for text in _strings()), pattern


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("unknown verb 'biuld'"), "MP201"),
        (UsageError("anything else"), "MP200"),
        (RecipeError("a.yaml:1:1: unknown key 'x'"), "MP301"),
        (RecipeError("a.yaml:1:1: the key 'x' is given twice; first at 1:1"), "MP309"),
        (CorruptFileError("is a Git LFS pointer, not the file itself"), "MP401"),
        (InvalidGraphError("the output 'y' is not in the graph"), "MP501"),
        (ArtifactError("exists already"), "MP901"),
        (InternalError("exists already"), "MP970"),
    ],
)
def test_errors_have_codes(error: MobileprepError, code: str) -> None:
    assert error.code == code


def test_patterns_of_other_exit_codes_are_ignored() -> None:
    assert code_of("is a Git LFS pointer", 5) == "MP500"


def test_reference_page_is_current() -> None:
    text = make_error_page.PAGE.read_text("utf-8")
    assert text == make_error_page.render(text), "run tools/make_error_page.py"
