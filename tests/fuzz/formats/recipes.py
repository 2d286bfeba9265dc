"""Recipes, range files, lock files, and manifests."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from pathlib import Path

from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzz_format, weighted_choice
from tests.fuzz.damage import ODD_STRINGS, damaged_bytes, damaged_text

_WORDS = tuple(
    w.encode()
    for w in (
        *("quantize", "nodes", "weights", "observed", "dynamic", "protect", "encrypt", "obfuscate"),
        *("memmapped", "registration", "tensorflow", "range_file", "percentile", "plugins"),
        *("cache", "extends", "matrix", "variables", "max_drop", "at_least", "budget"),
        *("integration", "swift"),
        *("source", "checkpoint", "saved_model", "graph", "sha256", "compress", "labels", "auto"),
        *("$HOME", "${X}", "&a", "*a", "<<", "!!python/object", "| ", "env:X", "/dev/zero", "."),
    )
)
_VERBS = (
    "validate recipe.yaml", "plan recipe.yaml", "build recipe.yaml --dry-run", "validate . --json",
    "build recipe.yaml", "calibrate recipe.yaml", "clean recipe.yaml", "lock recipe.yaml",
    "report recipe.yaml", "debug-quantization recipe.yaml", "plan recipe.yaml --json",
    "device script recipe.yaml",
)  # fmt: skip


RECIPES = ((3, seeds.RECIPE), (25, seeds.VALIDATED), (72, seeds.PLAIN))
"""With weights: the recipe with all stages takes five times as long as the last."""


@lru_cache(maxsize=1)
def _strings() -> tuple[bytes, ...]:
    root = Path(__file__).parents[3]
    recipes = [p.read_bytes() for p in sorted(root.glob("recipes/*/recipe.yaml"))]
    return (*recipes, *[seeds.RECIPE.encode()] * 3)


@fuzz_format("recipe")
def recipe(rng: random.Random) -> Case:
    """A recipe."""
    text = damaged_text(rng.choice(_strings()), rng, _WORDS)
    files = {**seeds.recipe_files(), "recipe.yaml": text}
    return Case(tuple(rng.choice(_VERBS).split()), files, ("recipe.yaml",))


@lru_cache(maxsize=2)
def _calibrated_files(recipe: str) -> dict[str, bytes]:
    text = recipe.replace("min_max}", "min_max, range_file: ranges.yaml}")
    return _without_store(seeds.run_commands(seeds.recipe_files(text), "calibrate recipe.yaml"))


def _without_store(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.startswith("store/")}


@fuzz_format("ranges")
def ranges(rng: random.Random) -> Case:
    """A range file."""
    files = _calibrated_files(weighted_choice(rng, ((5, seeds.RECIPE), (95, seeds.CALIBRATED))))
    text = damaged_text(files["ranges.yaml"], rng)
    verbs = ((5, "build recipe.yaml"), (10, "calibrate recipe.yaml --check"),
             (45, "plan recipe.yaml"), (40, "validate ."))  # fmt: skip
    command = weighted_choice(rng, verbs)
    return Case(tuple(command.split()), {**files, "ranges.yaml": text}, ("ranges.yaml",))


@lru_cache(maxsize=3)
def _locked_files(recipe: str) -> dict[str, bytes]:
    return _without_store(seeds.run_commands(seeds.recipe_files(recipe), "lock recipe.yaml"))


@fuzz_format("lock")
def lock(rng: random.Random) -> Case:
    """A lock file."""
    files = _locked_files(weighted_choice(rng, RECIPES))
    text = damaged_text(files["mobileprep.lock"], rng)
    verbs = ((10, "build . --locked"), (40, "build . --locked --dry-run"), (20, "lock ."),
             (15, "plan ."), (15, "build . --dry-run"))  # fmt: skip
    files = {**files, "mobileprep.lock": text}
    return Case(tuple(weighted_choice(rng, verbs).split()), files, ("mobileprep.lock",))


@lru_cache(maxsize=3)
def built_files(recipe: str) -> dict[str, bytes]:
    """A recipe with its outputs and its cache."""
    return seeds.run_commands(seeds.recipe_files(recipe), "build recipe.yaml")


def any_built_files(rng: random.Random) -> dict[str, bytes]:
    """A random recipe with its outputs and its cache; seldom the one with all stages."""
    return built_files(weighted_choice(rng, RECIPES))


@fuzz_format("manifest")
def manifest(rng: random.Random) -> Case:
    """A manifest or a report of a build."""
    files = _without_store(any_built_files(rng))
    kinds = (".json", ".txt", ".yaml", ".html")
    names = [n for n in files if n.startswith("out/") and n.endswith(kinds)]
    name = rng.choice(names)
    is_page = name.endswith(".html")  # too long to search for words
    damage = damaged_json if name.endswith(".json") else damaged_bytes if is_page else damaged_text
    files[name] = damage(files[name], rng)
    verbs = ((25, "verify out --quick"), (4, "verify out"), (5, "report out/small"),
        (5, "report recipe.yaml --compare=out/small"), (15, "report recipe.yaml"),
             (15, "report recipe.yaml --json"), (13, "plan recipe.yaml"), (13, "clean recipe.yaml"),
             (15, "build recipe.yaml --dry-run"))  # fmt: skip
    return Case(tuple(weighted_choice(rng, verbs).split()), files, (name,))


def damaged_json(text: bytes, rng: random.Random) -> bytes:
    """Change values of JSON that stays well formed most of the time."""
    if rng.random() < 0.3:
        return damaged_text(text, rng)
    data = json.loads(text)
    slots: list[tuple[object, object]] = []
    _add_slots(data, slots)
    if not slots:
        return text
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(slots)
        odd = rng.choice(ODD_STRINGS).decode("utf-8", "replace")
        value = rng.choice((None, -1, 2**62, 1e308, [], {}, "", odd, True, [[]], {"a": {}}))
        if isinstance(container, dict) and key in container and rng.random() < 0.25:
            del container[key]
        elif isinstance(container, dict) or (isinstance(container, list) and key < len(container)):  # type: ignore[operator]
            container[key] = value  # type: ignore[index]
    return json.dumps(data).encode()


def _add_slots(data: object, slots: list[tuple[object, object]]) -> None:
    if isinstance(data, dict):
        slots += [(data, key) for key in data]
        for value in data.values():
            _add_slots(value, slots)
    elif isinstance(data, list):
        slots += [(data, i) for i in range(len(data))]
        for value in data:
            _add_slots(value, slots)
