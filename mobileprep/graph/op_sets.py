"""Sets of ops that more than one module asks for, each named once."""

from __future__ import annotations

from typing import Final

# Control flow v1. The ops on references do what those on values do.
SWITCHES: Final = frozenset({"Switch", "RefSwitch"})
MERGES: Final = frozenset({"Merge", "RefMerge"})
ENTERS: Final = frozenset({"Enter", "RefEnter"})
EXITS: Final = frozenset({"Exit", "RefExit"})
NEXT_ITERATIONS: Final = frozenset({"NextIteration", "RefNextIteration"})

# Placeholders that cannot run unless they are fed, and those that may be fed.
PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})
FEEDABLE: Final = PLACEHOLDERS | {"PlaceholderWithDefault"}

# Write a value into a variable.
ASSIGNMENTS: Final = frozenset({"Assign", "AssignVariableOp"})

FUSED_BATCH_NORMS: Final = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
GLOBAL_BATCH_NORM: Final = "BatchNormWithGlobalNormalization"
# A normalization of batches in one op.
BATCH_NORMS: Final = FUSED_BATCH_NORMS | {GLOBAL_BATCH_NORM}
LOSSES: Final = frozenset(
    {"SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "CTCLoss", "CTCLossV2"}
)
SUMS: Final = frozenset({"Add", "AddV2"})
DIVISIONS: Final = frozenset({"Div", "RealDiv"})
# Scale by a constant, where one of their inputs is one.
SCALINGS: Final = DIVISIONS | {"Mul"}
