"""Ops that newer releases write where an older op does the same, under some conditions."""

from __future__ import annotations

from typing import Final

OLDER_OPS: Final = {
    "AddV2": "Add",
    "BatchMatMulV2": "BatchMatMul",
    "BatchMatMulV3": "BatchMatMulV2",
    "CheckNumericsV2": "CheckNumerics",
    "FusedBatchNormV3": "FusedBatchNorm",
    "MatrixDiagPartV3": "MatrixDiagPartV2",
    "MatrixDiagV3": "MatrixDiagV2",
    "MatrixSetDiagV3": "MatrixSetDiagV2",
    "QuantizeAndDequantizeV4": "QuantizeAndDequantizeV2",
    "SelectV2": "Select",
}
"""By op, the older one. What the transform ``downgrade`` has a rule for."""
