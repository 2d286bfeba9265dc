"""Kernels, source files, and builds of TensorFlow's ops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrDef, AttrValue, OpDef
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import NEWEST, OLDER_OPS, RELEASES, TF115, op_def, op_names
from mobileprep.graph.opdefs.kernel_classes import KernelRow, default_list, kernel_rows, op_files
from mobileprep.graph.opdefs.release_gaps import WITHOUT_KERNEL
from mobileprep.graph.reachability import GATES
from mobileprep.litert.flex import can_be_flex
from mobileprep.litert.prepare import REPLACED_OPS
from mobileprep.litert.scope import find_lowering
from mobileprep.ops.kernel import find_context_kernel, find_kernel
from mobileprep.runtime.functions.inline import CALLS, FUNCTIONAL
from mobileprep.targets.build_files import ALL_TYPES, EXTENDED_GROUPS, KERNELS
from mobileprep.targets.headers import release_of
from mobileprep.targets.memmapped import reason_left_out
from mobileprep.targets.target_check import FEWER_SOURCES, FEWER_TYPES, type_left_out
from mobileprep.targets.targets import platform_named

LiteRT: TypeAlias = Literal["converted", "flex", "no"]

_GLOB: Final = re.compile(r"[*?\[]")
# Ops that the interpreter runs without a kernel.
_WITHOUT_KERNEL: Final = frozenset({"Const", *PLACEHOLDERS, *GATES, *CALLS, *FUNCTIONAL})
_OPS_FILE: Final = "the file of tensorflow/core/ops that defines the op"
_OWN_OP: Final = "register the op in the app, and declare it under `ops:` in the recipe"


class OpKernelFact(Struct, frozen=True):
    """A CPU kernel of an op.

    Args:
        kernel: class, as in the registration header.
        constraints: required types and attributes, such as ``T=DT_FLOAT``.
        label: value of the node's ``_kernel`` attribute that selects it; usually empty.
        is_default: whether the default build of the platform compiles it; None if unknown.
    """

    kernel: str
    constraints: tuple[str, ...]
    label: str
    is_default: bool | None


class OpFile(Struct, frozen=True):
    """A source file that registers kernels of an op.

    Args:
        file: path below the root of TensorFlow's sources.
        default_list: the list of the default mobile build that has it; empty if none has it.
    """

    file: str
    default_list: str


class OpFacts(Struct, frozen=True):
    """An op in a TensorFlow release.

    Args:
        op: name of the op.
        tensorflow: the release.
        platform: platform of the default build.
        exists: whether the release has the op.
        signature: inputs, outputs, and attributes.
        removed_at: GraphDef version from which the release rejects the op; 0 for never.
        kernels: its CPU kernels.
        files: source files with its kernels; empty if they are unknown.
        default_build: whether the default build of the platform has the op; None if unknown.
        litert: ``converted`` to LiteRT, ``flex`` for the Flex delegate, or ``no``.
        interpreter: whether mobileprep's interpreter runs the op.
        releases: all known releases that have the op.
        advice: how to get the op into a build, one sentence for each build system.
    """

    op: str
    tensorflow: str
    platform: str
    exists: bool
    signature: tuple[str, ...]
    removed_at: int
    kernels: tuple[OpKernelFact, ...]
    files: tuple[OpFile, ...]
    default_build: bool | None
    litert: LiteRT
    interpreter: bool
    releases: tuple[str, ...]
    advice: tuple[str, ...]


def op_facts(
    names: Sequence[str], *, tensorflow: str = TF115, platform: str = "android"
) -> tuple[OpFacts, ...]:
    """Return the kernels, source files, and builds of ops.

    Args:
        names: op names, or patterns such as ``*Pool*``.
        tensorflow: TensorFlow release, 1.15 or 2.21.
        platform: platform of the default build: android, ios, raspberry-pi, linux, or generic.

    Raises:
        UsageError: an op, or the release, does not exist.
        UnsupportedError: the platform does not exist.
    """
    release, place = release_of(tensorflow), platform_named(platform).name
    return tuple(_facts(op, release, place) for op in _matching(names))


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern of names."""
    return bool(_GLOB.search(name))


def _matching(names: Sequence[str]) -> list[str]:
    all_ops = sorted({op for release in RELEASES for op in op_names(release)})
    selected: dict[str, None] = {}
    for name in names:
        matches = [name]
        if is_pattern(name):
            # Names of internal ops start with an underscore.
            matches = [
                op for op in all_ops if fnmatchcase(op, name) and (op[0] != "_" or name[0] == "_")
            ]
        if not matches:
            message = f"no op matches {name!r}"
            raise UsageError(message, "quote the pattern, such as '*Pool*'")
        if matches == [name] and name not in all_ops:
            message = f"TensorFlow {' and '.join(RELEASES)} do not have an op {name!r}"
            raise UsageError(message, nearest_hint(name, all_ops) or _OWN_OP)
        selected.update(dict.fromkeys(matches))
    return list(selected)


def _facts(op: str, release: str, platform: str) -> OpFacts:
    definition = op_def(op, release)
    rows = kernel_rows(op, release)
    names, compiled = op_files(op, release)
    files = tuple(OpFile(_path(f), default_list(f, release)) for f in sorted(names))
    has_all = platform not in FEWER_SOURCES
    default = definition is not None and (
        op in WITHOUT_KERNEL or bool(rows and (has_all or compiled))
    )
    is_unknown = not names and bool(rows) and not has_all
    releases = tuple(r for r in RELEASES if op_def(op, r) is not None)
    kernels = tuple(_kernel(op, row, release, platform, default=default) for row in rows)
    return OpFacts(
        op,
        release,
        platform,
        definition is not None,
        () if definition is None else tuple(_signature(definition)),
        0 if definition is None else definition.deprecated_at,
        kernels,
        files,
        None if is_unknown else default,
        _litert(op),
        op in _WITHOUT_KERNEL or find_kernel(op) is not None or find_context_kernel(op) is not None,
        releases,
        tuple(_advice(op, release, releases, files, kernels, is_default=default)),
    )


def _path(file: str) -> str:
    return file.removeprefix("//") if file.startswith("//") else f"{KERNELS}/{file}"


def _kernel(op: str, row: KernelRow, release: str, platform: str, *, default: bool) -> OpKernelFact:
    constraints = [f"{name}={label}" for name, label in sorted(row.types.items())]
    constraints += [
        f"{name}={'|'.join(map(str, values))}" for name, values in sorted(row.attrs.items())
    ]
    compiled = default
    if default and platform in FEWER_TYPES and not row.label:
        compiled = not type_left_out(Node("", op, attrs=_types(row)), release)
    return OpKernelFact(row.kernel, tuple(constraints), row.label, compiled)


def _types(row: KernelRow) -> Mapping[str, AttrValue]:
    by_label = {dtype.label: dtype for dtype in DType}
    return {n: attr.dtype(by_label[label]) for n, label in row.types.items() if label in by_label}


def _litert(op: str) -> LiteRT:
    if op in REPLACED_OPS or find_lowering(op) is not None:
        return "converted"
    definition = op_def(op, NEWEST)
    is_flex = definition is not None and can_be_flex(definition) and kernel_rows(op, NEWEST)
    return "flex" if is_flex else "no"


def _signature(definition: OpDef) -> Iterator[str]:
    """Yield a line for each input, output, and attribute."""
    yield from (f"input {arg.name}: {_arg(arg)}" for arg in definition.inputs)
    yield from (f"output {arg.name}: {_arg(arg)}" for arg in definition.outputs)
    yield from (
        f"attribute {declared.name}: {_attribute(declared)}" for declared in definition.attrs
    )


def _arg(arg: ArgDef) -> str:
    if arg.type_list_attr:
        return f"list of {arg.type_list_attr}"
    kind = arg.type_attr or arg.dtype.short
    kind = f"{arg.number_attr} tensors of {kind}" if arg.number_attr else kind
    return f"{kind} (reference)" if arg.is_ref else kind


def _attribute(declared: AttrDef) -> str:
    text = declared.kind
    if declared.allowed is not None:
        text += f" in {_value(declared.allowed)}"
    if declared.minimum is not None:
        text += f", at least {declared.minimum}"
    return text if declared.default is None else f"{text} = {_value(declared.default)}"


def _value(value: AttrValue) -> str:
    items = value.value if isinstance(value.value, tuple | list) else (value.value,)
    texts = [_item(item) for item in items]
    return f"[{', '.join(texts)}]" if isinstance(value.value, tuple | list) else texts[0]


def _item(item: object) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    return item.short if isinstance(item, DType) else str(item)


def _advice(
    op: str,
    release: str,
    releases: Sequence[str],
    files: Sequence[OpFile],
    kernels: Sequence[OpKernelFact],
    *,
    is_default: bool,
) -> Iterator[str]:
    """Yield how to get an op into each kind of build."""
    if release not in releases:
        if op in OLDER_OPS and release == TF115:
            yield f"transform: `downgrade` replaces it with `{OLDER_OPS[op]}` where possible"
        yield from (f"release: build the app with TensorFlow {other}" for other in releases)
        return
    missing = [f.file for f in files] if files and not is_default else []
    yield (
        f'selective registration: a recipe with `registration: {{tensorflow: "{release}"}}` writes '
        "`ops_to_register.h`, and build files with the sources and types of the model"
    )
    if missing and reason_left_out(op) == "image library":
        yield "image library: mobile builds do not link it; decode images in the app instead"
    if is_default and not all(kernel.is_default for kernel in kernels):
        yield f"types: `{ALL_TYPES}` compiles the kernels of all types, also in these build files"
    if release == TF115:
        added = f"add {', '.join(missing)}, and {_OPS_FILE}, to" if missing else "no change to"
        yield f"make: {added} tensorflow/contrib/makefile/tf_op_files.txt"
    names = ", ".join(f'"{file.removeprefix(f"{KERNELS}/")}"' for file in missing)
    added = f"add {names} to" if missing else "no change to"
    yield f"Bazel: {added} the filegroup `{EXTENDED_GROUPS[release]}` in {KERNELS}/BUILD"
    yield (
        "Gradle, CocoaPods: published libraries cannot be extended; if one lacks the op, link your "
        "own build"
    )
