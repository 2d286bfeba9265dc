"""Cases of ops on strings and audio."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from mobileprep.formats.dtypes import DType
from tests.ops.pictures import text
from tests.ops.sounds import wav
from tests.reference.cases.base import Case, Make, i32, scalar


def vector(*words: str | bytes) -> np.ndarray:
    out = np.empty(len(words), dtype=object)
    out[:] = [w if isinstance(w, bytes) else w.encode() for w in words]
    return out


WORDS = vector(
    *("", "a", " a b  c ", "foo,bar,,baz", ",x,", "a,b;c,;d", "tab\tnew\nline"),
    *("ünïcödé ß", b"\x00z\x00", "AbC Éa"),
)
LINES = vector("", "a", "abc", "bb", "xxxa xxb", "foo,bar 12-3", "a\nb\n", "ab.aé É", "[]a")
PATTERNS = (
    ("a", "X"),
    (r"(\w)(\w*)", r"\2\1"),
    ("b*", "-"),
    ("^", ">"),
    ("$", "<"),
    ("(?m)$", "|"),
    ("[[:alpha:]]+", "W"),
    ("[^[:space:]]", "."),
    (r"\s+", " "),
    ("(?i)[A-B]", "_"),
    (r"\bb\b", "B"),
    (r"(a|b)\\?", r"[\1\\]"),
    ("x{2,3}", "y"),
    (r"\Q.a\E", "q"),
    ("[]a]", "c"),
    ("(?=a)", "z"),
    ("a++", "z"),
    (r"\x{e9}", "e"),
    (".", "d"),
    (r"\z", "Z"),
    (r"[\d\-,]", "n"),
    ("(", "e"),
    ("(?P<n>o+)", r"<\1>"),
    ("a*?", "k"),
    ("é", "e"),
    (r"\W", "w"),
    ("[^a]", "na"),
)


def cutting() -> Iterator[Case]:
    for separator in ("", ",", " ", ";", "ab"):
        inputs = (WORDS, text(separator.encode()))
        for skip in (True, False):
            yield Case("StringSplit", inputs, {"skip_empty": skip}, note=f"{separator}{skip}")
        for most in (-1, 0, 1, 2, 3):
            yield Case("StringSplitV2", inputs, {"maxsplit": most}, note=f"{separator}{most}")
    several = (WORDS, text(b",;"))
    yield Case("StringSplit", several, {"skip_empty": False}, note="several")
    three = vector("hello", "wörld", "日本語テキスト")
    for unit, start, count in product(("BYTE", "UTF8_CHAR"), (0, 1, 3, 5, -1, -3), (0, 1, 3, 99)):
        yield Case(
            "Substr", (three, scalar(start), scalar(count)), {"unit": unit}, note=f"{start}{count}"
        )
    yield Case("Substr", (three, i32(0, 1, 2), i32(1, 2, 3)), {"unit": "BYTE"}, note="each")
    square = vector("a", "b", "c", "d", "e", "f").reshape(3, 2)
    for axes, keep_dims in product(([0], [1], [0, 1], [1, 0], [-1], []), (True, False)):
        attrs = {"keep_dims": keep_dims, "separator": "+"}
        if keep_dims or len(axes) < 2:
            yield Case("ReduceJoin", (square, i32(*axes)), attrs, note=f"{axes}{keep_dims}")
    yield Case("StringJoin", (square, text(b"-"), square), {"separator": "."})


def changing() -> Iterator[Case]:
    for unit in ("BYTE", "UTF8_CHAR"):
        yield Case("StringLength", (WORDS,), {"unit": unit}, note=unit)
    # TensorFlow's case conversion stops at a zero byte.
    whole = vector(*(w for w in WORDS if b"\0" not in w))
    for op, encoding in product(("StringLower", "StringUpper"), ("", "utf-8")):
        yield Case(op, (whole,), {"encoding": encoding}, note=encoding)
    yield Case("StringStrip", (WORDS,))
    for (pattern, rewrite), everywhere in product(PATTERNS, (True, False)):
        inputs = (LINES, text(pattern.encode()), text(rewrite.encode()))
        yield Case("RegexReplace", inputs, {"replace_global": everywhere}, note=pattern)
        attrs = {"pattern": pattern, "rewrite": rewrite, "replace_global": everywhere}
        yield Case("StaticRegexReplace", (LINES,), attrs, note=pattern)
    for pattern, _ in PATTERNS:
        yield Case("RegexFullMatch", (LINES, text(pattern.encode())), note=pattern)
        yield Case("StaticRegexFullMatch", (LINES,), {"pattern": pattern}, note=pattern)


def converting() -> Iterator[Case]:
    numbers = (
        np.array([0, 1, -5, 2**31 - 1], np.int32),
        np.array([2**62, -3], np.int64),
        np.array([1.5, -0.0, 1e10, np.inf, np.nan, 3.14159], np.float32),
        np.array([1 / 3, 1e300]),
        np.array([True, False]),
        np.array([1 + 2j, -0.5j], np.complex64),
        np.array([200, 3], np.uint8),
        np.array([1.5], np.float16),
    )
    formats = (
        {},
        {"width": 10},
        {"width": 10, "fill": "0"},
        {"width": 8, "fill": "-"},
        {"width": 3, "fill": " "},
        {"precision": 2},
        {"precision": 3, "scientific": True},
        {"shortest": True},
        {"shortest": True, "precision": 3, "width": 12},
    )
    for x, attrs in product(numbers, formats):
        yield Case("AsString", (x,), attrs, note=str(attrs))
    written = (
        ("1", "-2", "+3", " 4 ", "007"),
        ("1.5", "1e3", ".5", "5.", " 7 ", "inf", "-NaN"),
        ("x",),
        ("",),
        ("1_0",),
        ("99999999999",),
        ("1.5f",),
    )
    kinds = (DType.FLOAT, DType.DOUBLE, DType.INT32, DType.INT64)
    for words, kind in product(written, kinds):
        yield Case("StringToNumber", (vector(*words),), {"out_type": kind}, note=f"{words}{kind}")
    for pad in (True, False):
        yield Case("EncodeBase64", (WORDS,), {"pad": pad}, note=str(pad))
    yield Case("DecodeBase64", (vector("aGVsbG8", "aGVsbG8=", "_-8", "", "YQ=="),))
    yield Case("DecodeBase64", (vector("a!b"),))
    for kind, little in product((DType.UINT8, DType.INT16, DType.FLOAT), (True, False)):
        attrs = {"out_type": kind, "little_endian": little}
        yield Case(
            "DecodeRaw", (vector(b"\1\2\3\4", b"\0\xff\x80?"),), attrs, note=f"{kind}{little}"
        )


def audio() -> Iterator[Case]:
    make = Make(61)
    for window, stride, count, channels in (
        (640, 320, 16000, 1),
        (480, 160, 16000, 2),
        (2, 1, 10, 1),
        (400, 160, 300, 1),
        (512, 512, 1024, 3),
        (3, 2, 50, 1),
    ):
        samples = make.real(count, channels, low=-1, high=1)
        for squared in (True, False):
            attrs = {"window_size": window, "stride": stride, "magnitude_squared": squared}
            yield Case("AudioSpectrogram", (samples,), attrs, note=str(squared))
    for rate, upper, lower, bands, coefficients in (
        (16000, 4000, 20, 40, 13),
        (16000, 4000, 20, 40, 10),
        (8000, 3900, 0, 20, 20),
        (44100, 4000, 100, 10, 3),
    ):
        attrs = {
            "upper_frequency_limit": float(upper),
            "lower_frequency_limit": float(lower),
            "filterbank_channel_count": bands,
            "dct_coefficient_count": coefficients,
        }
        spectrogram = np.abs(make.real(2, 7, 257))
        yield Case("Mfcc", (spectrogram, scalar(rate)), attrs, note=str(rate))
    files = {
        "mono": wav(make.whole(-32768, 32768, 50, 1)),
        "stereo": wav(make.whole(-32768, 32768, 50, 2), rate=44100),
        "bytes": wav(make.whole(0, 256, 50, 1), width=1),
        "none": b"",
    }
    files["cut"] = files["mono"][:-10]
    for (note, data), (channels, count) in product(
        files.items(), ((-1, -1), (1, 30), (2, 100), (3, -1))
    ):
        attrs = {"desired_channels": channels, "desired_samples": count}
        yield Case("DecodeWav", (text(data),), attrs, note=f"{note}{channels}{count}")


def cases() -> Iterator[Case]:
    for maker in (cutting, changing, converting, audio):
        yield from maker()
