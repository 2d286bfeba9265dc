"""Cases of matrix products and sums over labeled axes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.reference.cases.base import FLOATS, Case, Make


def cases() -> Iterator[Case]:
    make = Make(4)
    for kind in (*FLOATS, np.int32):
        yield Case("MatMul", (make.real(3, 4, kind=kind), make.real(4, 5, kind=kind)))
    yield Case(
        "MatMul", (make.real(4, 3), make.real(5, 4)), {"transpose_a": True, "transpose_b": True}
    )
    yield Case("MatMul", (make.real(0, 4), make.real(4, 5)), note="empty")
    yield Case("MatMul", (make.real(3, 0), make.real(0, 5)), note="empty sum")
    yield Case("MatMul", (make.real(300, 400), make.real(400, 500)), note="large")
    for op in ("BatchMatMul", "BatchMatMulV2"):
        yield Case(op, (make.real(2, 3, 4), make.real(2, 4, 5)))
        yield Case(op, (make.real(2, 4, 3), make.real(2, 5, 4)), {"adj_x": True, "adj_y": True})
    yield Case("BatchMatMulV2", (make.real(2, 1, 3, 4), make.real(5, 4, 2)))
    yield Case("BatchMatMulV2", (make.real(8, 128, 64), make.real(8, 64, 128)), note="large")
    yield Case("BatchMatMulV3", (make.real(2, 3, 4), make.real(2, 4, 5)), {"Tout": np.float32})
    for equation, shapes in (
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bij,bkj->bik", ((2, 3, 4), (2, 5, 4))),
        ("ijk->k", ((2, 3, 4),)),
        ("...ij,jk->...ik", ((5, 2, 3), (3, 4))),
        ("abc,cde->abde", ((2, 3, 4), (4, 2, 3))),
        ("ii->i", ((3, 3),)),
    ):
        yield Case(
            "Einsum", tuple(make.real(*s) for s in shapes), {"equation": equation}, note=equation
        )
