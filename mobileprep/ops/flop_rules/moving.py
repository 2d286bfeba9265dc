"""Ops without arithmetic: they move, choose, count, sort or make elements, or have no numbers."""

from __future__ import annotations

from typing import Final

from mobileprep.ops.flops import Sizes, UnknownCostError, flop_rule

_FREE: Final = (
    "All Any AsString Assert BatchToSpace BatchToSpaceND Bincount Bitcast BitwiseAnd "
    "BitwiseOr BitwiseXor BroadcastArgs BroadcastTo Bucketize Cast CheckNumerics "
    "CheckNumericsV2 Complex Concat ConcatOffset ConcatV2 Conj ConjugateTranspose Const "
    "ControlTrigger DataFormatDimMap DataFormatVecPermute DecodeBase64 DecodeBmp DecodeGif "
    "DecodeImage DecodeJpeg DecodePng DecodeRaw DecodeWav DeepCopy DenseBincount DepthToSpace "
    "Diag DiagPart DynamicPartition DynamicStitch Empty EmptyTensorList EncodeBase64 "
    "EnsureShape Enter Exit ExpandDims ExtractImagePatches FakeParam Fill Gather GatherNd "
    "GatherV2 GuaranteeConst HashTable HashTableV2 Identity IdentityN Imag InitializeTable "
    "InitializeTableFromTextFile InitializeTableFromTextFileV2 InitializeTableV2 Invert "
    "InvertPermutation LeftShift ListDiff LogicalAnd LogicalNot LogicalOr LookupTableFind "
    "LookupTableFindV2 LookupTableImport LookupTableImportV2 LookupTableInsert "
    "LookupTableInsertV2 LookupTableSize LookupTableSizeV2 LoopCond LowerBound MatrixBandPart "
    "MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 "
    "MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 Merge MirrorPad Multinomial "
    "MutableHashTable MutableHashTableV2 NextIteration NoOp NthElement OneHot OnesLike Pack "
    "Pad PadV2 ParallelDynamicStitch Placeholder PlaceholderV2 PlaceholderWithDefault "
    "PreventGradient Print PrintV2 QuantizedConcat QuantizedConcatV2 QuantizedReshape "
    "RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt Rank Real ReduceJoin "
    "RefIdentity RegexFullMatch RegexReplace Reshape ResizeNearestNeighbor Reverse "
    "ReverseSequence ReverseV2 RightShift Roll ScatterNd Select SelectV2 Shape ShapeN Size "
    "Slice Snapshot SpaceToBatch SpaceToBatchND SpaceToDepth SparseToDense Split SplitV "
    "Squeeze StaticRegexFullMatch StaticRegexReplace StopGradient StridedSlice StringFormat "
    "StringJoin StringLength StringLower StringSplit StringSplitV2 StringStrip StringToNumber "
    "StringUpper Substr Switch TensorArrayCloseV2 TensorArrayCloseV3 TensorArrayConcatV2 "
    "TensorArrayConcatV3 TensorArrayGatherV2 TensorArrayGatherV3 TensorArrayReadV2 "
    "TensorArrayReadV3 TensorArrayScatterV2 TensorArrayScatterV3 TensorArraySizeV2 "
    "TensorArraySizeV3 TensorArraySplitV2 TensorArraySplitV3 TensorArrayV2 TensorArrayV3 "
    "TensorArrayWriteV2 TensorArrayWriteV3 TensorListConcat TensorListConcatLists "
    "TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather "
    "TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack "
    "TensorListReserve TensorListResize TensorListScatter TensorListScatterIntoExistingList "
    "TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack "
    "TensorScatterUpdate TensorStridedSliceUpdate Tile TopK TopKV2 Transpose TruncatedNormal "
    "Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UpperBound Where "
    "ZerosLike"
)


@flop_rule(*_FREE.split())
def nothing(sizes: Sizes) -> float:
    """Nothing is computed."""
    return 0


@flop_rule(
    *("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4"),
    *("NonMaxSuppressionV5", "NonMaxSuppressionWithOverlaps", "CombinedNonMaxSuppression"),
    "MaxPoolV2",
)
def by_values(sizes: Sizes) -> float:
    """What is computed depends on values, which shapes do not tell."""
    raise UnknownCostError
