"""Values of constants: dtype, shape, and lazily decoded elements."""

from __future__ import annotations

import hashlib
import math
import mmap
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.core.files import release_pages
from mobileprep.errors import CorruptFileError, InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import (
    VALUE_FIELD,
    DType,
    dtype_from_numpy,
    listed_values,
    packed_values,
)
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import (
    CONTENT_FIELD,
    DOUBLE_FIELD,
    FLOAT_FIELD,
    LARGE,
    Cursor,
    Payload,
    delimited,
    payload_at,
)

Array = NDArray[Any]

# More than any shipped constant; short text such as `size: 99999999999` must not allocate it.
MAX_BYTES = 1 << 31
# Maximum axes of arrays in all numpy versions; newer ones support more.
_FEW_AXES = 32
# Number of words to compare at once.
_COMPARED = 1 << 14


class Tensor:
    """An immutable tensor.

    The elements are in one of three forms: raw little-endian bytes (a view of the source file), a
    list of leading values of which the last one repeats, or an array.

    Args:
        dtype: element type; never a reference type.
        shape: dimensions, all non-negative.
        content: raw bytes, exactly ``nbytes`` for fixed-size types.
        values: leading elements, 1-D; for strings, an object array of bytes.
    """

    __slots__ = ("_array", "_digest", "content", "dtype", "opaque", "shape", "values")

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        *,
        content: bytes | memoryview | None = None,
        values: Array | None = None,
        opaque: bytes = b"",
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.content = content
        self.values = values
        self.opaque = opaque
        """Serialized handles or variants, preserved without parsing."""
        self._array: Array | None = None
        self._digest: str | None = None

    @classmethod
    def of(cls, array: Any, dtype: DType | None = None) -> Tensor:  # noqa: ANN401 - as np.asarray
        """Create a tensor from an array.

        Args:
            array: anything that ``np.asarray`` accepts; do not modify it afterwards.
            dtype: element type, if numpy has no such type (quantized types).

        Raises:
            UnsupportedError: if numpy's type has no counterpart, or numpy cannot represent the
                elements of ``dtype``.
        """
        source, array = array, np.asarray(array)
        if array.dtype.kind in "SU" and not isinstance(source, np.ndarray):
            # numpy's string types remove trailing zero bytes.
            array = np.asarray(source, dtype=object)
        kind = dtype if dtype is not None else dtype_from_numpy(array.dtype)
        if kind is None or (kind.numpy is None and kind is not DType.STRING):
            counterpart = "counterpart" if kind is None else f"counterpart of type {kind.short}"
            message = f"arrays of numpy type {array.dtype} have no TensorFlow {counterpart}"
            raise UnsupportedError(message)
        if kind is DType.STRING:
            flat = np.empty(array.size, dtype=object)
            flat[:] = [_as_bytes(x) for x in array.ravel()]
            return cls(kind, array.shape, values=flat)
        array = np.asarray(array, dtype=kind.numpy)
        tensor = cls(kind, array.shape)
        tensor._array = _read_only(array)
        return tensor

    @classmethod
    def packed(cls, array: Any, dtype: DType | None = None) -> Tensor:  # noqa: ANN401 - as ``of``
        """Create a tensor from a numeric array, which is always serialized as raw bytes.

        The original tools write constants in this form. See ``of`` for arguments and errors.
        """
        tensor = cls.of(array, dtype)
        tensor.content = tensor.raw()
        return tensor

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements; for strings, without their lengths."""
        if self.dtype is DType.STRING:
            return sum(len(x) for x in self.array().ravel())
        return self.size * self.dtype.itemsize

    def array(self) -> Array:
        """Return the elements as a read-only array; strings as an object array of bytes.

        Raises:
            InvalidGraphError: if the elements do not fit the shape, or would exceed 2 GiB.
            UnsupportedError: if the type has no readable elements (resource, variant), or the shape
                has more axes than numpy supports.
        """
        array = self._array
        if array is None:
            array = self._array = _read_only(self._decode())
        return array

    def raw(self) -> bytes | memoryview:
        """Return the elements as contiguous little-endian bytes. Not for strings."""
        if self.content is not None:
            return self.content
        # As uint8, because memoryview does not support types such as bfloat16.
        return np.ascontiguousarray(self.array()).reshape(-1).view(np.uint8).data

    def digest(self) -> str:
        """Return the cached SHA-256 of ``raw()`` as hex. Not for strings."""
        if self._digest is None:
            self._digest = hashlib.sha256(self.raw()).hexdigest()
        return self._digest

    def lying_at(self, content: memoryview, digest: str) -> None:
        """Replace the elements in memory with other storage, usually a mapped file.

        Args:
            content: the same bytes as ``raw()``.
            digest: their SHA-256.
        """
        self.content, self._digest = content, digest
        self.values = self._array = None

    def let_go(self) -> None:
        """Release the memory pages of elements in their own mapped file.

        The file is read again if the elements are needed later.
        """
        lies_in = getattr(self.content, "obj", None)
        if isinstance(lies_in, mmap.mmap) and len(lies_in) == self.nbytes:
            release_pages(lies_in)

    def reshaped(self, shape: tuple[int, ...]) -> Tensor:
        """Return the same elements with another shape of the same size, without decoding them.

        Raises:
            InvalidGraphError: if the shape has another size.
        """
        if math.prod(shape) != self.size:
            message = f"a tensor of shape {list(self.shape)} does not fit into {list(shape)}"
            raise InvalidGraphError(message, "the sizes have to multiply to the same")
        array = self._array
        if array is not None and self.content is None and self.values is None:
            return Tensor.of(array.reshape(shape), self.dtype)
        return Tensor(self.dtype, shape, content=self.content, values=self.values)

    def identical(self, other: Tensor) -> bool:
        """Return whether dtype, shape, and all bytes of the elements are equal (NaN equals NaN)."""
        if self is other:
            return True
        if self.dtype != other.dtype or self.shape != other.shape:
            return False
        if self.dtype.numpy is None:
            if self.dtype is not DType.STRING:
                return self.opaque == other.opaque
            return list(self.array().ravel()) == list(other.array().ravel())
        if self._digest is not None and other._digest is not None:
            return self._digest == other._digest
        return _same_bytes(memoryview(self.raw()), memoryview(other.raw()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.identical(other)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def __repr__(self) -> str:
        return f"Tensor({self.dtype.short}, {list(self.shape)})"

    def _decode(self) -> Array:
        if self.dtype is DType.STRING:
            return self._decode_strings()
        kind = self.dtype.numpy
        if kind is None:
            message = f"a tensor of type {self.dtype.short} has no elements that can be read"
            raise UnsupportedError(message)
        if self.nbytes > MAX_BYTES:
            message = f"a tensor of shape {list(self.shape)} would take {self.nbytes} bytes"
            raise InvalidGraphError(message, "no constant may take more than 2 GiB")
        if self.content is not None:
            return _shaped(np.frombuffer(self.content, dtype=kind), self.shape)
        return _shaped(_spread(self.values, self.size, kind), self.shape)

    def _decode_strings(self) -> Array:
        if self.content is not None:
            return _shaped(_split_strings(self.content, self.size), self.shape)
        if self.size > MAX_BYTES // 8:
            message = f"a string tensor of shape {list(self.shape)} is too large"
            raise InvalidGraphError(message, "no constant may take more than 2 GiB")
        return _shaped(_spread(self.values, self.size, np.dtype(object)), self.shape)


def _shaped(elements: Array, shape: tuple[int, ...]) -> Array:
    try:
        return elements.reshape(shape)
    except ValueError as error:
        if len(elements) == math.prod(shape) and len(shape) > _FEW_AXES:
            message = f"a tensor has {len(shape)} axes, which is more than numpy's arrays have"
            raise UnsupportedError(message) from error
        message = f"{len(elements)} elements do not fit a tensor of shape {list(shape)}"
        raise InvalidGraphError(message, "write the graph again") from error


def _spread(values: Array | None, size: int, kind: np.dtype[Any]) -> Array:
    """Extend leading values to all elements: the last one repeats; without values, use zeros."""
    count = 0 if values is None else min(len(values), size)
    if values is None or count == 0:
        return np.full(size, b"" if kind.hasobject else 0, dtype=kind)
    if count == size:
        return values[:size]
    if count == 1:
        # A single number in memory for a constant of any shape.
        return np.broadcast_to(values[:1], (size,))
    return np.concatenate([values[:count], np.full(size - count, values[count - 1], dtype=kind)])


def _split_strings(content: bytes | memoryview, size: int) -> Array:
    """Decode strings from tensor content: all lengths as varints, then all characters."""
    if size > len(content):
        message = f"{size} strings are declared in {len(content)} bytes"
        raise InvalidGraphError(message, "write the graph again")
    cursor = Cursor(content, file="string tensor")
    lengths = [cursor.varint() for _ in range(size)]
    out = np.empty(size, dtype=object)
    for i, length in enumerate(lengths):
        out[i] = bytes(cursor.take(length))
    return out


def _same_bytes(a: memoryview, b: memoryview) -> bool:
    """Compare bytes in 8-byte words, because memoryviews compare single bytes, which is slow."""
    if len(a) != len(b):
        return False
    words = len(a) // 8
    if bytes(a[words * 8 :]) != bytes(b[words * 8 :]):
        return False
    x, y = (np.frombuffer(data, np.uint64, words) for data in (a, b))
    # Different contents usually differ early, so that the rest need not be read.
    at = range(0, words, _COMPARED)
    return all(np.array_equal(x[i : i + _COMPARED], y[i : i + _COMPARED]) for i in at)


def _as_bytes(element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    message = f"an element of type {type(element).__name__} is not a string"
    raise UnsupportedError(message)


def _read_only(array: Array) -> Array:
    view: Array = array.view()
    view.flags.writeable = False
    return view


def check_shape(dims: Sequence[int], where: str) -> tuple[int, ...]:
    """Return the dimensions of a constant as a tuple.

    Raises:
        InvalidGraphError: if they are negative or too large.
    """
    if any(d < 0 for d in dims) or math.prod(max(d, 1) for d in dims) > 1 << 62:
        message = f"a constant cannot have the shape {list(dims)}"
        raise InvalidGraphError(message, "write the graph again", where)
    return tuple(dims)


_PACKED_FIELD: Final = {DType.FLOAT: FLOAT_FIELD, DType.DOUBLE: DOUBLE_FIELD}


def tensor_from_proto(proto: pb.TensorProto, payloads: list[Payload], where: str) -> Tensor:
    """Convert a TensorProto, whose large content can be in ``payloads``."""
    dtype = DType(proto.dtype)
    if dtype is not dtype.base:
        message = f"a tensor's elements cannot be of the type {dtype.name}"
        raise InvalidGraphError(message, "export the model again", where)
    shape = check_shape([d.size for d in proto.tensor_shape.dim], where)
    content: bytes | memoryview | None = proto.tensor_content or None
    values: Array | None = None
    payload = payload_at(payloads, proto.payload, where) if proto.payload else None
    if dtype.numpy is None and dtype is not DType.STRING:
        return Tensor(dtype, shape, opaque=_opaque(proto, payload))
    if payload is not None and payload.field == CONTENT_FIELD:
        content = payload.view
    elif payload is not None and payload.field == _PACKED_FIELD.get(dtype):
        # Ignore elements in the field of another type.
        values = packed_values(payload, where)
    if values is None and content is None:
        listed = listed_values(proto, dtype)
        values = np.empty(0, dtype=dtype.numpy or object) if listed is None else listed
    tensor = Tensor(dtype, shape, content=content, values=values)
    _check_length(tensor, where)
    if payload is not None and payload.sha256 and payload.view is content:
        tensor.lying_at(payload.view, payload.sha256)
    return tensor


def _opaque(proto: pb.TensorProto, payload: Payload | None) -> bytes:
    """Serialize a TensorProto, including its payload."""
    if payload is None:
        return proto.SerializeToString(deterministic=True)
    whole = pb.TensorProto()
    whole.CopyFrom(proto)
    whole.ClearField("payload")
    whole.MergeFromString(delimited(payload.field, bytes(payload.view)))
    return whole.SerializeToString(deterministic=True)


def tensor_to_proto(tensor: Tensor, proto: pb.TensorProto, *, with_content: bool = True) -> None:
    """Fill an empty TensorProto."""
    if tensor.opaque:
        proto.MergeFromString(tensor.opaque)
        return
    proto.dtype = tensor.dtype.value  # type: ignore[assignment]
    proto.tensor_shape.SetInParent()
    for size in tensor.shape:
        proto.tensor_shape.dim.add().size = size
    if is_written_raw(tensor):
        if with_content:
            proto.tensor_content = bytes(tensor.raw())
        return
    if tensor.content is not None:
        proto.tensor_content = bytes(tensor.content)
        return
    values = tensor.values if tensor.values is not None else tensor.array().ravel()
    _set_values(proto, tensor.dtype, values)


def is_written_raw(tensor: Tensor) -> bool:
    """Return whether a tensor is serialized as raw content instead of in a typed field.

    Leading values are not expanded, because a constant filled with a single number would become
    larger.
    """
    if tensor.dtype.numpy is None:
        return False
    if tensor.content is not None:
        return True
    if tensor.values is None:
        return tensor.size > 1
    # Raw content avoids converting millions of listed elements one by one.
    return len(tensor.values) == tensor.size and tensor.nbytes >= LARGE


def is_large(tensor: Tensor) -> bool:
    """Return whether a tensor's content is large enough to write without a copy."""
    if tensor.content is not None and len(tensor.content) < LARGE:
        return False
    return is_written_raw(tensor) and tensor.nbytes >= LARGE


def _set_values(proto: pb.TensorProto, dtype: DType, values: Array) -> None:
    field = VALUE_FIELD[dtype]
    listed: Sequence[Any]
    if field == "float8_val":
        proto.float8_val = values.tobytes()
        return
    if field == "half_val":
        listed = np.ascontiguousarray(values).view(np.uint16).tolist()
    elif field in ("scomplex_val", "dcomplex_val"):
        part = np.dtype("<f4") if field == "scomplex_val" else np.dtype("<f8")
        listed = np.ascontiguousarray(values).view(part).tolist()
    elif field == "int_val":
        listed = values.astype(np.int64).tolist()
    else:
        listed = values.tolist()
    getattr(proto, field).extend(listed)


def _check_length(tensor: Tensor, where: str) -> None:
    if tensor.content is None or tensor.dtype is DType.STRING:
        return
    expected = tensor.size * tensor.dtype.itemsize
    if len(tensor.content) != expected:
        length = len(tensor.content)
        message = (
            f"a {tensor.dtype.short} tensor of shape {list(tensor.shape)} needs {expected} bytes: "
            f"{length} found"
        )
        raise CorruptFileError(message, "the file is damaged", where)
