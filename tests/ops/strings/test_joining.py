"""Joining, splitting, and stripping strings."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import i32, run, run_all


def texts(*words: str) -> np.ndarray:
    """A vector of strings."""
    out = np.empty(len(words), dtype=object)
    out[:] = [w.encode() for w in words]
    return out


def scalar(word: str) -> np.ndarray:
    return texts(word).reshape(())


WORDS = texts("ab", "c", "", "déf")


def test_string_join() -> None:
    result = run("StringJoin", WORDS, scalar("x"), WORDS, separator="-")
    assert result.tolist() == [b"ab-x-ab", b"c-x-c", b"-x-", "déf-x-déf".encode()]
    with pytest.raises(InvalidGraphError, match="differ"):
        run("StringJoin", WORDS, WORDS[:2])


def test_reduce_join() -> None:
    square = texts("a", "b", "c", "d").reshape(2, 2)
    assert run("ReduceJoin", square, i32([1])).tolist() == [b"ab", b"cd"]
    assert run("ReduceJoin", square, i32([0]), separator="+").tolist() == [b"a+c", b"b+d"]
    assert run("ReduceJoin", square, i32([0, 1])).tolist() == b"acbd"
    assert run("ReduceJoin", square, i32([-1, 0]), keep_dims=True).tolist() == [[b"abcd"]]
    empty = texts().reshape(2, 0)
    assert run("ReduceJoin", empty, i32([1])).tolist() == [b"", b""]


def test_string_split() -> None:
    indices, values, shape = run_all("StringSplit", texts("a,b;c", ",d"), scalar(",;"))
    assert values.tolist() == [b"a", b"b", b"c", b"d"]
    assert indices.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0]]
    assert shape.tolist() == [2, 3]
    _, values, _ = run_all("StringSplit", texts(",d"), scalar(",;"), skip_empty=False)
    assert values.tolist() == [b"", b"d"]
    _, values, _ = run_all("StringSplit", texts("xyz"), scalar(""))
    assert values.tolist() == [b"x", b"y", b"z"]


def test_string_split_v2() -> None:
    line = texts(" a  b c ")
    assert run_all("StringSplitV2", line, scalar(""))[1].tolist() == [b"a", b"b", b"c"]
    assert run_all("StringSplitV2", line, scalar("  "))[1].tolist() == [b" a", b"b c "]
    limited = run_all("StringSplitV2", line, scalar(""), maxsplit=1)[1]
    assert limited.tolist() == [b"a", b"b c "]
    assert run_all("StringSplitV2", line, scalar(" "), maxsplit=0)[1].tolist() == [b" a  b c "]
    assert run_all("StringSplitV2", texts("a"), scalar(""), maxsplit=1)[1].tolist() == [b"a", b""]
    with pytest.raises(InvalidGraphError, match="a vector of strings"):
        run("StringSplitV2", scalar("a"), scalar(""))


def test_substr() -> None:
    assert run("Substr", WORDS[:2], i32(0), i32(1)).tolist() == [b"a", b"c"]
    assert run("Substr", WORDS[3:], i32(-3), i32(2)).tolist() == ["é".encode()]
    assert run("Substr", WORDS[3:], i32(1), i32(1), unit="UTF8_CHAR").tolist() == ["é".encode()]
    each = run("Substr", texts("abc", "def"), i32([0, 2]), i32([2, 5]))
    assert each.tolist() == [b"ab", b"f"]
    with pytest.raises(InvalidGraphError, match="a text of 1 has no"):
        run("Substr", WORDS[1:2], i32(2), i32(1))


def test_string_length() -> None:
    assert run("StringLength", WORDS).tolist() == [2, 1, 0, 4]
    assert run("StringLength", WORDS, unit="UTF8_CHAR").tolist() == [2, 1, 0, 3]


def test_strip_lower_and_upper() -> None:
    assert run("StringStrip", texts(" a b\n")).tolist() == [b"a b"]
    mixed = texts("aÉ")
    assert run("StringLower", mixed).tolist() == ["aÉ".encode()]
    assert run("StringLower", mixed, encoding="utf-8").tolist() == ["aé".encode()]
    assert run("StringUpper", mixed).tolist() == ["AÉ".encode()]


def test_upper_of_invalid_utf8() -> None:
    broken = np.array([b"a\xff\xfeb", b"A\xc3"], dtype=object)
    replaced = ["A\ufffd\ufffdB".encode(), "A\ufffd".encode()]
    assert run("StringUpper", broken, encoding="utf-8").tolist() == replaced
    assert run("StringUpper", broken).tolist() == [b"A\xff\xfeB", b"A\xc3"]


OP_CASES = [
    case("StringJoin", [(2, 3), (), (2, 3)], [(2, 3)]),
    case("StringJoin", [(), ()], [()]),
    unlike(case("StringJoin", [(2, 3), None], [None])),
    case("ReduceJoin", [(2, 3, 4), [1]], [(2, 4)]),
    case("ReduceJoin", [(2, 3, 4), [1]], [(2, 1, 4)], keep_dims=True),
    case("StringSplit", [(4,), ()], [(-1, 2), (-1,), (2,)]),
    case("StringSplitV2", [(4,), ()], [(-1, 2), (-1,), (2,)]),
    case("Substr", [(2, 1), (3,), (3,)], [(2, 3)]),
    refused("Substr", [(2,), (3,), (3,)]),
    *(case(op, [(2, -1)], [(2, -1)]) for op in ("StringLength", "StringLower", "StringStrip")),
    case("StringUpper", [(2, -1)], [(2, -1)]),
]

test_shapes_and_costs = case_tests(OP_CASES)
