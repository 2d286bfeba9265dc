"""Selected source files define the functions that kernels call in the 1.15 wheel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import pytest

from mobileprep.graph.files import read_graph
from mobileprep.graph.opdefs.kernel_classes import kernel_files
from mobileprep.targets.op_lists import OpKernel
from mobileprep.targets.selective_registration import ops_and_kernels
from tests.reference.conftest import HOME
from tests.reference.library_calls import Library
from tests.reference.networks import NETWORKS, cached_network

pytestmark = pytest.mark.reference

DEFINED_IN = {
    "GetCpuCastFromFloat": "cast_op_impl_float.cc",
    "GetCpuCastFromBool": "cast_op_impl_bool.cc",
    "GetCpuCastFromUint64": "cast_op_impl_uint64.cc",
    "9ConcatCPUI": "concat_lib_cpu.cc",
    "ConvBackpropCompute": "conv_grad_ops.cc",
    "14BinaryOpShared": "cwise_ops_common.cc",
    "10DeepConv2D": "deep_conv2d.cc",
    "tensorflow9FIFOQueue": "fifo_queue.cc",
    "tensorflow9QueueBase": "queue_base.cc",
    "FusedComputation": "fused_eigen_output_kernels.cc",
    "functor13GatherNdSlice": "gather_nd_op_cpu_impl_0.cc",
    "23InitializableLookupTable": "initializable_lookup_table.cc",
    "tensorflow6lookup": "lookup_util.cc",
    "tensorflow4meta": "meta_support.cc",
    "tensorflow4Mfcc": "mfcc.cc",
    "functor9MirrorPad": "mirror_pad_op_cpu_impl_1.cc",
    "tensorflow14PoolParametersC": "pooling_ops_common.cc",
    "15ReductionHelper": "reduction_ops_common.cc",
    "tensorflow11Spectrogram": "spectrogram.cc",
    "functor5SplitI": "split_lib_cpu.cc",
    "SpaceToBatchFunctor": "spacetobatch_functor.cc",
    "functor12StridedSliceI": "strided_slice_op_inst_0.cc",
    "functor16ScatterNdFunctor": "scatter_nd_op_cpu_impl_1.cc",
    "functor5SliceI": "slice_op_cpu_impl_1.cc",
    "tensorflow11TensorArray": "tensor_array.cc",
    "functor4TileI": "tile_functor_cpu.cc",
    "BoostedTreesEnsembleResource": "boosted_trees/resources.cc",
    "22ComputeConv2DDimension": "conv_ops.cc",
}
"""Source files by a part of the names of their functions."""

SINGLE = {
    "Cast": "CpuCastOp",
    "QuantizedConv2D": "QuantizedConv2DOp<quint8, quint8, qint32, QuantizedConv>",
    "FIFOQueueV2": "FIFOQueueOp",
    "Mfcc": "MfccOp",
    "AudioSpectrogram": "AudioSpectrogramOp",
    "GatherNd": "GatherNdOp<CPUDevice, float, int32>",
    "MirrorPad": "MirrorPadOp<CPUDevice, float, int32>",
    "ScatterNd": "ScatterNdOp<CPUDevice, float, int32>",
    "SpaceToBatchND": "SpaceToBatchNDOp<CPUDevice, float>",
    "Slice": "SliceOp<CPUDevice, float>",
    "StridedSlice": "StridedSliceOp<CPUDevice, float>",
    "Tile": "TileOp<CPUDevice, int32>",
    "Split": "SplitOpCPU<float>",
    "Unpack": "UnpackOp<CPUDevice, float>",
    "Pack": "PackOp<CPUDevice, float>",
    "TensorArrayGatherV3": "TensorArrayGatherOp<CPUDevice, float, false >",
    "TensorArrayConcatV3": "TensorArrayConcatOp<CPUDevice, float>",
    "LookupTableFindV2": "LookupTableFindOp",
    "HashTableV2": "LookupTableOp<lookup::HashTable<string, int64>, string, int64>",
    "_FusedConv2D": "FusedConv2DOp<CPUDevice, float>",
    "BoostedTreesPredict": "BoostedTreesPredictOp",
}
"""Ops that the networks do not have, each with a kernel."""


@lru_cache(maxsize=1)
def library() -> Library:
    folder = HOME / "tensorflow_core" / "python"
    return Library(folder / "_pywrap_tensorflow_internal.so")


@lru_cache(maxsize=1)
def tables() -> dict[str, tuple[int, ...]]:
    """Addresses of kernel functions and virtual tables, by class name without types."""
    addresses_by_class: dict[str, list[int]] = {}
    for address, symbol in library().symbols.items():
        match = re.match(r"_Z(?:TV)?N10tensorflow(?:12_GLOBAL__N_1)?(\d+)", symbol.name)
        if match is not None and "GpuDevice" not in symbol.name:
            name = symbol.name[match.end() :][: int(match[1])]
            addresses_by_class.setdefault(name, []).append(address)
    return {name: tuple(addresses) for name, addresses in addresses_by_class.items()}


def called_files(pairs: Iterable[OpKernel]) -> dict[str, str]:
    """The files whose functions kernels of these classes call, each with one function."""
    classes = {re.split(r"[<\s]", pair.kernel)[0] for pair in pairs if pair.kernel is not None}
    roots = [address for name in classes for address in tables().get(name, ())]
    assert roots
    names = library().called(roots)
    return {
        file: name for part, file in DEFINED_IN.items() for name in sorted(names) if part in name
    }


@pytest.mark.parametrize("network", NETWORKS)
def test_files_of_a_network_define_the_called_functions(network: str) -> None:
    pairs = ops_and_kernels([read_graph(cached_network(network).path)], "1.15", functions=True)
    files = kernel_files((pair.op for pair in pairs), "1.15")
    called = called_files(pairs)
    assert {"deep_conv2d.cc", "pooling_ops_common.cc"} & called.keys()
    assert not {file: name for file, name in called.items() if file not in files.needed_by}
    unused = {"boosted_trees/resources.cc", "conv_grad_ops.cc", "cast_op_impl_float.cc"}
    assert not unused & {*files.kept, *called}


@pytest.mark.parametrize("op", SINGLE)
def test_files_of_an_op_define_the_called_functions(op: str) -> None:
    files = kernel_files([op], "1.15")
    called = called_files([OpKernel(op, SINGLE[op])])
    assert not {file: name for file, name in called.items() if file not in files.needed_by}


def test_cast_kernel_calls_all_cast_files() -> None:
    cast = {symbol.name for symbol in library().symbols.values() if "GetCpuCastFrom" in symbol.name}
    called = library().called(tables()["CpuCastOp"])
    from_types = {name for name in cast if re.match(r"_ZN10tensorflow\d+GetCpuCastFrom", name)}
    assert len(from_types & called) == len(
        [f for f in kernel_files(["Cast"], "1.15").kept if f.startswith("cast_op_impl_")]
    )


def test_library_has_symbols() -> None:
    assert isinstance(HOME, Path)
    assert "CpuCastOp" in tables() and "Conv2DOp" in tables()
