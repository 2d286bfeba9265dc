"""Kernels, source files, and builds of ops."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.litert.convert import converted
from mobileprep.litert.flex import flex_of
from mobileprep.litert.prepare import CutInput
from mobileprep.targets.op_facts import op_facts
from tests.ops.graphs import fetches, op_graph
from tests.reference.cases import elementwise, features, images, reductions, texts

FAMILIES = (elementwise, features, images, reductions, texts)
FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts"


def test_an_op_of_the_default_build():
    (facts,) = op_facts(["MaxPool"], tensorflow="1.15")
    assert facts.exists
    assert facts.releases == ("1.15", "2.21")
    assert facts.default_build is True
    assert facts.litert == "converted"
    assert facts.interpreter
    assert "input input: T" in facts.signature
    assert "attribute padding: string in [SAME, VALID]" in facts.signature
    by_type = {kernel.constraints: kernel for kernel in facts.kernels}
    assert by_type["T=DT_FLOAT",].is_default
    assert not by_type["T=DT_DOUBLE",].is_default
    assert by_type["T=DT_FLOAT",].kernel == "MaxPoolingOp<CPUDevice, float>"
    assert [(f.file, f.default_list) for f in facts.files] == [
        ("tensorflow/core/kernels/maxpooling_op.cc", "makefile/tf_op_files.txt")
    ]
    assert any("no change to the filegroup" in sentence for sentence in facts.advice)


def test_all_types_are_compiled_for_desktops():
    (facts,) = op_facts(["MaxPool"], platform="linux")
    assert all(kernel.is_default for kernel in facts.kernels)
    assert not any(sentence.startswith("types:") for sentence in facts.advice)


def test_advice_names_the_flag_for_other_types():
    (facts,) = op_facts(["MaxPool"])
    (newest,) = op_facts(["MaxPool"], tensorflow="2.21")
    flag = "types: `-DSUPPORT_SELECTIVE_REGISTRATION` "
    assert any(sentence.startswith(flag) for sentence in facts.advice)
    assert not any(sentence.startswith("types:") for sentence in newest.advice)


def test_the_interpreter_runs_ops_without_kernels():
    ops = ("Const", "Placeholder", "Switch", "NextIteration", "If", "While", "PartitionedCall")
    assert all(facts.interpreter for facts in op_facts(ops))
    assert not any(facts.interpreter for facts in op_facts(["VarHandleOp", "AvgPoolGrad"]))


def test_ops_without_operators_of_their_own_convert():
    ops = ("Const", "Placeholder", "NoOp", "Switch", "TensorArrayReadV3", "PartitionedCall")
    ops = (*ops, "BlockLSTM", "QuantizedConv2D", "_FusedConv2D", "Print")
    assert {facts.op: facts.litert for facts in op_facts(ops)} == dict.fromkeys(ops, "converted")


def test_handles_references_and_functions_need_more_than_flex():
    ops = ("VarHandleOp", "VariableV2", "Assign", "MapDataset", "RemoteCall")
    assert {facts.op: facts.litert for facts in op_facts(ops)} == dict.fromkeys(ops, "no")


def test_the_converter_passes_ops_to_flex_as_reported():
    cases = {case.op: case for family in FAMILIES for case in family.cases()}
    ops = [facts for facts in op_facts(list(cases)) if facts.litert != "converted"]
    assert len(ops) > 20
    for facts in ops:
        case = cases[facts.op]
        graph = op_graph(case.op, case.inputs, **case.attrs)
        inputs = [CutInput(f"x{i}", x.shape) for i, x in enumerate(case.inputs)]
        with pytest.raises(UnsupportedError):
            converted(graph, inputs, fetches(graph))
        if facts.litert == "flex":
            assert flex_of(converted(graph, inputs, fetches(graph), flex=True)) == (facts.op,)
        else:
            with pytest.raises(UnsupportedError):
                converted(graph, inputs, fetches(graph), flex=True)


def test_an_op_that_mobile_builds_lack():
    (phone,) = op_facts(["LRNGrad"], platform="raspberry-pi")
    (other,) = op_facts(["DecodePng"], platform="ios")
    assert phone.default_build is True
    assert other.default_build is False
    assert not other.kernels[0].is_default
    assert any(sentence.startswith("image library:") for sentence in other.advice)
    added = "tensorflow/core/kernels/decode_image_op.cc, and the file of tensorflow/core/ops"
    assert any(sentence.startswith(f"make: add {added}") for sentence in other.advice)
    (desktop,) = op_facts(["DecodePng"], platform="generic")
    assert desktop.default_build is True


def test_an_op_of_a_newer_release():
    (facts,) = op_facts(["MatrixDiagV3"])
    assert not facts.exists
    assert facts.releases == ("2.21",)
    assert facts.kernels == ()
    assert facts.advice == (
        "transform: `downgrade` replaces it with `MatrixDiagV2` where possible",
        "release: build the app with TensorFlow 2.21",
    )


def test_ops_without_kernels_are_in_every_build():
    (facts,) = op_facts(["PartitionedCall"])
    assert facts.kernels or facts.default_build is True


def test_patterns_match_names_of_all_releases():
    names = [facts.op for facts in op_facts(["MatrixDiag*", "Add"])]
    assert names[-1] == "Add"
    assert {"MatrixDiag", "MatrixDiagPart", "MatrixDiagV3"} <= set(names)
    assert not any(facts.op.startswith("_") for facts in op_facts(["*Switch*"]))
    assert "_SwitchN" in {facts.op for facts in op_facts(["_Switch*"])}


@pytest.mark.parametrize(
    ("names", "message"),
    [(["Conv2DD"], "did you mean 'Conv2D'"), (["*Nothing*"], "quote the pattern")],
)
def test_unknown_ops(names, message):
    with pytest.raises(UsageError) as error:
        op_facts(names)
    assert message in error.value.hint


def test_unknown_platforms_and_releases():
    with pytest.raises(UnsupportedError, match="unknown platform 'adnroid'"):
        op_facts(["Add"], platform="adnroid")
    with pytest.raises(UsageError, match=r"1\.14"):
        op_facts(["Add"], tensorflow="1.14")


OPS = (
    *("Add", "ArgMax", "AvgPool", "BiasAdd", "Cast", "ConcatV2", "Conv2D", "DecodeWav"),
    *("DepthwiseConv2dNative", "FusedBatchNorm", "Gather", "MatMul", "Mfcc", "Pad", "Placeholder"),
    *("QuantizedConv2D", "Relu6", "ResizeBilinear", "Softmax", "TopKV2"),
)


@pytest.mark.skipif(not FACTS.is_dir(), reason="needs tables of TensorFlow's libraries")
@pytest.mark.parametrize(
    ("release", "kernels", "files"),
    [
        ("1.15", "kernels-tf1.15.json.gz", "op_files-tf1.15.json"),
        ("2.21", "kernels-tf2.21.json.gz", "op_files-tf2.json"),
    ],
)
def test_tables_of_the_libraries_agree(release, kernels, files):
    rows = json.loads(gzip.decompress((FACTS / kernels).read_bytes()))
    registered = json.loads((FACTS / files).read_text())
    registered = registered.get("files", registered)
    for facts in op_facts(OPS, tensorflow=release, platform="generic"):
        expected = {
            (row["kernel"], *sorted(f"{k}={v}" for k, v in row["types"].items()))
            for row in rows
            if row["op"] == facts.op
        }
        actual = {
            (k.kernel, *(c for c in k.constraints if c.split("=")[1].startswith("DT_")))
            for k in facts.kernels
        }
        assert actual == expected, facts.op
        names = {Path(f.file).name for f in facts.files}
        assert names == {Path(f).name for f in registered.get(facts.op, [])}, facts.op
