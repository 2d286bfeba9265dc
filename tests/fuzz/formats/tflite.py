"""``.tflite`` files, for every verb that reads graphs."""

from __future__ import annotations

import random
from functools import lru_cache

from tests.fuzz import flatbuffer, seeds
from tests.fuzz.case import Case, fuzz_format
from tests.fuzz.damage import damaged_bytes
from tests.fuzz.formats.graphs import damaged_graph

_VERBS = (
    "summarize --in_graph=M", "summarize --in_graph=M --details --json",
    "run --graph=M --feed=x=random --seed=1", "run --graph=M --feed=x=random:2,4,4,3 --seed=1",
    "run --graph=M --engine=litert --feed=x=1", "run --graph=M --print_signature",
    "compare M valid", "compare valid M", "compare model.pb M",
    "benchmark --graph=M --max_num_runs=1",
    "header --graphs=M", "check-target M", "diff M valid", "dot --graph=M --dot_output=o.dot",
    "init M --no-try", "migrate M", "tflite --in_graph=M --out_file=o.tflite",
)  # fmt: skip


@lru_cache(maxsize=1)
def _models() -> tuple[bytes, ...]:
    """A network with weights in several formats."""
    files = seeds.recipe_files()
    steps = [
        f"tflite --in_graph=model.pb --out_file={mode}.tflite --mode={mode}"
        for mode in ("float", "float16", "weights", "int4")
    ]
    outputs = seeds.run_commands(files, *steps)
    return tuple(data for name, data in outputs.items() if name.endswith(".tflite"))


@fuzz_format("tflite")
def tflite(rng: random.Random) -> Case:
    """A .tflite file."""
    valid = rng.choice(_models())
    data = flatbuffer.damaged(valid, rng) if rng.random() < 0.8 else damaged_bytes(valid, rng)
    arguments = [
        a.replace("M", "m.tflite") if a == "M" or a.endswith("=M") else a
        for a in rng.choice(_VERBS).split()
    ]
    files = {"m.tflite": data, "valid": valid, "model.pb": seeds.recipe_files()["model.pb"]}
    return Case(tuple(arguments), files, ("m.tflite",))


@fuzz_format("converted")
def converted(rng: random.Random) -> Case:
    """A graph for conversion to .tflite."""
    data = damaged_graph(rng, seeds.any_graph(rng))
    mode = rng.choice(("float", "float", "float16", "weights", "int4", "int8", "int16x8"))
    flex = rng.choice(("", "", " --flex"))
    shapes = rng.choice(("", "", " --input_shapes=1,4,4,3", " --input_shapes=-1"))
    command = f"tflite --in_graph=g.pb --out_file=o.tflite --mode={mode}{shapes}{flex}"
    return Case(tuple(command.split()), {"g.pb": data}, ("g.pb",))
