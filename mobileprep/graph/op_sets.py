"""Sets of ops that several modules use."""

from __future__ import annotations

from typing import Final

# Control flow v1. Ops on references behave like those on values.
SWITCHES: Final = frozenset({"Switch", "RefSwitch"})
MERGES: Final = frozenset({"Merge", "RefMerge"})
ENTERS: Final = frozenset({"Enter", "RefEnter"})
EXITS: Final = frozenset({"Exit", "RefExit"})
NEXT_ITERATIONS: Final = frozenset({"NextIteration", "RefNextIteration"})

# Placeholders that must be fed, and those that can be fed.
PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})
FEEDABLE: Final = PLACEHOLDERS | {"PlaceholderWithDefault"}

# Ops that write a value into a variable.
ASSIGNMENTS: Final = frozenset({"Assign", "AssignVariableOp"})

FUSED_BATCH_NORMS: Final = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
GLOBAL_BATCH_NORM: Final = "BatchNormWithGlobalNormalization"
# Batch normalization as a single op.
BATCH_NORMS: Final = FUSED_BATCH_NORMS | {GLOBAL_BATCH_NORM}
LOSSES: Final = frozenset(
    {"SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "CTCLoss", "CTCLossV2"}
)
SUMS: Final = frozenset({"Add", "AddV2"})
DIVISIONS: Final = frozenset({"Div", "RealDiv"})
# Ops that scale by a constant if one of their inputs is constant.
SCALINGS: Final = DIVISIONS | {"Mul"}
