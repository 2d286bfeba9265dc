"""What this installation has for builds, and what it lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mobileprep import __version__
from mobileprep.api.cache import folder_bytes, shown_remote
from mobileprep.errors import MobileprepError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.remote.guarded import open_remote
from mobileprep.pipeline.remote.settings import remote_settings
from mobileprep.pipeline.store_folder import FORMAT, default_folder
from mobileprep.pipeline.upkeep import store_bound
from mobileprep.plan.engines import (
    LITERT,
    LITERT_INSTALL,
    LITERT_MODULE,
    OPTIONAL_ENGINES,
    engine_version,
)

_REQUIREMENT: Final = re.compile(r"([\w.-]+)\s*(?:>=\s*([\w.]+))?")
_RUNNING: Final = "running models in check, validation, run and benchmark"
_RUNNING_LITE: Final = "running .tflite files in validation, run, compare and benchmark"
# What each extra brings besides fsspec, and what for; engines tell how they are added.
_EXTRAS: Final = {
    "azure": ("adlfs", "a remote store at az://"),
    "completion": ("shtab", "completion of commands in bash, zsh and fish"),
    "crc32c": ("google-crc32c", "faster checksums of checkpoints"),
    "dask": ("distributed", "calibration on many machines"),
    "elf": ("pyelftools", "doctor --library"),
    "encrypt": ("cryptography", "encrypted models: `protect` in recipes"),
    "gcs": ("gcsfs", "a remote store at gs://"),
    "integration": ("jinja2", "code for apps: `integration` in recipes"),
    "image": ("pillow", "pictures as inputs, and the ops that decode them"),
    "narrow": ("ml_dtypes", "graphs with bfloat16, float8, or int4"),
    "remote": ("urllib3", "a remote store over HTTP"),
    "regex": ("google-re2", "graphs with regular expressions"),
    "s3": ("s3fs", "a remote store at s3://"),
    "tflite": ("flatbuffers", "files for LiteRT: the verb tflite, `artifact: tflite`"),
    "watch": ("watchfiles", "the verb watch"),
}


@dataclass(frozen=True)
class Required:
    """A package that this one cannot do without.

    Args:
        name: the package's.
        version: what is installed; null where it is missing.
        oldest: the oldest version that will do; empty where any will.
    """

    name: str
    version: str | None
    oldest: str


@dataclass(frozen=True)
class OptionalPackage:
    """What a package that may be added is for.

    Args:
        package: its name, or that of the engine.
        use: what it is for.
        version: what is installed; null where it is missing.
        install: how to add it.
    """

    package: str
    use: str
    version: str | None
    install: str


@dataclass(frozen=True)
class StorePlace:
    """The store of what builds have left.

    Args:
        folder: where it is.
        bytes: what its files take together.
        free_bytes: what is free there.
        writable: whether this user may write there.
        remote: the remote store that MOBILEPREP_REMOTE_CACHE names, its user and password
            left out; null for none.
    """

    folder: str
    bytes: int
    free_bytes: int
    writable: bool
    remote: str | None


@dataclass(frozen=True)
class Doctor:
    """What an installation has, and what is wrong with it.

    Args:
        mobileprep: the version.
        python: the version.
        required: the packages that builds need.
        features: the packages that may be added.
        store: the store.
        problems: what keeps builds from running, each with its mend; none where all is well.
    """

    mobileprep: str
    python: str
    required: tuple[Required, ...]
    features: tuple[OptionalPackage, ...]
    store: StorePlace
    problems: tuple[str, ...]


def doctor() -> Doctor:
    """Look at this installation; nothing is left behind, and no other machine asked."""
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
        yield OptionalPackage(f"engine {name}", _RUNNING, engine_version(name) or None, how)
    version = engine_version(LITERT_MODULE) or None
    yield OptionalPackage(f"engine {LITERT}", _RUNNING_LITE, version, LITERT_INSTALL)


def _required() -> Iterator[tuple[str, str]]:
    """The packages that this one needs, and the oldest version of each; none in a bare checkout."""
    try:
        listed = importlib.metadata.requires("mobileprep") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for text in sorted(listed):
        found = _REQUIREMENT.match(text)
        if found and "extra ==" not in text:
            yield found[1], found[2] or ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _lacking(required: tuple[Required, ...]) -> Iterator[str]:
    for package in required:
        mend = f"pip install '{package.name}>={package.oldest}'"
        if package.version is None:
            yield f"{package.name} is missing: {mend}"
        elif _numbers(package.version) < _numbers(package.oldest):
            yield f"{package.name} {package.version} is too old: {mend}"


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version, for comparison."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def _refusal(store: Path) -> str:
    """Why builds cannot write a store; empty where they can.

    It is tried: what rights say is not enough, as /proc grants them all to root and takes no files.
    """
    # A link that leads nowhere is in the way as well.
    folder = _first(store / FORMAT, os.path.lexists)
    if not folder.is_dir():
        return f"{folder} is no folder: set MOBILEPREP_CACHE to another"
    try:
        with tempfile.TemporaryDirectory(prefix=".mobileprep-", dir=folder) as made:
            Path(made, "file").write_bytes(b"0")
    except OSError as error:
        reason = error.strerror or error
        return f"{folder} cannot be written ({reason}): set MOBILEPREP_CACHE to another folder"
    return ""


def _refused_variables() -> Iterator[str]:
    """The variables of the store that every build refuses, as it reads them."""
    try:
        store_bound(os.environ)
    except MobileprepError as error:
        yield _told(error)
    try:
        open_remote(remote_settings(None, os.environ))
    except MobileprepError as error:
        yield _told(error)


def _told(error: MobileprepError) -> str:
    # The place may be an address with a password.
    return f"{shown_remote(error.where)}: {error.message}: {error.hint}"


def _first(path: Path, is_there: Callable[[Path], bool]) -> Path:
    """The path, or the first of the folders above it that is there."""
    return next(p for p in (path, *path.absolute().parents) if is_there(p))
