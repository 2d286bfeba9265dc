"""Stores: a user's own, and one that machines share."""

from __future__ import annotations

import random
from functools import lru_cache

from mobileprep.fsio import sha256_bytes
from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzzed
from tests.fuzz.damage import damaged_bytes
from tests.fuzz.formats.recipes import built, damaged_json
from tests.fuzz.limits import FOLDER

_VERBS = (
    "build recipe.yaml", "build recipe.yaml --dry-run", "plan recipe.yaml --json",
    "report recipe.yaml", "cache info", "cache verify", "build recipe.yaml --out=other",
    "clean recipe.yaml", "verify out",
)  # fmt: skip


def _damaged(data: bytes, rng: random.Random) -> bytes:
    """A record with a digest that fits, or any bytes that do not."""
    digest, line, body = data.partition(b"\n")
    if line and len(digest) == 64 and body[:1] == b"{" and rng.random() < 0.7:
        body = damaged_json(body, rng)
        return sha256_bytes(body).encode() + b"\n" + body
    return damaged_bytes(data, rng)


@fuzzed("store")
def store(rng: random.Random) -> Case:
    """A user's own store."""
    files = dict(built())
    names = [n for n in files if n.startswith("store/") and files[n]]
    chosen = rng.sample(names, rng.choice((1, 1, 3, len(names))))
    for name in chosen:
        if rng.random() < 0.1:
            del files[name]
        else:
            files[name] = _damaged(files[name], rng)
    if rng.random() < 0.5:  # so that the build has to look at its objects
        files = {n: d for n, d in files.items() if not n.startswith("out/")}
    return Case(tuple(rng.choice(_VERBS).split()), files, tuple(n for n in chosen if n in files))


_REMOTE = {"MOBILEPREP_REMOTE_CACHE": f"file://{FOLDER}/shared"}


@lru_cache(maxsize=1)
def _shared() -> dict[str, bytes]:
    made = seeds.made_by(
        {**seeds.recipe_files(), "shared/.here": b""}, "build recipe.yaml", **_REMOTE
    )
    return {n: d for n, d in made.items() if not n.startswith(("store/", "out/"))}


@fuzzed("remote")
def remote(rng: random.Random) -> Case:
    """A store that machines share, in a folder: each of its files is an answer."""
    files = dict(_shared())
    names = [n for n in files if n.startswith("shared/") and files[n]]
    chosen = rng.sample(names, rng.choice((1, 1, 3, len(names))))
    for name in chosen:
        files[name] = _damaged(files[name], rng)
    verbs = ("build recipe.yaml", "build recipe.yaml --dry-run", "plan recipe.yaml")
    return Case(tuple(rng.choice(verbs).split()), files, tuple(chosen), _REMOTE)
