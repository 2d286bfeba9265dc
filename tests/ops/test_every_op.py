"""Every registered op has a kernel, a shape function, and a cost in the same module."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mobileprep.ops import kernel, shape_function
from mobileprep.ops.registry import INDEX, import_ops

import_ops()
KERNELS = {*kernel.registry, *kernel.context_kernels}
SHAPES, COSTS = set(shape_function.registry), set(kernel.flop_rules)

WITHOUT_KERNEL = {
    "run by the runtime itself": {
        *("Const", "Placeholder", "PlaceholderV2"),
        *("Enter", "Exit", "Merge", "NextIteration", "Switch"),
    },
    "stateful; freezing makes them constant": {
        *("Assign", "AssignAdd", "AssignSub", "CountUpTo", "GetSessionHandleV2", "HostConst"),
        *("ImmutableConst", "IsVariableInitialized", "ReadVariableOp", "ResourceGather", "Stage"),
        *("VarHandleOp", "VarIsInitializedOp", "Variable", "VariableShape", "VariableV2"),
        *("RefEnter", "RefExit", "RefMerge", "RefNextIteration", "RefSelect", "RefSwitch"),
    },
    "control flow v2 is lowered to v1 before a run": {
        *("Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"),
    },
    "read or write files and summaries": {
        *("AudioSummaryV2", "HistogramSummary", "ImageSummary", "MergeSummary", "ScalarSummary"),
        *("EncodeJpeg", "EncodePng", "MergeV2Checkpoints", "ParseTensor", "ReadFile", "RestoreV2"),
        *("Save", "SaveSlices", "SaveV2", "SerializeTensor", "ShardedFilename", "Timestamp"),
        "WriteFile",
    },
    "gradients and training ops: only shapes": {
        *("AvgPoolGrad", "BiasAddGrad", "BroadcastGradientArgs", "Conv2DBackpropFilter"),
        *("Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter", "EluGrad", "InvGrad"),
        *("FakeQuantWithMinMaxArgsGradient", "LeakyReluGrad", "MaxPoolGrad", "ReciprocalGrad"),
        *("Relu6Grad", "ReluGrad", "ResizeBicubicGrad", "ResizeBilinearGrad", "RsqrtGrad"),
        *("ResizeNearestNeighborGrad", "ScaleAndTranslateGrad", "SeluGrad", "SigmoidGrad"),
        *("SoftplusGrad", "SoftsignGrad", "SqrtGrad", "TanhGrad", "TensorArrayGradV3"),
        *("InplaceAdd", "InplaceSub", "InplaceUpdate", "ParallelConcat"),
        *("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2"),
    },
    "not seen in deployed models: only shapes": {
        *("AdjustContrast", "BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "Betainc"),
        *("Copy", "CopyHost", "Cross", "CumulativeLogsumexp", "DebugIdentity"),
        *("DebugIdentityV2", "DebugIdentityV3", "DrawBoundingBoxes", "DrawBoundingBoxesV2"),
        *("ExtractGlimpse", "ExtractGlimpseV2", "Fingerprint", "HistogramFixedWidth", "Igamma"),
        *("Igammac", "MatrixExponential", "MatrixLogarithm", "MatrixSquareRoot"),
        *("MatrixTriangularSolve", "NextAfter", "ParameterizedTruncatedNormal", "Polygamma"),
        *("PopulationCount", "RandomGamma", "RandomPoisson", "RandomPoissonV2"),
        *("ScaleAndTranslate", "SparseMatMul", "StatelessMultinomial", "StatelessRandomNormal"),
        *("StatelessRandomNormalV2", "StatelessRandomUniform", "StatelessRandomUniformFullInt"),
        *("StatelessRandomUniformFullIntV2", "StatelessRandomUniformInt", "UnicodeScript"),
        *("StatelessRandomUniformIntV2", "StatelessRandomUniformV2", "StatelessTruncatedNormal"),
        *("StatelessTruncatedNormalV2", "Zeta", "QuantizedReluX"),
        *("QuantizedConv2DAndRelu", "QuantizedConv2DAndReluAndRequantize"),
        *("QuantizedConv2DAndRequantize", "QuantizedConv2DPerChannel", "QuantizedConv2DWithBias"),
        *("QuantizedConv2DWithBiasAndRelu", "QuantizedConv2DWithBiasAndReluAndRequantize"),
        "QuantizedConv2DWithBiasAndRequantize",
    },
}
FAMILIES_WITH_CASES = (
    *("array", "control_flow", "data_flow", "io", "linalg", "lookup", "math", "ragged"),
    *("sparse", "strings"),
)
# Their shapes come from functions: tests/runtime has such graphs.
WITHOUT_CASE = {"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"}

# Records the module that registers each op, in a fresh process.
HOMES = """
import json, sys
from mobileprep.core.loading import Registry
homes, register = {}, Registry.register
def record(self, *names):
    frame = sys._getframe()
    while frame.f_globals["__name__"].count(".") < 3:  # up to the module of a family
        frame = frame.f_back
    for name in names:
        homes.setdefault(name, set()).add(frame.f_globals["__name__"])
    return register(self, *names)
Registry.register = record
from mobileprep.ops.registry import import_ops
import_ops()
print(json.dumps({op: sorted(modules) for op, modules in homes.items()}))
"""


def _index() -> dict[str, list[str]]:
    index: dict[str, list[str]] = json.loads(INDEX.read_text(encoding="utf-8"))
    return index


def test_ops_without_a_kernel_are_listed() -> None:
    assert set().union(*WITHOUT_KERNEL.values()) == (SHAPES | COSTS) - KERNELS


def test_every_op_with_a_kernel_has_a_shape_function() -> None:
    assert set() == KERNELS - SHAPES


def test_every_op_with_a_kernel_has_a_cost() -> None:
    assert set() == KERNELS - COSTS


def test_each_op_is_registered_by_one_module() -> None:
    output = subprocess.run([sys.executable, "-c", HOMES], check=True, capture_output=True).stdout
    homes = json.loads(output)
    indexed = {op: [f"mobileprep.ops.{m}"] for m, ops in _index().items() for op in ops}
    assert homes == indexed


@pytest.mark.parametrize("family", FAMILIES_WITH_CASES)
def test_every_op_of_a_family_has_a_case(family: str) -> None:
    ops = {
        op for module, names in _index().items() if module.startswith(f"{family}.") for op in names
    }
    folder = Path(__file__).parent / family
    modules = [importlib.import_module(f"tests.ops.{family}.{p.stem}") for p in folder.glob("*.py")]
    cases = {case.op for module in modules for case in getattr(module, "OP_CASES", ())}
    assert ops - cases == WITHOUT_CASE & ops
