"""Memory-mapped and encrypted models."""

from __future__ import annotations

import random
from functools import lru_cache

from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzz_format
from tests.fuzz.damage import damaged_bytes

_VERBS = (
    "run --graph=M --feed=x=random", "benchmark --graph=M --max_num_runs=1",
    "summarize --in_graph=M",
    "header --graphs=M", "check-target M", "migrate M", "diff M valid", "compare valid M",
    "dot --graph=M --dot_output=o.dot",
    "transform --in_graph=M --out_graph=o.pb --inputs=x --outputs=y --transforms=fold_constants",
)  # fmt: skip


@lru_cache(maxsize=1)
def _models() -> dict[str, bytes]:
    more = "  locked: {platform: android, protect: {encrypt: {key: 'env:MODEL_KEY'}}}\n"
    memmap = "memmap --in_graph=model.pb --out_graph=m.mmap --min_conversion_size_in_bytes=1"
    files = seeds.recipe_files(seeds.VALIDATED + more)
    return seeds.run_commands(files, memmap, "build recipe.yaml")


def _case(rng: random.Random, valid: bytes, verbs: tuple[str, ...]) -> Case:
    command = rng.choice(verbs).replace("=M", "=m.bin").replace(" M", " m.bin")
    files = {"m.bin": damaged_bytes(valid, rng), "valid": valid}
    return Case(tuple(command.split()), files, ("m.bin",), {"MODEL_KEY": seeds.KEY})


@fuzz_format("mapped")
def mapped(rng: random.Random) -> Case:
    """A model in the memory-mapped format."""
    return _case(rng, _models()["m.mmap"], _VERBS)


@fuzz_format("encrypted")
def encrypted(rng: random.Random) -> Case:
    """An encrypted model, alone or in the output directory of a build."""
    files = {n: d for n, d in _models().items() if not n.startswith("store/")}
    name = next(n for n in files if n.endswith(".enc"))
    if rng.random() < 0.5:
        return _case(rng, files[name], _VERBS)
    files[name] = damaged_bytes(files[name], rng)
    verbs = (
        "verify out --quick",
        "report recipe.yaml",
        "plan recipe.yaml",
        "build recipe.yaml --dry-run",
    )
    return Case(tuple(rng.choice(verbs).split()), files, (name,), {"MODEL_KEY": seeds.KEY})
