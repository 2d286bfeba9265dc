"""Local and remote caches."""

from __future__ import annotations

import random
from functools import lru_cache

from mobileprep.building.report.page.render import PAGE
from mobileprep.core.files import sha256_bytes
from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzz_format, weighted_choice
from tests.fuzz.damage import damaged_bytes
from tests.fuzz.formats.recipes import RECIPES, any_built_files, damaged_json
from tests.fuzz.limits import FOLDER

_VERBS = (
    (14, "build recipe.yaml"), (6, "build recipe.yaml --out=other"), (2, "verify out"),
    (14, "build recipe.yaml --dry-run"), (14, "plan recipe.yaml --json"),
    (12, "report recipe.yaml"), (6, "cache info"), (14, "cache verify"),
    (6, "cache gc --max-size=10KB"), (12, "clean recipe.yaml"),
)  # fmt: skip
_SHARED_VERBS = ((25, "build recipe.yaml"), (40, "build recipe.yaml --dry-run"),
                 (35, "plan recipe.yaml"))  # fmt: skip


def _damaged(data: bytes, rng: random.Random, *, sealed: bool) -> bytes:
    """Damage a cache entry; ``sealed`` updates the digest of a record."""
    digest, line, body = data.partition(b"\n")
    if sealed and line and len(digest) == 64 and body[:1] == b"{":
        body = damaged_json(body, rng)
        return sha256_bytes(body).encode() + b"\n" + body
    return damaged_bytes(data, rng)


def _expected(files: dict[str, bytes], command: str) -> dict[str, str]:
    """The digests of the outputs of a build; empty for other verbs."""
    if not command.startswith("build") or "--dry-run" in command:
        return {}
    out = "other/" if "other" in command else "out/"
    return {
        out + name.removeprefix("out/"): sha256_bytes(data)
        for name, data in files.items()
        if name.startswith("out/") and not name.endswith(PAGE)
    }


@fuzz_format("store")
def store(rng: random.Random) -> Case:
    """A local cache."""
    valid = any_built_files(rng)
    files, sealed = dict(valid), rng.random() < 0.5
    names = [n for n in files if n.startswith("store/") and files[n]]
    chosen = rng.sample(names, rng.choice((1, 1, 3, len(names))))
    for name in chosen:
        if rng.random() < 0.1:
            del files[name]
        else:
            files[name] = _damaged(files[name], rng, sealed=sealed)
    if rng.random() < 0.5:  # so that the build reads cached objects
        files = {n: d for n, d in files.items() if not n.startswith("out/")}
    command, damaged = weighted_choice(rng, _VERBS), tuple(n for n in chosen if n in files)
    # A record with a correct digest is trusted.
    expected = {} if sealed else _expected(valid, command)
    return Case(tuple(command.split()), files, damaged, expected=expected)


_REMOTE = {"MOBILEPREP_REMOTE_CACHE": f"file://{FOLDER}/shared"}


@lru_cache(maxsize=3)
def _shared(recipe: str) -> dict[str, bytes]:
    files = {**seeds.recipe_files(recipe), "shared/.here": b""}
    outputs = seeds.run_commands(files, "build recipe.yaml", **_REMOTE)
    return {name: data for name, data in outputs.items() if not name.startswith("store/")}


@fuzz_format("remote")
def remote(rng: random.Random) -> Case:
    """A remote cache in a directory."""
    valid, sealed = _shared(weighted_choice(rng, RECIPES)), rng.random() < 0.4
    files = {name: data for name, data in valid.items() if not name.startswith("out/")}
    names = [n for n in files if n.startswith("shared/") and files[n]]
    chosen = rng.sample(names, rng.choice((1, 1, 3, len(names))))
    for name in chosen:
        files[name] = _damaged(files[name], rng, sealed=sealed)
    command = weighted_choice(rng, _SHARED_VERBS)
    expected = {} if sealed else _expected(valid, command)
    return Case(tuple(command.split()), files, tuple(chosen), _REMOTE, expected)
