"""Converting, hashing, matching, joining, and splitting strings."""

from __future__ import annotations

import base64
import binascii
import codecs
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from msgspec import Struct

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import axis_of, check_allocation, integers
from mobileprep.ops.kernel import free, kernel
from mobileprep.ops.math.reduce import reduction_shape
from mobileprep.ops.numerics.allocation import check_bytes
from mobileprep.ops.numerics.hashes import fingerprint64, hash64, siphash
from mobileprep.ops.numerics.regular_expressions import compiled, decoded, encoded
from mobileprep.ops.numerics.texts import as_texts, each_text, one_text, texts
from mobileprep.ops.ragged.ragged import checked_splits, splits_of
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    add_dims,
    at_least_rank,
    broadcast_binary,
    shape_fn,
    sparse_matrix,
    two_vectors,
    unchanged,
    with_rank,
)

_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")


_REAL = re.compile(
    rb"\s*[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|inf(inity)?|nan)\s*",
    re.IGNORECASE,
)


_WIDEST = 1 << 12


@kernel("AsString", shape=unchanged, flops=free)
def as_string(node: Node, x: Array) -> Array:
    """Format numbers like C's printf, and booleans as "true" and "false"."""
    if x.dtype == object:
        return x
    layout = _layout(node, x)
    if x.dtype.kind == "c":
        return as_texts(
            (f"({layout % v.real},{layout % v.imag})".encode() for v in x.flat), x.shape
        )
    if x.dtype.kind == "b":
        return as_texts(((b"false", b"true")[v] for v in x.ravel().tolist()), x.shape)
    # C pads only digits with zeros.
    endless = layout.replace("%0", "%", 1)
    wide = x if x.dtype.kind in "iu" else x.astype(np.float64)
    written = ((layout if np.isfinite(v) else endless) % v for v in wide.ravel().tolist())
    return as_texts((w.encode() for w in written), x.shape)


def _layout(node: Node, x: Array) -> str:
    """Return the printf conversion for the node's attributes."""
    width, precision = node.attr_int("width", -1), node.attr_int("precision", -1)
    fill = node.attr_str("fill", "")
    scientific, shortest = node.attr_bool("scientific", False), node.attr_bool("shortest", False)
    real = x.dtype.kind not in "iub"
    if max(width, precision) > _WIDEST or len(fill) > 1 or (scientific and shortest):
        message = f"strings of width {width}, precision {precision}, filled with {fill!r}"
        raise ValueError(message)
    if not real and (scientific or shortest or precision >= 0):
        message = f"a precision is for real numbers, not for {x.dtype}"
        raise ValueError(message)
    # Unsigned numbers have no sign.
    fill = "" if x.dtype.kind == "u" and fill in ("+", " ") else fill
    size = f"{fill}{width}" if width > -1 else fill
    digits = f".{precision}" if precision > -1 else ""
    if not real:
        return f"%{size}d"
    return f"%{size}{digits}{'g' if shortest else 'e' if scientific else 'f'}"


@kernel("StringToNumber", shape=unchanged, flops=free)
def string_to_number(node: Node, x: Array) -> Array:
    """Parse decimal numbers."""
    kind = node.attr_dtype("out_type", DType.FLOAT).numpy or np.dtype(np.float32)
    numbers = [number_in(text, kind) for text in texts(x)]
    return np.array(numbers, dtype=kind).reshape(x.shape)


def number_in(text: bytes, kind: np.dtype[Any]) -> int | float:
    """Parse a number of a type from a string."""
    whole = kind.kind in "iu"
    if (_INTEGER if whole else _REAL).fullmatch(text) is None:
        message = f"{text!r} is not a number of dtype {kind}"
        raise ValueError(message)
    if not whole:
        return float(text)
    value, bounds = int(text), np.iinfo(kind)
    if not bounds.min <= value <= bounds.max:
        message = f"{value} does not fit into {kind}"
        raise ValueError(message)
    return value


@kernel("DecodeRaw", flops=free)
def decode_raw(node: Node, x: Array) -> Array:
    """Reinterpret the bytes of strings of equal length as numbers along a new last axis."""
    kind = node.attr_dtype("out_type").numpy
    elements = texts(x)
    length = len(elements[0]) if elements else 0
    if kind is None or length % kind.itemsize or any(len(t) != length for t in elements):
        message = f"strings of {length} bytes cannot all be read as {kind}"
        raise ValueError(message)
    shape = (*x.shape, length // kind.itemsize)
    check_allocation(shape, kind)
    numbers = np.frombuffer(b"".join(elements), kind).reshape(shape)
    return numbers if node.attr_bool("little_endian", True) else numbers.byteswap()


@shape_fn("DecodeRaw")
def decode_raw_shape(args: ShapeArgs) -> OutputShapes:
    """Return the strings' shape with an additional dimension."""
    return [None if args.shapes[0] is None else (*args.shapes[0], UNKNOWN)]


@kernel("DecodeBase64", shape=unchanged, flops=free)
def decode_base64(node: Node, x: Array) -> Array:
    """Decode web-safe base64, padded or not."""
    return each_text(_from_base64, x)


_WITHOUT_PLAIN: Final = bytes.maketrans(b"+/", b"!!")


def _from_base64(text: bytes) -> bytes:
    # Python also accepts the letters of standard base64, unlike TensorFlow.
    bare = text.rstrip(b"=").translate(_WITHOUT_PLAIN)
    try:
        return base64.b64decode(bare + b"=" * (-len(bare) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        message = f"{text[:20]!r} is not base64"
        raise ValueError(message) from error


@kernel("EncodeBase64", shape=unchanged, flops=free)
def encode_base64(node: Node, x: Array) -> Array:
    """Encode strings in web-safe base64, optionally padded."""
    pad = node.attr_bool("pad", False)

    def change(text: bytes) -> bytes:
        coded = base64.urlsafe_b64encode(text)
        return coded if pad else coded.rstrip(b"=")

    return each_text(change, x)


_KEY_NUMBERS = 2


@kernel("StringToHashBucket", shape=unchanged, flops=free)
def string_to_hash_bucket(node: Node, x: Array) -> Array:
    """Return the bucket of each string by TensorFlow's own hash."""
    return _bucket(node, np.array([hash64(text) for text in texts(x)], np.uint64), x)


def _bucket(node: Node, hashes: Array, x: Array) -> Array:
    """Return the buckets as int64 in [0, num_buckets), in the shape of x."""
    count = node.attr_int("num_buckets")
    if count < 1:
        message = f"there cannot be {count} buckets"
        raise ValueError(message)
    buckets: Array = (hashes % np.uint64(count)).astype(np.int64)
    return buckets.reshape(x.shape)


@kernel("StringToHashBucketFast", shape=unchanged, flops=free)
def string_to_hash_bucket_fast(node: Node, x: Array) -> Array:
    """Return the bucket of each string by its fingerprint."""
    return _bucket(node, fingerprint64(texts(x)), x)


@kernel("StringToHashBucketStrong", shape=unchanged, flops=free)
def string_to_hash_bucket_strong(node: Node, x: Array) -> Array:
    """Return the bucket of each string by a keyed hash."""
    key = node.attr_ints("key")
    if len(key) != _KEY_NUMBERS:
        message = f"a key of two numbers is needed, not of {len(key)}"
        raise ValueError(message)
    first, second = (k % (1 << 64) for k in key)
    return _bucket(node, siphash(texts(x), (first, second)), x)


@shape_fn("Fingerprint")
def fingerprint_shape(args: ShapeArgs) -> OutputShapes:
    """Return the bytes of a fingerprint for each row."""
    rows = at_least_rank(args.shapes[0], 1)
    return [(add_dims(0, UNKNOWN if rows is None else rows[0]), UNKNOWN)]


@kernel("RegexReplace", "StaticRegexReplace", shape=unchanged, flops=free)
def regex_replace(node: Node, x: Array, *inputs: Array) -> Array:
    """Rewrite every match in the strings, or only the first.

    Args:
        inputs: the pattern and the replacement; without them, they are attributes.
    """
    pattern, rewrite = map(one_text, inputs) if inputs else _attributes(node, "pattern", "rewrite")
    expression = compiled(pattern)
    everywhere = node.attr_bool("replace_global", True)
    return each_text(lambda text: expression.replaced(rewrite, text, everywhere=everywhere), x)


def _attributes(node: Node, *names: str) -> Iterator[bytes]:
    for name in names:
        value = node.attrs[name].value if name in node.attrs else node.attr_str(name)
        yield value if isinstance(value, bytes) else node.attr_str(name).encode()


@kernel("RegexFullMatch", "StaticRegexFullMatch", shape=unchanged, flops=free)
def regex_full_match(node: Node, x: Array, *inputs: Array) -> Array:
    """Return whether the whole of each string matches the pattern, an input or an attribute."""
    (pattern,) = map(one_text, inputs) if inputs else _attributes(node, "pattern")
    expression = compiled(pattern)
    matches = [expression.matches(text) for text in texts(x)]
    return np.array(matches, dtype=bool).reshape(x.shape)


_SPACE = b" \t\n\v\f\r"


_REFERENCE = np.dtype(object)


@kernel("StringJoin", flops=free)
def string_join(node: Node, *parts: Array) -> Array:
    """Join strings element by element; scalars are broadcast."""
    separator = node.attr_str("separator", "").encode()
    shape = next((p.shape for p in parts if p.ndim), ())
    if any(p.ndim and p.shape != shape for p in parts):
        message = f"the shapes {[list(p.shape) for p in parts]} differ"
        raise ValueError(message)
    check_bytes(sum(map(_text_bytes, parts)) * max(math.prod(shape), 1), "the joined text")
    columns = [texts(np.broadcast_to(p, shape)) for p in parts]
    return as_texts(map(separator.join, zip(*columns, strict=True)), shape)


def _text_bytes(part: Array) -> int:
    """Return the length in bytes of the longest string of a tensor."""
    return max(map(len, texts(part)), default=0)


@shape_fn("StringJoin")
def string_join_shape(args: ShapeArgs) -> OutputShapes:
    """Return the common shape of the inputs that are not scalars."""
    if None in args.shapes:
        return [None]
    larger = [s for s in args.shapes if s != ()]
    return [larger[0] if larger else ()]


@kernel("ReduceJoin", shape=reduction_shape, flops=free)
def reduce_join(node: Node, x: Array, indices: Array) -> Array:
    """Join strings along axes; the first listed axis varies fastest."""
    separator = node.attr_str("separator", "").encode()
    axes = [axis_of(a, x.ndim) for a in integers(indices)]
    if len(set(axes)) != len(axes):
        message = f"the axes {axes} are not all different"
        raise ValueError(message)
    kept_axes = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept_axes)
    rows = x.transpose([*kept_axes, *reversed(axes)]).reshape(math.prod(shape), -1 if x.size else 0)
    if node.attr_bool("keep_dims", False):
        shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return as_texts(map(separator.join, rows.tolist()), shape)


@kernel("StringSplit", shape=sparse_matrix, flops=free)
def string_split(node: Node, x: Array, delimiter: Array) -> tuple[Array, Array, Array]:
    """Split strings at any of the delimiter's characters, into a sparse matrix."""
    marks = one_text(delimiter)
    skip = node.attr_bool("skip_empty", True)
    cut = re.compile(b"[" + re.escape(marks) + b"]") if marks else None

    def parts(text: bytes) -> list[bytes]:
        if cut is None:
            return [text[i : i + 1] for i in range(len(text))]
        pieces: list[bytes] = cut.split(text) if text else []
        return [p for p in pieces if p or not skip]

    return _sparse(x, parts)


def _sparse(x: Array, cut: Callable[[bytes], Sequence[bytes]]) -> tuple[Array, Array, Array]:
    """Return indices, values, and shape of a matrix with the parts of one string in each row."""
    if x.ndim != 1:
        message = f"a vector of strings is needed, not the shape {list(x.shape)}"
        raise ValueError(message)
    rows = [cut(text) for text in texts(x)]
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    values = list(itertools.chain.from_iterable(rows))
    return (
        np.array(indices, dtype=np.int64).reshape(-1, 2),
        as_texts(values, (len(values),)),
        np.array([len(rows), max(map(len, rows), default=0)], dtype=np.int64),
    )


@kernel("StringSplitV2", shape=sparse_matrix, flops=free)
def string_split_v2(node: Node, x: Array, separator: Array) -> tuple[Array, Array, Array]:
    """Split strings at a separator, or at whitespace if it is empty, into a sparse matrix."""
    mark, most = one_text(separator), node.attr_int("maxsplit", -1)

    def parts(text: bytes) -> list[bytes]:
        if mark or most == 0:
            return text.split(mark or None, most) if most else [text]
        pieces = text.split(None, most)
        # The rest after the last split counts even if it is empty.
        return [*pieces, b""] if len(pieces) == most else pieces

    return _sparse(x, parts)


@kernel("Substr", shape=broadcast_binary, flops=free)
def substr(node: Node, x: Array, positions: Array, lengths: Array) -> Array:
    """Return substrings, counted in bytes or characters; negative positions count from the end."""
    characters = node.attr_str("unit", "BYTE") == "UTF8_CHAR"
    shape = np.broadcast_shapes(x.shape, positions.shape)
    check_allocation(shape, _REFERENCE)
    starts, counts = (np.broadcast_to(a, shape).ravel().tolist() for a in (positions, lengths))

    def part(text: bytes, start: int, count: int) -> bytes:
        if not characters:
            return text[_span(len(text), start, count)]
        string = decoded(text)
        return encoded(string[_span(len(string), start, count)])

    elements = texts(np.broadcast_to(x, shape))
    return as_texts(map(part, elements, starts, counts), shape)


def _span(length: int, start: int, count: int) -> slice:
    if not -length <= start <= length or count < 0:
        message = f"a text of {length} has no {count} elements from {start} on"
        raise ValueError(message)
    begin = start + length if start < 0 else start
    return slice(begin, begin + count)


@kernel("StringLength", shape=unchanged, flops=free)
def string_length(node: Node, x: Array) -> Array:
    """Return the number of bytes, or characters, of each string."""
    characters = node.attr_str("unit", "BYTE") == "UTF8_CHAR"
    lengths = [len(decoded(t)) if characters else len(t) for t in texts(x)]
    return np.array(lengths, dtype=np.int32).reshape(x.shape)


@kernel("StringStrip", shape=unchanged, flops=free)
def string_strip(node: Node, x: Array) -> Array:
    """Remove leading and trailing whitespace from strings."""
    return each_text(lambda t: t.strip(_SPACE), x)


@kernel("StringLower", "StringUpper", shape=unchanged, flops=free)
def string_case(node: Node, x: Array) -> Array:
    """Convert strings to lower or upper case; ASCII only unless ``encoding`` is set."""
    lower, everywhere = node.op == "StringLower", node.attr_str("encoding", "") != ""

    def change(text: bytes) -> bytes:
        if everywhere:
            characters = text.decode("utf-8", "replace")
            return (characters.lower() if lower else characters.upper()).encode()
        return text.lower() if lower else text.upper()

    return each_text(change, x)


@kernel("StringNGrams", flops=free)
def string_ngrams(node: Node, words: Array, splits: Array) -> tuple[Array, Array]:
    """Return all n-grams of each row of words, each joined to one string.

    Args:
        node: with ``ngram_widths``, ``separator``, ``left_pad`` and ``right_pad``, ``pad_width``
            (-1 for one less than each width), and ``preserve_short_sequences`` (a row that is too
            short for any n-gram counts as one).
        splits: [rows + 1], the row splits of ``words``.

    Returns:
        The n-grams of all rows, grouped by width in each row; and their row splits.
    """
    widths, most = node.attr_ints("ngram_widths"), node.attr_int("pad_width")
    if min(widths, default=0) < 1:
        message = f"runs of {list(widths)} words"
        raise ValueError(message)
    separator = node.attr_str("separator").encode()
    left, right = (node.attr_str(name).encode() for name in ("left_pad", "right_pad"))
    whole = node.attr_bool("preserve_short_sequences")
    bounds = checked_splits(splits, len(words)).tolist() if splits.size else [0]
    # Each n-gram takes memory for its words, and each width creates its own padding.
    check_allocation((len(words) + len(bounds) * sum(widths), sum(widths)), _REFERENCE)
    every, counts = texts(words), []
    ngrams: list[bytes] = []
    for start, end in pairwise(bounds):
        runs = []
        row = every[start:end]
        for width in widths:
            pad = width - 1 if most < 0 else min(most, width - 1)
            padded = [left] * pad + row + [right] * pad
            runs += [padded[i : i + width] for i in range(len(padded) - width + 1)]
        if whole and row and not runs:
            pad = max(most, 0)
            runs = [[left] * pad + row + [right] * pad]
        ngrams += map(separator.join, runs)
        counts.append(len(runs))
    kind = node.attr_dtype("Tsplits", DType.INT64).numpy
    ends = splits_of(np.array(counts, np.int64)).astype(kind)
    return as_texts(ngrams, (len(ngrams),)), ends if splits.size else splits


@shape_fn("StringNGrams")
def string_ngrams_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of the n-grams and of their row splits."""
    with_rank(args.shapes[0], 1)
    return [(UNKNOWN,), with_rank(args.shapes[1], 1)]


_CODECS: Final = {"UTF-8": "utf-8", "UTF-16-BE": "utf-16-be", "UTF-32-BE": "utf-32-be"}


_LAST_CHARACTER: Final = 0x10FFFF


# A lone surrogate, which decoding valid text never produces.
_MARK: Final = "\udc80"


_MARKING: Final = "mobileprep.mark"


_CONTROLS = re.compile("[\0-\x1f]")


def _mark(error: UnicodeError) -> tuple[str, int]:
    """Replace undecodable bytes with one mark."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _MARK, error.end


codecs.register_error(_MARKING, _mark)


class _Reader(Struct, frozen=True):
    """Decodes strings as the attributes of a node specify.

    Args:
        codec: Python's name of the encoding.
        errors: strict, replace, or ignore.
        replacement: character for undecodable bytes.
        controls: whether control characters are replaced, too.
        strict_controls: whether control characters are errors if ``errors`` is strict.
    """

    codec: str
    errors: str
    replacement: str
    controls: bool
    strict_controls: bool

    @staticmethod
    def of(node: Node) -> _Reader:
        """Create the reader of a node."""
        code = node.attr_int("replacement_char", 0xFFFD)
        errors = node.attr_str("errors", "replace")
        if not 0 <= code <= _LAST_CHARACTER or errors not in ("strict", "replace", "ignore"):
            message = f"no character {code}, or no way {errors!r} of treating errors"
            raise ValueError(message)
        controls = node.attr_bool("replace_control_characters", False)
        codec = _codec(node, "input_encoding")
        return _Reader(codec, errors, chr(code), controls, node.op == "UnicodeTranscode")

    def read(self, text: bytes) -> str:
        """Decode a string."""
        string = text.decode(self.codec, _MARKING)
        marked = _CONTROLS.sub(_MARK, string) if self.controls else string
        if self.errors == "strict" and _MARK in (marked if self.strict_controls else string):
            message = f"the text {text[:40]!r} is not valid {self.codec}"
            raise ValueError(message)
        return marked.replace(_MARK, "" if self.errors == "ignore" else self.replacement)


def _codec(node: Node, attribute: str) -> str:
    name = node.attr_str(attribute).upper()
    codec = _CODECS.get(name)
    if codec is None:
        message = f"node {node.name!r} ({node.op}) has the encoding {name!r}"
        raise UnsupportedError(message, f"use one of {', '.join(_CODECS)}")
    return codec


@kernel("UnicodeDecode", shape=two_vectors, flops=free)
def unicode_decode(node: Node, x: Array) -> tuple[Array, Array]:
    """Decode strings to code points.

    Returns:
        The row splits, with a row for each string, and all code points, int32.
    """
    reader = _Reader.of(node)
    strings = [reader.read(text) for text in texts(x)]
    splits = splits_of(np.array([len(s) for s in strings], np.int64))
    numbers = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), "<i4")
    return splits.astype(node.attr_dtype("Tsplits", DType.INT64).numpy), numbers


@kernel("UnicodeTranscode", shape=unchanged, flops=free)
def unicode_transcode(node: Node, x: Array) -> Array:
    """Convert strings to another encoding."""
    reader, target = _Reader.of(node), _codec(node, "output_encoding")
    return each_text(lambda text: reader.read(text).encode(target, "replace"), x)


shape_fn("UnicodeScript")(unchanged)
