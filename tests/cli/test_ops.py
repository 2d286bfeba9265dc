"""The verb ``ops``."""

from __future__ import annotations

import json

from tests.cli.conftest import Run


def test_lists_kernels_files_and_builds(run: Run) -> None:
    result = run("ops", "DecodeJpeg", "Relu", "--platform=ios")
    assert result.code == 0, result.err
    assert "DecodeJpeg in TensorFlow 1.15\n  input contents: string\n" in result.out
    assert "  default build for ios: no\n" in result.out
    assert "    DecodeImageOp (not compiled)\n" in result.out
    assert "    tensorflow/core/kernels/decode_image_op.cc (not in the default build)" in result.out
    assert "Relu in TensorFlow 1.15\n" in result.out


def test_an_op_of_another_release(run: Run) -> None:
    out = run("ops", "MatrixDiagV3").out
    assert out.startswith("MatrixDiagV3: TensorFlow 1.15 does not have it; 2.21 does\n")


def test_patterns_print_a_table(run: Run) -> None:
    lines = run("ops", "Avg*").out.splitlines()
    assert " ".join(lines[0].split()) == "op releases kernels default build LiteRT interpreter"
    assert " ".join(lines[1].split()) == "AvgPool 1.15, 2.21 3 yes converted yes"


def test_json_has_all_facts(run: Run) -> None:
    (facts,) = json.loads(run("ops", "Mfcc", "--tensorflow=2.21", "--json").out)
    assert (facts["op"], facts["tensorflow"], facts["exists"]) == ("Mfcc", "2.21", True)
    assert [kernel["kernel"] for kernel in facts["kernels"]] == ["MfccOp"]


def test_a_misspelled_op(run: Run) -> None:
    result = run("ops", "Conv2DD")
    assert (result.code, result.out) == (2, "")
    assert "do not have an op 'Conv2DD'" in result.err
    assert "did you mean 'Conv2D'?" in result.err
