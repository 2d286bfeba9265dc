"""Texts to numbers and back."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import OpCase, case
from tests.ops.graphs import f32, i32, run
from tests.ops.strings.test_joining import texts


def words(*values, **attrs) -> list[str]:
    return [w.decode() for w in run("AsString", *values, **attrs).ravel().tolist()]


def test_numbers_are_written_as_printf_does() -> None:
    assert words(i32(5, -7)) == ["5", "-7"]
    assert words(f32(1.5, np.inf)) == ["1.500000", "inf"]
    assert words(f32(1.5), precision=2) == ["1.50"]
    assert words(f32(1500), scientific=True, precision=1) == ["1.5e+03"]
    assert words(f32(0.25), shortest=True) == ["0.25"]
    assert words(np.array([True, False])) == ["true", "false"]
    assert words(np.array([1 + 2j], np.complex64), precision=0) == ["(1,2)"]


def test_widths_and_fillings() -> None:
    assert words(i32(5), width=3) == ["  5"]
    assert words(i32(-5), width=4, fill="0") == ["-005"]
    assert words(i32(5), width=3, fill="-") == ["5  "]
    # C fills only digits with zeros, and gives no sign to what cannot have one.
    assert words(f32(np.nan), width=5, fill="0") == ["  nan"]
    assert words(np.array([5], np.uint8), width=3, fill="+") == ["  5"]


@pytest.mark.parametrize(
    "attrs",
    [{"precision": 2}, {"scientific": True}, {"fill": "ab", "width": 4}, {"width": 1 << 20}],
)
def test_impossible_formats_are_refused(attrs: dict) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("AsString", i32(5), **attrs)


def test_decimal_digits_become_numbers() -> None:
    found = run("StringToNumber", texts("1.5", " -2e3 ", "inf"), out_type=DType.FLOAT)
    assert (found.tolist(), found.dtype) == ([1.5, -2000, np.inf], np.float32)
    found = run("StringToNumber", texts("007", "-3"), out_type=DType.INT64)
    assert (found.tolist(), found.dtype) == ([7, -3], np.int64)


@pytest.mark.parametrize("word", ["", "x", "1_0", "1.5f", "99999999999"])
def test_what_is_no_number_is_refused(word: str) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("StringToNumber", texts(word), out_type=DType.INT32)


def test_bytes_become_numbers() -> None:
    pair = np.array([b"\x01\x00\x00\x02", b"\x00\x00\x01\x00"], dtype=object)
    found = run("DecodeRaw", pair, out_type=DType.INT16)
    assert found.tolist() == [[1, 512], [0, 1]]
    swapped = run("DecodeRaw", pair, out_type=DType.INT16, little_endian=False)
    assert swapped.tolist() == [[256, 2], [0, 256]]
    for wrong in (np.array([b"abc"], dtype=object), np.array([b"ab", b"abcd"], dtype=object)):
        with pytest.raises(InvalidGraphError, match="cannot all be read"):
            run("DecodeRaw", wrong, out_type=DType.INT16)


def test_base64_for_web_addresses() -> None:
    plain = np.array([b"\xff\xfe", b"", b"hello"], dtype=object)
    coded = run("EncodeBase64", plain)
    assert coded.tolist() == [b"__4", b"", b"aGVsbG8"]
    assert run("EncodeBase64", plain, pad=True).tolist() == [b"__4=", b"", b"aGVsbG8="]
    for form in (coded, run("EncodeBase64", plain, pad=True)):
        assert run("DecodeBase64", form).tolist() == plain.tolist()
    with pytest.raises(InvalidGraphError, match="not base64"):
        run("DecodeBase64", texts("a!b"))
    # The letters of plain base64 stand for nothing here.
    for plain_letter in ("+3", "a/bc"):
        with pytest.raises(InvalidGraphError, match="not base64"):
            run("DecodeBase64", texts(plain_letter))


def test_a_place_for_the_sign_needs_no_width() -> None:
    assert run("AsString", i32(-3, 4), fill=" ").tolist() == [b"-3", b" 4"]
    assert run("AsString", i32(-3, 4), fill="+").tolist() == [b"-3", b"+4"]
    assert run("AsString", np.array([3], np.uint8), fill="+").tolist() == [b"3"]


OP_CASES = [
    *(case(op, [(2, -1)], [(2, -1)]) for op in ("AsString", "DecodeBase64", "EncodeBase64")),
    case("StringToNumber", [(2, -1)], [(2, -1)]),
    case("DecodeRaw", [(2, 3)], [(2, 3, -1)], out_type=DType.FLOAT),
    case("DecodeRaw", [None], [None], out_type=DType.FLOAT),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
