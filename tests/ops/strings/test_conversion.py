"""Conversion between strings and numbers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all


def as_strings(*values, **attrs) -> list[str]:
    return [w.decode() for w in run("AsString", *values, **attrs).ravel().tolist()]


def test_as_string() -> None:
    assert as_strings(i32(5, -7)) == ["5", "-7"]
    assert as_strings(f32(1.5, np.inf)) == ["1.500000", "inf"]
    assert as_strings(f32(1.5), precision=2) == ["1.50"]
    assert as_strings(f32(1500), scientific=True, precision=1) == ["1.5e+03"]
    assert as_strings(f32(0.25), shortest=True) == ["0.25"]
    assert as_strings(np.array([True, False])) == ["true", "false"]
    assert as_strings(np.array([1 + 2j], np.complex64), precision=0) == ["(1,2)"]


def test_as_string_width_and_fill() -> None:
    assert as_strings(i32(5), width=3) == ["  5"]
    assert as_strings(i32(-5), width=4, fill="0") == ["-005"]
    assert as_strings(i32(5), width=3, fill="-") == ["5  "]
    # C pads only digits with zeros, and prints no sign for unsigned types.
    assert as_strings(f32(np.nan), width=5, fill="0") == ["  nan"]
    assert as_strings(np.array([5], np.uint8), width=3, fill="+") == ["  5"]


@pytest.mark.parametrize(
    "attrs",
    [{"precision": 2}, {"scientific": True}, {"fill": "ab", "width": 4}, {"width": 1 << 20}],
)
def test_invalid_formats_are_refused(attrs: dict) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("AsString", i32(5), **attrs)


def test_string_to_number() -> None:
    result = run("StringToNumber", texts("1.5", " -2e3 ", "inf"), out_type=DType.FLOAT)
    assert (result.tolist(), result.dtype) == ([1.5, -2000, np.inf], np.float32)
    result = run("StringToNumber", texts("007", "-3"), out_type=DType.INT64)
    assert (result.tolist(), result.dtype) == ([7, -3], np.int64)


@pytest.mark.parametrize("word", ["", "x", "1_0", "1.5f", "99999999999"])
def test_invalid_number_is_refused(word: str) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("StringToNumber", texts(word), out_type=DType.INT32)


def test_decode_raw() -> None:
    pair = np.array([b"\x01\x00\x00\x02", b"\x00\x00\x01\x00"], dtype=object)
    result = run("DecodeRaw", pair, out_type=DType.INT16)
    assert result.tolist() == [[1, 512], [0, 1]]
    swapped = run("DecodeRaw", pair, out_type=DType.INT16, little_endian=False)
    assert swapped.tolist() == [[256, 2], [0, 256]]
    for wrong in (np.array([b"abc"], dtype=object), np.array([b"ab", b"abcd"], dtype=object)):
        with pytest.raises(InvalidGraphError, match="cannot all be read"):
            run("DecodeRaw", wrong, out_type=DType.INT16)


def test_web_safe_base64() -> None:
    plain = np.array([b"\xff\xfe", b"", b"hello"], dtype=object)
    coded = run("EncodeBase64", plain)
    assert coded.tolist() == [b"__4", b"", b"aGVsbG8"]
    assert run("EncodeBase64", plain, pad=True).tolist() == [b"__4=", b"", b"aGVsbG8="]
    for form in (coded, run("EncodeBase64", plain, pad=True)):
        assert run("DecodeBase64", form).tolist() == plain.tolist()
    with pytest.raises(InvalidGraphError, match="not base64"):
        run("DecodeBase64", texts("a!b"))
    # Characters of standard base64 are invalid.
    for plain_letter in ("+3", "a/bc"):
        with pytest.raises(InvalidGraphError, match="not base64"):
            run("DecodeBase64", texts(plain_letter))


def test_sign_fill_without_width() -> None:
    assert run("AsString", i32(-3, 4), fill=" ").tolist() == [b"-3", b" 4"]
    assert run("AsString", i32(-3, 4), fill="+").tolist() == [b"-3", b"+4"]
    assert run("AsString", np.array([3], np.uint8), fill="+").tolist() == [b"3"]


OP_CASES = [
    *(case(op, [(2, -1)], [(2, -1)]) for op in ("AsString", "DecodeBase64", "EncodeBase64")),
    case("StringToNumber", [(2, -1)], [(2, -1)]),
    case("DecodeRaw", [(2, 3)], [(2, 3, -1)], out_type=DType.FLOAT),
    case("DecodeRaw", [None], [None], out_type=DType.FLOAT),
]


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


OP_CASES += [
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


HASHING_WORDS = texts("", "abc", "abcdef", "abcdefghij", "x" * 20, "y" * 50, "z" * 200)
BUCKETS = 10**6


def test_hash_bucket_fast():
    result = run("StringToHashBucketFast", HASHING_WORDS, num_buckets=BUCKETS)
    assert result.tolist() == [397263, 161385, 76237, 212091, 857348, 487699, 24092]


def test_hash_bucket_strong():
    result = run("StringToHashBucketStrong", HASHING_WORDS, num_buckets=BUCKETS, key=(1, -2))
    assert result.tolist() == [341606, 839229, 412354, 344842, 248753, 933069, 291556]
    with pytest.raises(InvalidGraphError, match="two numbers"):
        run("StringToHashBucketStrong", HASHING_WORDS, num_buckets=BUCKETS, key=(1,))


def test_hash_bucket():
    result = run("StringToHashBucket", HASHING_WORDS, num_buckets=BUCKETS)
    assert result.tolist() == [283899, 142710, 102479, 659559, 223341, 415913, 826454]


def test_buckets_keep_the_shape():
    square = run("StringToHashBucketFast", HASHING_WORDS[:6].reshape(2, 3), num_buckets=1)
    assert square.tolist() == [[0, 0, 0], [0, 0, 0]]
    with pytest.raises(InvalidGraphError, match="0 buckets"):
        run("StringToHashBucketFast", HASHING_WORDS, num_buckets=0)


OP_CASES += [
    case("StringToHashBucket", [(2, -1)], [(2, -1)], num_buckets=5),
    case("StringToHashBucketFast", [(2, -1)], [(2, -1)], num_buckets=5),
    case("StringToHashBucketStrong", [(2, -1)], [(2, -1)], num_buckets=5, key=(1, 2)),
    case("Fingerprint", [(4, 3), ()], [(4, -1)]),
    case("Fingerprint", [None, ()], [(-1, -1)]),
    refused("Fingerprint", [(), ()]),
    case("Fingerprint", [(4,), ()], [(4, -1)]),
]


OPTIONS = {
    "separator": " ",
    "ngram_widths": (2,),
    "left_pad": "",
    "right_pad": "",
    "pad_width": 0,
    "preserve_short_sequences": False,
}

OP_CASES += [
    case("StringNGrams", [(9,), (4,)], [(-1,), (4,)], **OPTIONS),
    case("StringNGrams", [None, None], [(-1,), (-1,)], **OPTIONS),
    refused("StringNGrams", [(9, 1), (4,)], **OPTIONS),
    refused("StringNGrams", [(9,), (4, 1)], **OPTIONS),
]


def ngrams_of(words: str, splits: list[int], **attrs: Any) -> tuple[list[str], list[int]]:
    """The n-grams, and the end of each row."""
    options = {**OPTIONS, "separator": "|", "left_pad": "L", "right_pad": "R", **attrs}
    result, ends = run_all("StringNGrams", texts(*words), np.array(splits), **options)
    return [ngram.decode() for ngram in result], ends.tolist()


def test_ngrams_of_several_widths() -> None:
    """Matches ``tf.raw_ops.StringNGrams``: every n-gram has at least one word."""
    first = ["L|L|a", "L|a|b", "a|b|R", "b|R|R", "a", "b"]
    last = ["L|L|c", "L|c|R", "c|R|R", "c"]
    ngrams = [*first, "L|L|R", "L|R|R", *last]
    assert ngrams_of("abc", [0, 2, 2, 3], ngram_widths=(3, 1), pad_width=-1) == (
        ngrams,
        [0, 6, 8, 12],
    )


def test_pad_width_is_limited() -> None:
    ngrams = ["L|a|b", "a|b|R", "L|c|R"]
    assert ngrams_of("abc", [0, 2, 2, 3], ngram_widths=(3,), pad_width=1) == (ngrams, [0, 2, 2, 3])
    assert ngrams_of("abc", [0, 3], pad_width=9) == (["L|a", "a|b", "b|c", "c|R"], [0, 4])
    assert ngrams_of("abc", [0, 3]) == (["a|b", "b|c"], [0, 2])


def test_short_sequences() -> None:
    wide: dict[str, Any] = {"ngram_widths": (5,), "pad_width": 1}
    assert ngrams_of("abc", [0, 2, 2, 3], **wide) == ([], [0, 0, 0, 0])
    preserved = ngrams_of("abc", [0, 2, 2, 3], **wide, preserve_short_sequences=True)
    assert preserved == (["L|a|b|R", "L|c|R"], [0, 1, 1, 2])
    bare = ngrams_of("abc", [0, 2, 3], ngram_widths=(3,), preserve_short_sequences=True)
    assert bare == (["a|b", "c"], [0, 1, 2])


@pytest.mark.parametrize("widths", [(), (2, 0), (-1,)])
def test_invalid_widths_are_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match="runs of"):
        ngrams_of("abc", [0, 3], ngram_widths=widths)


LINES = texts("cat hat", "dog", "")


def test_regex_replace() -> None:
    rest = (scalar("(.)at"), scalar(r"\1ow"))
    assert run("RegexReplace", LINES, *rest).tolist() == [b"cow how", b"dog", b""]
    first = run("RegexReplace", LINES, *rest, replace_global=False)
    assert first.tolist() == [b"cow hat", b"dog", b""]


def test_static_regex_replace() -> None:
    result = run("StaticRegexReplace", LINES, pattern="[aeiou]", rewrite="é")
    assert result.tolist() == ["cét hét".encode(), "dég".encode(), b""]


def test_regex_full_match() -> None:
    assert run("RegexFullMatch", LINES, scalar("d.*")).tolist() == [False, True, False]
    assert run("StaticRegexFullMatch", LINES, pattern="[a-z ]*").tolist() == [True, True, True]


@pytest.mark.parametrize(("pattern", "rewrite"), [("(", ""), ("a", r"\1"), ("(?=a)", "")])
def test_invalid_expression_names_the_node(pattern: str, rewrite: str) -> None:
    with pytest.raises(Exception, match="node 'y'") as error:
        run("RegexReplace", LINES, scalar(pattern), scalar(rewrite))
    assert error.type.__name__ in ("InvalidGraphError", "UnsupportedError")


def test_invalid_utf8_is_preserved() -> None:
    odd = texts("x")
    odd[0] = b"\xffx"
    assert run("RegexReplace", odd, scalar("x"), scalar("y")).tolist() == [b"\xffy"]


def test_numbers_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match="strings are needed, not float32"):
        run("StaticRegexFullMatch", f32(1), pattern="a")


OP_CASES += [
    case("RegexReplace", [(2, -1), (), ()], [(2, -1)]),
    case("RegexFullMatch", [(2, -1), ()], [(2, -1)]),
    case("StaticRegexReplace", [(2, -1)], [(2, -1)], pattern="a", rewrite="b"),
    case("StaticRegexFullMatch", [(2, -1)], [(2, -1)], pattern="a"),
]


def test_catastrophic_backtracking_is_avoided() -> None:
    begin = time.perf_counter()
    try:
        result = run("RegexFullMatch", texts("a" * 41), scalar("(a*)*b"))
    except UnsupportedError as error:
        assert "mobileprep[regex]" in error.hint
    else:
        assert result.tolist() == [False]
    assert time.perf_counter() - begin < 20  # a backtracking engine needs hours


OP_CASES += [
    unlike(case("UnicodeDecode", [(4,)], [(-1,), (-1,)], input_encoding="UTF-8")),
    case("UnicodeTranscode", [(2, -1)], [(2, -1)], input_encoding="UTF-8", output_encoding="UTF-8"),
    case("UnicodeScript", [(2, -1)], [(2, -1)]),
]


test_shapes_and_costs = case_tests(OP_CASES)
