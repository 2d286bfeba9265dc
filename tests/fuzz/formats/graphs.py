"""Binary and text graphs, for every verb that reads graphs."""

from __future__ import annotations

import random
from functools import lru_cache

from google.protobuf import text_format

from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.protos import saved_model_pb2 as sm
from mobileprep.ops.kernel import kernel_names
from mobileprep.transforms.base import transform_names
from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzz_format, weighted_choice
from tests.fuzz.damage import damaged_text
from tests.fuzz.messages import Damage, strings_in
from tests.transforms.busy import OPTIONS

_PLAIN = (
    "summarize --in_graph=G", "summarize --in_graph=G --print_structure --details --json",
    "dot --graph=G --dot_output=o.dot --shapes", "dot --graph=G --dot_output=o.svg --format=svg",
    "diff G valid.pb", "diff valid.pb G --json", "compare G valid.pb", "compare valid.pb G",
    "init G --no-try", "header --graphs=G", "header --graphs=G --tensorflow=2.21",
    "migrate G", "migrate G --json", "choose G valid.pb", "choose G --device=smartphone",
    "explain Op type not registered 'Erf' --model=G",
    "check-target G --output-format=sarif", "check-target G --output-format=github",
    "memmap --in_graph=G --out_graph=o.pb --min_conversion_size_in_bytes=1", "check-target G",
    "check-target G --json", "benchmark --graph=G --max_num_runs=1 --warmup_runs=0 LOOPS",
    "benchmark --graph=G --max_num_runs=1 --show_flops --show_memory --show_sizes --json LOOPS",
)  # fmt: skip
_LOOPS = ((99, "--max_iterations=1000"), (1, ""))
"""Damaged loops seldom end, and the default limit takes seconds."""


@lru_cache(maxsize=1)
def _vocabulary() -> tuple[str, ...]:
    return tuple(kernel_names())


def damaged_graph(rng: random.Random, valid: bytes) -> bytes:
    """Damage a graph, and serialize it as binary or text."""
    proto = pb.GraphDef.FromString(valid)
    words = (*strings_in(proto), *rng.choices(_vocabulary(), k=8))
    if rng.random() < 0.15:
        text = text_format.MessageToString(proto).encode()
        return damaged_text(text, rng, tuple(w.encode() for w in words))
    return Damage(rng, words).damaged(proto)


def graph_command(rng: random.Random, proto: pb.GraphDef) -> str:
    """A command on a graph ``G``."""
    kind, names = rng.random(), [x.name for x in proto.node if x.name.isalnum()] or ["y"]
    if kind < 0.01:
        return "init G"  # slow, since it builds the recipe
    if kind < 0.3:
        return rng.choice(_PLAIN).replace("LOOPS", weighted_choice(rng, _LOOPS))
    if kind < 0.6:
        fed = [x.name for x in proto.node if "Placeholder" in x.op and x.name.isalnum()]
        values = ("random", "1", "random:1,4,4,3", "[[1,2],[3,4]]", "text:a", "random:2")
        feeds = "".join(f" --feed={name}={rng.choice(values)}" for name in fed)
        fetch = "" if rng.random() < 0.3 else f" --fetch={rng.choice(names)}"
        return f"run --graph=G{feeds}{fetch} --seed=1 {weighted_choice(rng, _LOOPS)}"
    if kind < 0.7:
        lower = rng.choice(("keep", "lower"))
        name = rng.choice(names)
        freeze = f"freeze --input_graph=G --output_graph=o.pb --control_flow={lower}"
        return f"{freeze} --output_node_names={name}"
    return f"transform --in_graph=G --out_graph=o.pb --inputs=x --outputs={rng.choice(names)}"


def _transforms(rng: random.Random) -> str:
    chosen = rng.choices(
        [x for x in transform_names() if not x.startswith("_")], k=rng.randint(1, 3)
    )
    return " ".join(_call(name) for name in chosen)


def _call(name: str) -> str:
    options = OPTIONS.get(name, {})
    texts = (f"{k}={','.join(v) if isinstance(v, tuple) else v}" for k, v in options.items())
    texts = (f'{k}="{v}"' for k, v in (x.split("=", 1) for x in texts))
    return f"{name}({', '.join(texts)})" if options else name


@fuzz_format("graph")
def graph(rng: random.Random) -> Case:
    """A graph."""
    valid = seeds.any_graph(rng)
    data = damaged_graph(rng, valid)
    name = "g.pb" if rng.random() < 0.9 else "g.pbtxt"
    arguments = [a.replace("G", name) if a in ("G",) or a.endswith("=G") else a
                 for a in graph_command(rng, pb.GraphDef.FromString(valid)).split()]  # fmt: skip
    if arguments[0] == "transform":
        arguments.append(f"--transforms={_transforms(rng)}")
    return Case(tuple(arguments), {name: data, "valid.pb": valid}, (name,))


_FREEZE = "freeze --input_saved_model_dir=M --output_graph=o.pb"
_MODEL = (
    (2, "init M"), (10, "init M --no-try"), (10, _FREEZE),
    (10, f"{_FREEZE} --signature=serve --control_flow=lower"),
    (10, "summarize --in_graph=M"), (10, "summarize --in_graph=M --json"),
    (10, "run --graph=M --feed=x=random --max_iterations=1000"),
    (10, "benchmark --graph=M --max_num_runs=1 --max_iterations=1000"),
    (10, "diff M M"), (10, "check-target M"), (5, "migrate M"),
)  # fmt: skip
_META = (
    (2, "init m.meta"), (10, "init m.meta --no-try"), (10, "summarize --in_graph=m.meta"),
    (10, "diff m.meta m.meta"), (10, "check-target m.meta"),
    (10, "freeze --input_meta_graph=m.meta --output_graph=o.pb --output_node_names=y"),
    (10, "run --graph=m.meta --feed=x=random --max_iterations=1000"),
)  # fmt: skip


def _meta(valid: bytes) -> sm.MetaGraphDef:
    meta = sm.MetaGraphDef()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.ParseFromString(valid)
    names = [x.name for x in meta.graph_def.node]
    signature = meta.signature_def["serve"]
    signature.inputs["x"].name = f"{names[0]}:0"
    signature.outputs["y"].name = f"{names[-1]}:0"
    for info in (signature.inputs["x"], signature.outputs["y"]):
        info.dtype = pb.DT_FLOAT
        info.tensor_shape.dim.add().size = -1
    signature.method_name = "tensorflow/serving/predict"
    return meta


@fuzz_format("saved_model")
def saved_model(rng: random.Random) -> Case:
    """A SavedModel directory."""
    model = sm.SavedModel(saved_model_schema_version=1)
    model.meta_graphs.append(_meta(seeds.any_graph(rng)))
    data = Damage(rng, strings_in(model)).damaged(model)
    command = weighted_choice(rng, _MODEL).replace("=M", "=m").replace(" M", " m").split()
    files = {"m/saved_model.pb": data, "m/variables/variables.index": b""}
    for name in ("types.index", "types.data-00000-of-00001"):
        files[f"m/variables/{name.replace('types', 'variables')}"] = (
            seeds.GOLDEN / name
        ).read_bytes()
    return Case(tuple(command), files, ("m/saved_model.pb",))


@fuzz_format("meta_graph")
def meta_graph(rng: random.Random) -> Case:
    """A .meta file."""
    meta = _meta(seeds.any_graph(rng))
    data = Damage(rng, strings_in(meta)).damaged(meta)
    return Case(tuple(weighted_choice(rng, _META).split()), {"m.meta": data}, ("m.meta",))
