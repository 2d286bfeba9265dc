"""Check the installation for missing and optional requirements of builds."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep import __version__
from mobileprep.building.cache import folder_bytes, shown_remote
from mobileprep.building.pipeline.cache_files import FORMAT, default_folder
from mobileprep.building.pipeline.eviction import store_bound
from mobileprep.building.pipeline.remote.guarded import open_remote
from mobileprep.building.pipeline.remote.settings import remote_settings
from mobileprep.building.plan.engines import LITERT, OPTIONAL_ENGINES, engine_version
from mobileprep.errors import MobileprepError
from mobileprep.formats.shared_library import SharedLibrary, read_library, texts_in
from mobileprep.graph.files import read_shipped_graph

_REQUIREMENT: Final = re.compile(r"([\w.-]+)\s*(?:>=\s*([\w.]+))?")
_RUNNING: Final = "running models in calibration, check, validation, run, and benchmark"
_RUNNING_LITE: Final = f"{_RUNNING}; running .tflite files there and in compare"
# Package and purpose of each extra; engines describe their own installation.
_EXTRAS: Final = {
    "azure": ("adlfs", "a remote store at az://"),
    "completion": ("shtab", "completion of commands in bash, zsh and fish"),
    "crc32c": ("google-crc32c", "faster checksums of checkpoints"),
    "dask": ("distributed", "calibration on many machines"),
    "download": ("bsdiff4", "deltas from installed models: `download` in recipes"),
    "elf": ("pyelftools", "doctor --library"),
    "encrypt": ("cryptography", "encrypted models: `protect` in recipes"),
    "gcs": ("gcsfs", "a remote store at gs://"),
    "integration": ("jinja2", "code for apps: `integration` in recipes"),
    "image": ("pillow", "images as inputs, and ops that decode them"),
    "narrow": ("ml_dtypes", "graphs with bfloat16, float8, or int4"),
    "remote": ("urllib3", "a remote store over HTTP"),
    "regex": ("google-re2", "graphs with regular expressions"),
    "s3": ("s3fs", "a remote store at s3://"),
    "watch": ("watchfiles", "the verb watch"),
}


class Required(Struct, frozen=True):
    """A required package.

    Args:
        name: name of the package.
        version: installed version; null if it is missing.
        oldest: minimum version; empty if any version works.
    """

    name: str
    version: str | None
    oldest: str


class OptionalPackage(Struct, frozen=True):
    """An optional package and its purpose.

    Args:
        package: name of the package or the engine.
        use: features that need it.
        version: installed version; null if it is missing.
        install: command that installs it.
    """

    package: str
    use: str
    version: str | None
    install: str


class StorePlace(Struct, frozen=True):
    """The build cache.

    Args:
        folder: path of the cache.
        bytes: total size of its files.
        free_bytes: free space on its disk.
        writable: whether this user can write to it.
        remote: URL of the remote cache from MOBILEPREP_REMOTE_CACHE, without user and password;
            null if there is none.
    """

    folder: str
    bytes: int
    free_bytes: int
    writable: bool
    remote: str | None


class Doctor(Struct, frozen=True):
    """The state of an installation.

    Args:
        mobileprep: version of mobileprep.
        python: version of Python.
        required: required packages.
        features: optional packages.
        store: the build cache.
        problems: problems that prevent builds, each with its fix.
    """

    mobileprep: str
    python: str
    required: tuple[Required, ...]
    features: tuple[OptionalPackage, ...]
    store: StorePlace
    problems: tuple[str, ...]


def doctor() -> Doctor:
    """Check this installation without lasting changes or network access."""
    required = tuple(Required(name, _version(name), oldest) for name, oldest in _required())
    store = default_folder()
    refusal = _refusal(store)
    facts = StorePlace(
        str(store),
        folder_bytes(store),
        shutil.disk_usage(_first(store, os.path.exists)).free,
        not refusal,
        shown_remote(os.environ.get("MOBILEPREP_REMOTE_CACHE", "")),
    )
    return Doctor(
        __version__,
        platform.python_version(),
        required,
        tuple(_features()),
        facts,
        (*_lacking(required), *((refusal,) if refusal else ()), *_refused_variables()),
    )


def _features() -> Iterator[OptionalPackage]:
    for extra, (package, use) in _EXTRAS.items():
        yield OptionalPackage(package, use, _version(package), f"pip install 'mobileprep[{extra}]'")
    for name, how in OPTIONAL_ENGINES.items():
        use = _RUNNING_LITE if name == LITERT else _RUNNING
        yield OptionalPackage(f"engine {name}", use, engine_version(name) or None, how)


def _required() -> Iterator[tuple[str, str]]:
    """Yield the required packages and their minimum versions; nothing in a bare checkout."""
    try:
        listed = importlib.metadata.requires("mobileprep") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for text in sorted(listed):
        match = _REQUIREMENT.match(text)
        if match and "extra ==" not in text:
            yield match[1], match[2] or ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _lacking(required: tuple[Required, ...]) -> Iterator[str]:
    for package in required:
        hint = f"pip install '{package.name}>={package.oldest}'"
        if package.version is None:
            yield f"{package.name} is missing: {hint}"
        elif _numbers(package.version) < _numbers(package.oldest):
            yield f"{package.name} {package.version} is too old: {hint}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version for comparison."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def _refusal(store: Path) -> str:
    """Return why builds cannot write to the cache; empty if they can.

    This creates a temporary file, since permissions are not enough: /proc grants them all to root
    but does not accept files.
    """
    # A broken symlink is an obstacle too.
    folder = _first(store / FORMAT, os.path.lexists)
    if not folder.is_dir():
        return f"{folder} is not a directory: set MOBILEPREP_CACHE to another"
    try:
        with tempfile.TemporaryDirectory(prefix=".mobileprep-", dir=folder) as trial:
            Path(trial, "file").write_bytes(b"0")
    except OSError as error:
        reason = error.strerror or error
        return f"{folder} cannot be written ({reason}): set MOBILEPREP_CACHE to another folder"
    return ""


def _refused_variables() -> Iterator[str]:
    """Yield the errors of cache settings in environment variables, as a build would report them."""
    try:
        store_bound(os.environ)
    except MobileprepError as error:
        yield _error_text(error)
    try:
        open_remote(remote_settings(None, os.environ))
    except MobileprepError as error:
        yield _error_text(error)


def _error_text(error: MobileprepError) -> str:
    # The location may be a URL with a password.
    return f"{shown_remote(error.where)}: {error.message}: {error.hint}"


def _first(path: Path, is_there: Callable[[Path], bool]) -> Path:
    """Return the path itself or its nearest parent for which ``is_there`` is true."""
    return next(p for p in (path, *path.absolute().parents) if is_there(p))


PAGE: Final = 1 << 14
"""Largest page size of Android devices, in bytes (Android 15 and newer)."""
_WIDE: Final = 64
# Every TensorFlow library contains some of these ops and kernel classes.
_OPS: Final = frozenset({"Const", "Identity", "NoOp", "Placeholder", "_Recv", "_Send"})
_KERNELS: Final = frozenset({"ConstantOp", "IdentityOp", "PlaceholderOp"})


class LibraryFacts(Struct, frozen=True):
    """The properties and problems of a library.

    Args:
        file: path of the library.
        machine: processor architecture, as ELF names it.
        abi: Android's name of the architecture; empty if Android does not support it.
        alignment: minimum alignment of the segments in bytes.
        missing_ops: ops of the model whose names are not in the library, sorted.
        problems: problems that prevent loading the library or running the model, each with its fix.
    """

    file: str
    machine: str
    abi: str
    alignment: int
    missing_ops: tuple[str, ...]
    problems: tuple[str, ...]


def library_facts(
    library: str | os.PathLike[str], graph: str | os.PathLike[str] | None = None
) -> LibraryFacts:
    """Check a library, and whether it contains the ops of a graph.

    Args:
        library: path of the library.
        graph: path of the graph, if any.
    """
    path = Path(library)
    facts = read_library(path)
    ops: frozenset[str] = frozenset()
    if graph is not None:
        read = read_shipped_graph(Path(graph))
        bodies = (node for function in read.library.functions.values() for node in function.nodes)
        ops = frozenset(n.op for n in (*read, *bodies) if n.op not in read.library.functions)
    names = texts_in(path, facts, {*ops, *_OPS, *_KERNELS})
    missing = tuple(sorted(ops - names))
    alignment = min(facts.alignments)
    problems = (*_absence(names), *_problems(facts, alignment, missing))
    return LibraryFacts(str(path), facts.machine, facts.abi, alignment, missing, problems)


def _absence(names: Collection[str]) -> Iterator[str]:
    """Yield a problem for a library in which TensorFlow registers no ops or kernels."""
    if not _OPS & set(names):
        yield (
            "it holds no ops of TensorFlow: name the .so file that TensorFlow is linked into, and "
            "strip no strings from it"
        )
    elif not _KERNELS & set(names):
        yield (
            "it holds no kernels, only the names of ops: link TensorFlow's static libraries whole "
            "(-Wl,--whole-archive), and compile the kernels that ops_to_register.h lists"
        )


def _problems(library: SharedLibrary, alignment: int, missing: tuple[str, ...]) -> Iterator[str]:
    if library.abi and library.bits == _WIDE and alignment < PAGE:
        yield (
            f"a segment is aligned to {alignment:,} bytes, and devices with pages of {PAGE:,} "
            f"cannot load it: link with -Wl,-z,max-page-size={PAGE}"
        )
    if missing:
        yield (
            f"{len(missing)} ops of the model are not registered: {', '.join(missing)}; build it "
            "with the model's ops_to_register.h"
        )
