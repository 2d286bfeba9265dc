"""Build fragments that make TensorFlow's own builds compile only the required kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from mobileprep.graph.opdefs.definitions import NEWEST, TF115
from mobileprep.graph.opdefs.kernel_classes import KernelFiles, kernel_files, makefile_sources
from mobileprep.targets.app_files import makefile_fragment, text_of
from mobileprep.targets.op_lists import OpKernel
from mobileprep.targets.targets import Abi, Platform, platform_named

ALL_TYPES: Final = "-DSUPPORT_SELECTIVE_REGISTRATION"
"""Compiler flag with which mobile builds compile kernels for all dtypes."""
COMPILER_FLAGS: Final = (
    "-DSELECTIVE_REGISTRATION",
    # The header selects from the kernels for all dtypes.
    ALL_TYPES,
    # The header compares strings recursively, one level per character.
    "-fconstexpr-depth=1024",
)

KERNELS: Final = "tensorflow/core/kernels"
"""Directory of the kernels in TensorFlow's source tree."""
_MOBILE: Final = frozenset({"android", "ios"})
_TOLD: Final = 3
_LIBRARIES: Final = {
    TF115: "//tensorflow/core:android_tensorflow_lib",
    NEWEST: "//tensorflow/core:portable_tensorflow_lib",
}
EXTENDED_GROUPS: Final = {
    TF115: "android_extended_ops_group2",
    NEWEST: "portable_extended_ops_group2",
}
"""Filegroup of additional kernel files in Bazel's build of each release."""


def build_fragments(
    ops: Iterable[OpKernel],
    release: str,
    platform: str,
    abis: Collection[str] = (),
    *,
    custom_ops: Collection[str] = (),
    custom_sources: Collection[str] = (),
) -> dict[str, str]:
    """Return the build files for an ``ops_to_register.h``: names and contents.

    - ``selective_registration.bazelrc``: flags, as a Bazel configuration.
    - ``selective_registration.bzl``: kernel files to compile, and those to add to the build.
    - ``selective_registration.mk`` and ``tf_op_files.txt``: the same for the makefile build of
      TensorFlow 1.15.

    Args:
        release: "1.15" or "2.21".
    """
    target = platform_named(platform)
    requested = target.abis_named(abis)
    pairs = sorted(set(ops), key=lambda pair: (pair.op, pair.kernel or ""))
    own = sorted(custom_sources)
    files = kernel_files((pair.op for pair in pairs if pair.op not in custom_ops), release)
    reasons = _reasons(files, pairs)
    fragments = {
        "selective_registration.bazelrc": _bazelrc(release, target, requested),
        "selective_registration.bzl": _bzl(release, files, reasons, own),
    }
    if release == TF115:
        fragments["selective_registration.mk"] = makefile_fragment(
            target,
            requested,
            COMPILER_FLAGS,
            [
                f"# Copy ops_to_register.h to {header_folder(TF115)}/",
                *([f"# Copy {' '.join(own)} from custom_ops/ to {KERNELS}/"] if own else []),
                *_added_note(files),
            ],
            [*_unplaced_note(files), *_why(reasons)],
        )
        fragments["tf_op_files.txt"] = _op_files(files, {pair.op for pair in pairs}, own)
    return fragments


def header_folder(release: str) -> str:
    """Return the directory for ``ops_to_register.h`` in TensorFlow's source tree."""
    return "tensorflow/core/framework" + ("" if release == TF115 else "/registration")


def _bazelrc(release: str, platform: Platform, abis: Sequence[Abi]) -> str:
    mobile = platform.name in _MOBILE
    # TensorFlow 1.15 has no configurations for embedded Linux.
    options = [f"{abi.bazel} " for abi in abis] if mobile or release != TF115 else []
    library = _LIBRARIES[release] if mobile else "//tensorflow:libtensorflow_cc.so"
    lines = [
        f"# TensorFlow {release} for {platform.name}, with the kernels of the model only.",
        f"# Copy ops_to_register.h to {header_folder(release)}/",
        "# and append this file to .bazelrc, then build in TensorFlow's directory:",
        *(f"#   bazel build -c opt --config=selective {o}{library}" for o in options or [""]),
        *(f"build:selective --copt={flag}" for flag in COMPILER_FLAGS),
        *(f"build:selective --linkopt={flag}" for flag in platform.link_flags),
    ]
    return text_of(lines)


def _bzl(release: str, files: KernelFiles, reasons: Mapping[str, str], own: Sequence[str]) -> str:
    group = EXTENDED_GROUPS[release]
    lines = [
        f'"""Sources below {KERNELS} that the model needs of TensorFlow {release}."""',
        "",
        "# Of the sources that the default mobile build compiles:",
        *_starlark_list("KERNEL_SRCS", files.kept, reasons),
        "",
        f"# Sources that it lacks: add them to the group {group} of {KERNELS}/BUILD.",
        *_starlark_list("ADDED_KERNEL_SRCS", files.added, reasons),
        *_custom_sources(release, own),
        *_unplaced_note(files),
    ]
    return text_of(lines)


def _custom_sources(release: str, own: Sequence[str]) -> list[str]:
    if not own:
        return []
    copied = f"Sources of the app's own ops: copy them from custom_ops/ to {KERNELS}/,"
    return [
        "",
        f"# {copied}",
        f"# and add them to the group {EXTENDED_GROUPS[release]} of {KERNELS}/BUILD.",
        "CUSTOM_OP_SRCS = [",
        *(f'    "{name}",' for name in own),
        "]",
    ]


def _op_files(files: KernelFiles, ops: Collection[str], own: Sequence[str]) -> str:
    """Return the makefile's list of sources, which cannot contain comments."""
    kernels = sorted({*files.kept, *files.added, *own})
    return text_of([*(f"{KERNELS}/{file}" for file in kernels), *makefile_sources(ops)])


def _why(reasons: Mapping[str, str]) -> list[str]:
    head = "# Why each file is in tf_op_files.txt, which takes no comments itself:"
    return [head, *(f"#   {file}: {reason}" for file, reason in reasons.items())]


def _added_note(files: KernelFiles) -> list[str]:
    if not files.added:
        return []
    note = "# The default build lacks these; add the tensorflow/core/ops file of their ops as well:"
    return [note, f"#   {' '.join(files.added)}"]


def _unplaced_note(files: KernelFiles) -> list[str]:
    if not files.unplaced:
        return []
    note = "# The tables name no file for these ops; should the linker miss them, add their own:"
    return [note, f"#   {' '.join(files.unplaced)}"]


def _reasons(files: KernelFiles, pairs: Iterable[OpKernel]) -> dict[str, str]:
    """Explain why each file is needed: by which ops or files, and with which kernels."""
    kernels: dict[str, list[str]] = {}
    for pair in pairs:
        kernels.setdefault(pair.op, []).extend([pair.kernel] if pair.kernel else [])
    reasons = {}
    for file, users in files.needed_by.items():
        texts = [_user(user, kernels) for user in users[:_TOLD]]
        more = f", and {len(users) - _TOLD} more" if len(users) > _TOLD else ""
        reasons[file] = f"needed by {', '.join(texts)}{more}" if texts else "any kernel may need it"
    return reasons


def _user(user: str, kernels: Mapping[str, Sequence[str]]) -> str:
    if user.endswith(".cc"):
        return user
    if user not in kernels:
        return f"{user} of the runtime"
    classes = kernels[user]
    more = f" and {len(classes) - _TOLD} more" if len(classes) > _TOLD else ""
    # The class name of an element-wise kernel includes its dtype, like most others.
    return f"{user}: {'; '.join(classes[:_TOLD])}{more}" if classes else user


def _starlark_list(name: str, items: Sequence[str], reasons: Mapping[str, str]) -> list[str]:
    return [f"{name} = [", *(f'    "{item}",  # {reasons[item]}' for item in items), "]"]
