"""Lists of pairs of op and kernel class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.targets.op_lists import (
    DEFAULT_OPS,
    OpKernel,
    parse_default_ops,
    read_ops_list,
)
from mobileprep.targets.selective_registration import kernel_bytes

ADD = "BinaryOp<CPUDevice, functor::add<float>>"


def test_default_matches_the_original_tool() -> None:
    assert parse_default_ops("NoOp:NoOp,_Recv:RecvOp,_Send:SendOp") == DEFAULT_OPS


def test_empty_string_has_no_pairs() -> None:
    assert parse_default_ops("") == ()
    assert parse_default_ops("  ") == ()


def test_spaces_around_names_are_ignored() -> None:
    assert parse_default_ops(" A : B , C:D") == (OpKernel("A", "B"), OpKernel("C", "D"))


def test_classes_may_contain_commas_and_colons() -> None:
    assert parse_default_ops(f"Add:{ADD},NoOp:NoOp") == (
        OpKernel("Add", ADD),
        OpKernel("NoOp", "NoOp"),
    )
    assert parse_default_ops("A:X<a, b<c>>,B:Y") == (
        OpKernel("A", "X<a, b<c>>"),
        OpKernel("B", "Y"),
    )


@pytest.mark.parametrize(
    "text", ["NoOp", "NoOp:", ":NoOp", "NoOp:NoOp,,x", 'A:"', "A:\\", "A:\n é"]
)
def test_invalid_pair_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a pair"):
        parse_default_ops(text)


def test_json_list_is_read_in_order(tmp_path: Path) -> None:
    file = tmp_path / "ops.json"
    file.write_text(json.dumps([["Add", ADD], ["AccumulateNV2", None], ["Foo", ""]]))
    assert read_ops_list(file) == (
        OpKernel("Add", ADD),
        OpKernel("AccumulateNV2"),
        OpKernel("Foo"),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ops.json:1:1: is not JSON"),
        (b'[["A", "B"],\n ["C"', "ops.json:2:6: is not JSON"),
        (b"\xff", "byte 0: is not valid UTF-8"),
        (b'{"A": "B"}', "ops.json: is not a list of pairs"),
        (b'["AB"]', "entry 1: is not a pair"),
        (b'[["A", "B"], ["C"]]', "entry 2: is not a pair"),
        (b'[["A", 3]]', "entry 1: is not a pair"),
        (b'[["", "B"]]', "entry 1: is not a pair"),
        (b'[["A", "B\\"; evil"]]', "entry 1: is not a pair"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"[" + b"1" * 5000 + b"]", "has a number of more digits"),
    ],
)
def test_invalid_list_is_refused_with_its_position(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "ops.json"
    file.write_bytes(content)
    with pytest.raises(CorruptFileError) as caught:
        read_ops_list(file)
    assert message in str(caught.value)
    assert caught.value.hint


def test_missing_list_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"absent\.json"):
        read_ops_list(tmp_path / "absent.json")


def test_list_larger_than_16_mib_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ops.json"
    path.write_text('[["Add", "AddOp"]]')
    with path.open("ab") as stream:
        stream.write(b" " * ((1 << 24) - stream.tell()))
        stream.flush()
        assert len(read_ops_list(path)) == 1
        stream.write(b" ")
    with pytest.raises(CorruptFileError):
        read_ops_list(path)


MAX = [OpKernel("MaxPool", f"MaxPoolingOp<CPUDevice, {t}>") for t in ("float", "double")]


def test_more_kernels_have_more_code() -> None:
    least = kernel_bytes(DEFAULT_OPS, "1.15")
    one = kernel_bytes([*DEFAULT_OPS, MAX[0]], "1.15")
    two = kernel_bytes([*DEFAULT_OPS, *MAX], "1.15")
    assert least is not None and one is not None and two is not None
    assert 0 < least < one < two
    assert two - one == one - least or abs((two - one) - (one - least)) == 1  # each rounded


def test_duplicates_and_unknown_kernels_do_not_count() -> None:
    kernels = [*DEFAULT_OPS, MAX[0]]
    again = [*kernels, MAX[0], OpKernel("Placeholder"), OpKernel("Frobnicate", "Own")]
    assert kernel_bytes(again, "1.15") == kernel_bytes(kernels, "1.15")


def test_other_releases_have_no_estimate() -> None:
    assert kernel_bytes(DEFAULT_OPS, "2.21") is None
