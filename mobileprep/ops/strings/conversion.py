"""Converting, hashing, and matching strings."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.cost import free
from mobileprep.ops.kernel import kernel
from mobileprep.ops.numerics.hashes import fingerprint64, hash64, siphash
from mobileprep.ops.numerics.regular_expressions import compiled
from mobileprep.ops.numerics.texts import as_texts, each_text, one_text, texts
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    add_dims,
    at_least_rank,
    shape_fn,
    unchanged,
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
