"""ELF libraries of apps."""

from __future__ import annotations

import random

from tests.formats.elf_files import elf_library
from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzz_format
from tests.fuzz.damage import NUMBERS, damaged_bytes

_OPS = b"\0BiasAdd\0Const\0Conv2D\0MatMul\0Mean\0Placeholder\0Relu\0Softmax\0"
_VERBS = (
    "doctor --library=lib.so", "doctor --library=lib.so --graph=model.pb",
    "doctor --library=lib.so --graph=model.pb --json",
)  # fmt: skip


@fuzz_format("elf")
def elf(rng: random.Random) -> Case:
    """A library, usually with damaged headers."""
    wide = rng.random() < 0.7
    data = bytearray(elf_library(_OPS, machine=rng.choice((183, 40, 3, 62, 8)), wide=wide))
    headers = 64 + 2 * 56 if wide else 52 + 2 * 32
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        width = rng.choice((2, 4, 8))
        at = rng.randrange(4, headers - width) & ~1
        data[at : at + width] = (rng.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
    damaged = bytes(data) if rng.random() < 0.7 else damaged_bytes(bytes(data), rng)
    files = {"lib.so": damaged, "model.pb": seeds.recipe_files()["model.pb"]}
    return Case(tuple(rng.choice(_VERBS).split()), files, ("lib.so",))
