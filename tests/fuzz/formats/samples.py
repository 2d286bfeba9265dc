"""Sample files: arrays, records, tables, audio, and images."""

from __future__ import annotations

import random
from functools import lru_cache, partial

import numpy as np

from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from tests.data.made import tf_record
from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzz_format, weighted_choice
from tests.fuzz.damage import damaged_bytes, damaged_text
from tests.ops.examples import example, floats_of, integers_of, texts_of
from tests.ops.graphs import n, p
from tests.ops.pictures import encoded
from tests.ops.sounds import wav
from tests.transforms.graphs import node

_BUILDS = (
    (52, (seeds.VALIDATED, "validate .")),
    (10, (seeds.RECIPE, "validate .")),
    (30, (seeds.CALIBRATED, "calibrate recipe.yaml")),
    (4, (seeds.VALIDATED, "build recipe.yaml")),
    (1, (seeds.RECIPE, "build recipe.yaml")),
    (1, (seeds.RECIPE, "calibrate recipe.yaml")),
    (2, (seeds.RECIPE, "debug-quantization recipe.yaml")),
)
"""Recipes and verbs with weights: a build takes as long as ten calibrations."""
_SHAPES = ((), (0,), (1,), (6,), (6, 4, 4, 3), (2, 4, 4, 3), (4, 4, 3), (6, 1, 1, 1), (6, 5, 5, 3))
_TYPES = ("f4", "f8", "u1", "i8", "S3", "U3", "?", "c8", "f2", "M8[s]", ">f4")


def _recipe_case(rng: random.Random, data: str, files: dict[str, bytes]) -> Case:
    """A recipe that reads damaged sample files."""
    recipe, command = weighted_choice(rng, _BUILDS)
    text = recipe.replace("{data: data.npz", f"{{data: {data}").encode()
    valid = {n: d for n, d in seeds.recipe_files().items() if n != "data.npz"}
    return Case(tuple(command.split()), {**valid, "recipe.yaml": text, **files}, tuple(files))


def _array(rng: random.Random) -> np.ndarray:
    values = rng.choice((0, 1, np.nan, np.inf, -1e38, 7))
    with np.errstate(all="ignore"):
        kind = rng.choice(_TYPES)
        if kind[0] in "SUM?c":
            return np.zeros(rng.choice(_SHAPES), kind)
        return np.full(rng.choice(_SHAPES), values if kind[-2] == "f" else 1).astype(kind)


@fuzz_format("npz")
def npz(rng: random.Random) -> Case:
    """An archive of arrays."""
    arrays = seeds.data()
    if rng.random() < 0.5:
        arrays[rng.choice(("x", "label", "other"))] = _array(rng)
    if rng.random() < 0.1:
        del arrays[rng.choice(sorted(arrays))]
    data = seeds.archive(arrays)
    if rng.random() < 0.6:
        data = damaged_bytes(data, rng)
    if rng.random() < 0.6:
        return _recipe_case(rng, "data.npz", {"data.npz": data})
    files = {"model.pb": seeds.recipe_files()["model.pb"], "data.npz": data}
    commands = ((95, "run --graph=model.pb --feed=x=data.npz"),
                (5, "init model.pb --data=data.npz"))  # fmt: skip
    return Case(tuple(weighted_choice(rng, commands).split()), files, ("data.npz",))


@lru_cache(maxsize=1)
def _records() -> list[bytes]:
    arrays = seeds.data()
    return [
        example(
            x=floats_of(*arrays["x"][at].reshape(-1).tolist()),
            raw=texts_of(arrays["x"][at].tobytes()),
            image=texts_of(encoded(np.full((4, 4, 3), at, np.uint8), "PNG")),
            label=integers_of(at % 3),
        )
        for at in range(6)
    ]


@fuzz_format("tfrecord")
def tfrecord(rng: random.Random) -> Case:
    """Records with correct or wrong checksums."""
    records = list(_records())
    for at in rng.sample(range(6), rng.choice((0, 1, 1, 6))):
        records[at] = damaged_bytes(records[at], rng)
    data = tf_record(records)
    if rng.random() < 0.4:
        data = damaged_bytes(data, rng)
    reading = rng.choice(
        ("{key: x}", "{key: raw, encoding: raw}", "{key: image, encoding: picture}")
    )
    source = f"{{tfrecord: d.tfrecord, features: {{x: {reading}}}, labels: label}}"
    return _recipe_case(rng, source, {"d.tfrecord": data})


@fuzz_format("csv")
def csv(rng: random.Random) -> Case:
    """A CSV table."""
    columns = [f"c{i}" for i in range(48)]
    lines = [",".join([*columns, "label"])]
    lines += [",".join([*(str(i * r % 5 / 4) for i in range(48)), str(r % 3)]) for r in range(6)]
    text = damaged_text("\n".join(lines).encode() + b"\n", rng, (b",", b'"', b"\r", b"\n", b";"))
    source = f"{{csv: d.csv, inputs: {{x: [{', '.join(columns)}]}}, labels: label}}"
    return _recipe_case(rng, source, {"d.csv": text})


@lru_cache(maxsize=1)
def _audio_model() -> bytes:
    return graph_to_bytes(Graph([p("x", np.float32, (-1, 8, 1)), node("y", "Neg", "x")]))


@lru_cache(maxsize=1)
def _decoder(op: str) -> bytes:
    attrs = {"channels": 3} if op != "DecodeWav" else {"desired_channels": -1}
    return graph_to_bytes(Graph([p("x", np.object_, ()), n("y", op, "x", **attrs)]))


@fuzz_format("wav")
def sound(rng: random.Random) -> Case:
    """A WAV file."""
    samples = np.arange(rng.choice((0, 1, 8, 100)) * 2).reshape(-1, 2)
    data = damaged_bytes(wav(samples, width=rng.choice((1, 2, 4))), rng)
    commands = ("run --graph=m.pb --feed=x=s.wav", "run --graph=d.pb --feed=x=s.wav",
                "benchmark --graph=d.pb --max_num_runs=1 --input_layer=x")  # fmt: skip
    files = {"m.pb": _audio_model(), "d.pb": _decoder("DecodeWav"), "s.wav": data}
    return Case(tuple(rng.choice(commands).split()), files, ("s.wav",))


def _image_case(rng: random.Random, kind: str, op: str) -> Case:
    shape = rng.choice(((4, 4, 3), (1, 1, 3), (9, 7, 3), (4, 4)))
    data = damaged_bytes(
        encoded(np.arange(np.prod(shape), dtype=np.uint8).reshape(shape), kind), rng
    )
    name = f"a.{kind.lower()}"
    if rng.random() < 0.3:
        photos = {f"photos/{i}/{name}": data for i in "ab"}
        return _recipe_case(rng, "{pictures: photos, labels: folders}", photos)
    files = {"model.pb": seeds.recipe_files()["model.pb"], "d.pb": _decoder(op), name: data}
    commands = (f"run --graph=model.pb --feed=x={name}", f"run --graph=d.pb --feed=x={name}",
                f"run --graph=model.pb --image={name} --input_layer=x")  # fmt: skip
    return Case(tuple(rng.choice(commands).split()), files, (name,))


for _name, _op in (
    ("png", "DecodePng"),
    ("jpeg", "DecodeJpeg"),
    ("gif", "DecodeImage"),
    ("bmp", "DecodeBmp"),
):
    fuzz_format(_name)(partial(_image_case, kind=_name.upper(), op=_op))
