"""TensorArrays and TensorLists match TensorFlow's, op by op."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.runtime.interpreter import Interpreter
from tests.reference.newest import from_tensorflow

pytestmark = pytest.mark.reference

Build = Callable[[Any, Any], list[Any]]
"""From TensorFlow and the placeholder "x", [4, 3], to the output tensors."""


def arrays(tf: Any, x: Any) -> list[Any]:
    raw = tf.raw_ops
    handle, flow = raw.TensorArrayV3(
        size=4,
        dtype=tf.float32,
        dynamic_size=True,
        identical_element_shapes=True,
        clear_after_read=False,
    )
    flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=x[0], flow_in=flow)
    flow = raw.TensorArrayWriteV3(handle=handle, index=5, value=x[1], flow_in=flow)
    places = tf.constant([1, 2, 3])
    flow = raw.TensorArrayScatterV3(handle=handle, indices=places, value=x[1:] * 2, flow_in=flow)
    read = {"handle": handle, "flow_in": flow, "dtype": tf.float32}
    return [
        raw.TensorArrayReadV3(index=5, **read),
        raw.TensorArrayGatherV3(indices=[3, 0, 4, 0], **read),
        raw.TensorArraySizeV3(handle=handle, flow_in=flow),
    ]


def joined_arrays(tf: Any, x: Any) -> list[Any]:
    raw = tf.raw_ops
    handle, flow = raw.TensorArrayV3(size=3, dtype=tf.float32, clear_after_read=False)
    lengths = tf.constant([1, 0, 3], tf.int64)
    flow = raw.TensorArraySplitV3(handle=handle, value=x, lengths=lengths, flow_in=flow)
    joined = raw.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=tf.float32)
    item = raw.TensorArrayReadV3(handle=handle, index=2, flow_in=flow, dtype=tf.float32)
    return [joined.value, joined.lengths, item]


def lists(tf: Any, x: Any) -> list[Any]:
    raw = tf.raw_ops
    shape, kind = tf.constant([3]), {"element_dtype": tf.float32}
    full = raw.TensorListFromTensor(tensor=x, element_shape=shape)
    changed = raw.TensorListSetItem(input_handle=full, index=1, item=x[0] * 10)
    pushed = raw.TensorListPushBack(input_handle=changed, tensor=x[3])
    popped = raw.TensorListPopBack(input_handle=full, element_shape=shape, **kind)
    empty = raw.EmptyTensorList(element_shape=shape, max_num_elements=-1, **kind)
    both = raw.TensorListConcatLists(input_a=pushed, input_b=full, **kind)
    return [
        raw.TensorListStack(input_handle=both, element_shape=shape, **kind),
        raw.TensorListGetItem(input_handle=changed, index=1, element_shape=shape, **kind),
        raw.TensorListLength(input_handle=popped.output_handle),
        popped.tensor,
        raw.TensorListStack(input_handle=empty, element_shape=shape, **kind),
        raw.TensorListElementShape(input_handle=full, shape_type=tf.int32),
        raw.TensorListGather(input_handle=full, indices=[2, 0], element_shape=shape, **kind),
    ]


def sparse_lists(tf: Any, x: Any) -> list[Any]:
    raw = tf.raw_ops
    unknown, shape, kind = tf.constant(-1), tf.constant([3]), {"element_dtype": tf.float32}
    blank = raw.TensorListReserve(element_shape=shape, num_elements=3, **kind)
    grown = raw.TensorListResize(input_handle=blank, size=5)
    places = tf.constant([4, 1])
    into = raw.TensorListScatterIntoExistingList(input_handle=grown, tensor=x[:2], indices=places)
    placed = {"tensor": x[:2], "indices": places, "element_shape": shape}
    scattered = raw.TensorListScatterV2(**placed, num_elements=6)
    older = raw.TensorListScatter(**placed)
    return [
        raw.TensorListStack(input_handle=h, element_shape=unknown, **kind)
        for h in (blank, grown, into, scattered, older)
    ]


def joined_lists(tf: Any, x: Any) -> list[Any]:
    raw = tf.raw_ops
    unknown, kind = tf.constant([-1, 3]), {"element_dtype": tf.float32}
    lengths = tf.constant([1, 0, 3], tf.int64)
    cut = raw.TensorListSplit(tensor=x, element_shape=unknown, lengths=lengths)
    leading = tf.zeros([0], tf.int64)
    newer = raw.TensorListConcatV2(
        input_handle=cut, element_shape=unknown, leading_dims=leading, **kind
    )
    older = raw.TensorListConcat(input_handle=cut, **kind)
    return [newer.tensor, newer.lengths, older.tensor, older.lengths]


BUILDS: list[Build] = [arrays, joined_arrays, lists, sparse_lists, joined_lists]


@pytest.mark.parametrize("build", BUILDS, ids=lambda b: b.__name__)
def test_lists_match_tensorflow(build: Build, tf: ModuleType) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4, 3], name="x")
        names = [t.name for t in build(tf, x)]
        array = np.random.default_rng(6).normal(size=(4, 3)).astype(np.float32)
        with tf.compat.v1.Session(graph=graph) as session:
            theirs = session.run(names, {"x:0": array})
    ours = Interpreter(from_tensorflow(graph)).run(names, {"x": array})
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.dtype == reference.dtype
        np.testing.assert_array_equal(mine, reference)
