"""The fragments that TensorFlow's own builds take."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.packaging.build_files import COMPILER_FLAGS, build_fragments, header_folder
from mobileprep.packaging.op_lists import DEFAULT_OPS, OpKernel
from mobileprep.packaging.targets import PLATFORMS

OPS = (*DEFAULT_OPS, OpKernel("Conv2D", "Conv2DOp<CPUDevice, float>"), OpKernel("Lgamma", "x"))
RELEASES = ["1.15", "2.21"]


def lists_of(fragment: str) -> dict[str, list[str]]:
    """The lists that a .bzl file assigns, which is Python as far as these go."""
    module = ast.parse(fragment)
    assigned = [part for part in module.body if isinstance(part, ast.Assign)]
    return {part.targets[0].id: ast.literal_eval(part.value) for part in assigned}  # type: ignore[attr-defined]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("release", RELEASES)
def test_each_platform_gets_the_files_of_the_releases_builds(release: str, platform: str) -> None:
    fragments = build_fragments(OPS, release, platform)
    makefile = {"selective_registration.mk", "tf_op_files.txt"} if release == "1.15" else set()
    bazel = {"selective_registration.bazelrc", "selective_registration.bzl"}
    assert fragments.keys() == bazel | makefile
    assert all(text.endswith("\n") and "\n\n\n" not in text for text in fragments.values())
    assert fragments == build_fragments(reversed(OPS), release, platform)


@pytest.mark.parametrize("release", RELEASES)
def test_the_bazelrc_is_comments_and_the_flags(release: str) -> None:
    lines = build_fragments(OPS, release, "android")["selective_registration.bazelrc"].splitlines()
    told = [line for line in lines if not line.startswith("#")]
    compiled = [f"build:selective --copt={flag}" for flag in COMPILER_FLAGS]
    assert told == [*compiled, "build:selective --linkopt=-Wl,-z,max-page-size=16384"]
    for platform in ("ios", "raspberry-pi", "linux", "generic"):
        other = build_fragments(OPS, release, platform)["selective_registration.bazelrc"]
        assert "--linkopt" not in other
    comments = "\n".join(line for line in lines if line.startswith("#"))
    assert f"{header_folder(release)}/" in comments
    assert "--cpu=armeabi-v7a" in comments


@pytest.mark.parametrize("release", RELEASES)
def test_the_bzl_names_kernels_kept_and_added(release: str) -> None:
    lists = lists_of(build_fragments(OPS, release, "linux")["selective_registration.bzl"])
    assert {"conv_ops.cc", "no_op.cc", "sendrecv_ops.cc", "function_ops.cc"} <= set(
        lists["KERNEL_SRCS"]
    )
    assert "relu_op.cc" not in lists["KERNEL_SRCS"]
    assert lists["ADDED_KERNEL_SRCS"] == ["cwise_op_lgamma.cc"]


@pytest.mark.parametrize("name", ["selective_registration.bzl", "selective_registration.mk"])
def test_every_file_has_its_reason(name: str) -> None:
    text = build_fragments((*OPS, OpKernel("Cast", "CpuCastOp")), "1.15", "ios")[name]
    assert "needed by Cast: CpuCastOp\n" in text
    assert "needed by cast_op.cc\n" in text
    assert "needed by Conv2D: Conv2DOp<CPUDevice, float>\n" in text
    assert "needed by _Recv: RecvOp, _Send: SendOp\n" in text
    assert "any kernel may need it\n" in text


def test_ops_without_a_known_file_are_told() -> None:
    ops = [*OPS, OpKernel("Frobnicate", "FrobnicateOp")]
    for name, text in build_fragments(ops, "1.15", "ios").items():
        assert ("Frobnicate" in text) == (name.endswith((".bzl", ".mk")))


def test_the_makefiles_list_keeps_what_lies_outside_the_kernels() -> None:
    lines = build_fragments(OPS, "1.15", "android")["tf_op_files.txt"].splitlines()
    assert "tensorflow/core/ops/math_ops.cc" in lines
    assert "tensorflow/core/kernels/conv_ops.cc" in lines
    assert "tensorflow/core/kernels/cwise_op_lgamma.cc" in lines
    assert "tensorflow/core/kernels/softmax_op.cc" not in lines
    assert len(set(lines)) == len(lines)
    assert all(line.startswith("tensorflow/") and line.endswith(".cc") for line in lines)


@pytest.mark.parametrize(
    ("platform", "target"), [("android", "ANDROID"), ("ios", "IOS"), ("generic", "HOST")]
)
def test_make_takes_the_fragment_before_the_makefile(
    tmp_path: Path, platform: str, target: str
) -> None:
    """The makefile here assigns as that of TensorFlow 1.15 does."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    fragment = tmp_path / "selective_registration.mk"
    fragment.write_text(build_fragments(OPS, "1.15", platform)["selective_registration.mk"])
    makefile = tmp_path / "Makefile"
    makefile.write_text(
        "ifeq ($(ANDROID_TYPES),)\nANDROID_TYPES := -D__ANDROID_TYPES_SLIM__\nendif\n"
        "TARGET := HOST\n"
        "OPTFLAGS := -O2\n"
        "ifneq ($(TARGET),ANDROID)\nOPTFLAGS += -march=native\nendif\n"
        "CXXFLAGS := --std=c++14 $(OPTFLAGS) $(ANDROID_TYPES)\n"
        "all:\n\t@echo $(TARGET) $(CXXFLAGS)\n"
    )
    command = ["make", "-s", "-f", str(fragment), "-f", str(makefile)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    flags = ["--std=c++14", "-O2", *COMPILER_FLAGS, "-D__ANDROID_TYPES_FULL__"]
    assert done.stdout.split() == [target, *flags]


def test_unknown_platforms_and_releases_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no platform 'symbian'"):
        build_fragments(OPS, "1.15", "symbian")
    with pytest.raises(UnsupportedError, match=r"TensorFlow 1\.4"):
        build_fragments(OPS, "1.4", "android")
