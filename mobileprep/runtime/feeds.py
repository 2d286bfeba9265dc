"""Checks of what is fed to a graph."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import FEEDABLE
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array
from mobileprep.opdefs.signatures import tensor_dtype


def checked_feed(graph: Graph, ref: Ref, array: Array, where: str) -> Array:
    """A fed array, text turned into an object array of bytes.

    Raises:
        UsageError: the type differs from the tensor's, or the shape from the placeholder's.
    """
    array = np.asarray(array)
    dtype = tensor_dtype(graph, ref)
    if dtype is DType.STRING and array.dtype.kind in "OSU":
        return _as_bytes(array)
    expected = dtype.numpy if dtype is not None else None
    if expected is not None and array.dtype != expected:
        given = dtype_from_numpy(array.dtype)
        message = f"{str(ref)!r} takes {dtype.short if dtype else ''}, and is fed "
        message += given.short if given is not None else str(array.dtype)
        raise UsageError(message, "convert the array to the type of the tensor", where)
    _check_shape(graph, ref, array, where)
    return array


def converted(array: Array, dtype: DType | None) -> Array:
    """An array in a tensor's type where that is only a matter of width: float64 as float32.

    Args:
        array: what is to be fed.
        dtype: the tensor's type; None leaves the array as it is.
    """
    kind = None if dtype is None else dtype.numpy
    if kind is None or not np.can_cast(array.dtype, kind, "same_kind"):
        return array
    return array.astype(kind, copy=False)


def _check_shape(graph: Graph, ref: Ref, array: Array, where: str) -> None:
    node = graph[ref.node]
    if node.op not in FEEDABLE:
        return
    shape = node.attr_shape("shape")
    # Old graphs leave the shape of a placeholder empty where it is unknown.
    if not shape:
        return
    fits = len(shape) == array.ndim and all(
        wanted in (-1, given) for wanted, given in zip(shape, array.shape, strict=False)
    )
    if not fits:
        wanted = ", ".join("?" if d < 0 else str(d) for d in shape)
        given = str(list(array.shape)) if array.ndim else "a scalar"
        message = f"{str(ref)!r} takes the shape [{wanted}], and is fed {given}"
        raise UsageError(message, "reshape or resize what is fed", where)


def _as_bytes(array: Array) -> Array:
    flat = np.empty(array.size, dtype=object)
    if array.dtype.kind == "S" and array.size == 1:
        # A file's contents may end in zeros, which numpy takes for filling and hides.
        flat[0] = array.tobytes()
        return flat.reshape(array.shape)
    flat[:] = [x.encode() if isinstance(x, str) else bytes(x) for x in array.ravel().tolist()]
    return flat.reshape(array.shape)
