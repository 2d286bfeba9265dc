"""Cases of reductions, running sums and positions of extremes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.reference.cases.base import F32, FLOATS, Case, Make, i32, scalar

NAN = np.array([[1, np.nan, 3], [np.nan, 2, 2], [np.nan] * 3, [-np.inf, np.nan, 0]], F32)
AXES = (i32(0), i32(1, 2), i32(-1), i32(), i32(0, 1, 2))


def numbers() -> Iterator[Case]:
    make = Make(3)
    for op in ("Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm"):
        kinds = FLOATS if op == "EuclideanNorm" else (*FLOATS, np.int32, np.int64)
        for kind in kinds:
            x = make.real(3, 4, 5, kind=kind, low=-2, high=2)
            for axes in AXES:
                for keep in (False, True):
                    yield Case(op, (x, axes), {"keep_dims": keep}, note=f"{axes.tolist()}{keep}")
        yield Case(op, (make.real(0, 3), i32(0)), note="empty")
        yield Case(op, (make.real(4), scalar(0)), note="scalar axis")
        yield Case(op, (make.real(64, 300), i32(0)), note="long")
    yield Case("Mean", (make.whole(0, 3, 0, 3), i32(0)), note="empty whole")
    yield Case("Max", (np.array([[np.nan, 1], [2, 3]], F32), i32(1)), note="nan")


def truths() -> Iterator[Case]:
    make = Make(31)
    for op in ("All", "Any"):
        for axes in (i32(0), i32(0, 1), i32()):
            yield Case(op, (make.bits(3, 4), axes))
        yield Case(op, (make.bits(0, 2), i32(0)), note="empty")


def extremes() -> Iterator[Case]:
    make = Make(32)
    for op in ("ArgMax", "ArgMin"):
        for kind in (np.float32, np.int32, np.uint8):
            yield Case(op, (make.real(3, 4, kind=kind, low=0, high=3), scalar(1)))
        yield Case(op, (make.real(3, 4), scalar(-2)), {"output_type": np.int32})
        yield Case(op, (NAN, scalar(1)), note="nan")


def running() -> Iterator[Case]:
    make = Make(33)
    for op in ("Cumsum", "Cumprod"):
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"exclusive": exclusive, "reverse": reverse}
                yield Case(op, (make.real(3, 4), scalar(1)), attrs, note=f"{exclusive}{reverse}")
        yield Case(op, (make.whole(1, 4, 5), scalar(0)))
        yield Case(op, (make.real(0, 2), scalar(0)), {"exclusive": True}, note="empty")


def cases() -> Iterator[Case]:
    yield from numbers()
    yield from truths()
    yield from extremes()
    yield from running()
    make = Make(34)
    yield Case("L2Loss", (make.real(7, 3),))
    yield Case("L2Loss", (make.real(0),), note="empty")
