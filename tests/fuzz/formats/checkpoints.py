"""Checkpoints of both versions, with checksums of the damaged blocks."""

from __future__ import annotations

import random

from google.protobuf.message import DecodeError

from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.protos import graph_pb2 as graphs
from mobileprep.formats.sstable import SortedTable
from tests.formats.checkpoint_writer import masked, table
from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzz_format
from tests.fuzz.damage import damaged_bytes
from tests.fuzz.messages import Damage

_FOOTER = 48
"""Bytes."""


def entries_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of a valid table."""
    return [(key, bytes(value)) for key, value in SortedTable(memoryview(data), "a table")]


def resealed(data: bytes, rng: random.Random) -> bytes:
    """Damage a block of a table, and update its checksum."""
    out = bytearray(data)
    size = rng.randrange(8, max(len(data) - _FOOTER, 9))
    start = rng.choice((0, rng.randrange(max(len(data) - size, 1))))
    block = damaged_bytes(bytes(out[start : start + size]), rng, 1)[:size]
    out[start : start + len(block)] = block
    end = start + len(block)
    if end + 5 <= len(out):
        out[end + 1 : end + 5] = masked(bytes(out[start : end + 1]))
    return bytes(out)


def _entry(key: bytes, value: bytes, rng: random.Random, kind: type) -> bytes:
    message = kind()
    try:
        message.ParseFromString(value)
    except DecodeError:  # already damaged
        return damaged_bytes(value, rng)
    return Damage(rng, ("x", "cut", key.decode("latin-1"))).damaged(message)


def _damaged_table(data: bytes, rng: random.Random, kind: type, first: type) -> bytes:
    entries = entries_of(data)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(entries))
        key, value = entries[at]
        choice = rng.random()
        if choice < 0.7:
            entries[at] = key, _entry(key, value, rng, kind if key else first)
        elif choice < 0.85:
            entries[at] = damaged_bytes(key, rng, 1), value
        else:
            del entries[at]
            entries = entries or [(b"", b"")]
    if rng.random() < 0.9:
        entries.sort()
    return table(entries, per_block=rng.choice((1, 8)), method=rng.choice((0, 1)))


_COMMANDS = (
    "init g.pb --checkpoint=P", "run --graph=g.pb --checkpoint=P", "summarize --in_graph=P",
    "freeze --input_graph=g.pb --input_checkpoint=P --output_graph=o.pb --output_node_names=y",
    "summarize --in_graph=g.pb --checkpoint=P", "init P", "init .",
)  # fmt: skip


def _graph(names: list[tuple[str, int, list[int]]]) -> bytes:
    """A graph with a variable for each tensor."""
    graph = graphs.GraphDef()
    for name, dtype, shape in names:
        node = graph.node.add(name=name, op="VariableV2")
        node.attr["dtype"].type = dtype
        node.attr["shape"].shape.SetInParent()
        for size in shape:
            node.attr["shape"].shape.dim.add().size = size
    last = graph.node.add(name="y", op="NoOp")
    last.input.extend(f"^{name}" for name, _, _ in names)
    return graph.SerializeToString()


@fuzz_format("checkpoint_v2")
def checkpoint_v2(rng: random.Random) -> Case:
    """An index with its data files."""
    stem = rng.choice(("types", "cut"))
    files = {p.name: p.read_bytes() for p in sorted(seeds.GOLDEN.glob(f"{stem}.*"))}
    index = f"{stem}.index"
    tensors = []
    for key, value in entries_of(files[index]):
        if key and b"\x00" not in key:
            entry = pb.BundleEntryProto.FromString(value)
            tensors.append((key.decode(), entry.dtype, [d.size for d in entry.shape.dim]))
    kind, chosen = rng.random(), index
    if kind < 0.6:
        files[index] = _damaged_table(files[index], rng, pb.BundleEntryProto, pb.BundleHeaderProto)
    elif kind < 0.85:
        files[index] = resealed(files[index], rng)
    else:
        chosen = rng.choice(sorted(files))
        files[chosen] = damaged_bytes(files[chosen], rng)
    files["g.pb"] = _graph(tensors)
    return Case(_command(stem, rng), files, (chosen,))


@fuzz_format("checkpoint_v1")
def checkpoint_v1(rng: random.Random) -> Case:
    """Tables of version 1."""
    names = rng.choice((["old_types.ckpt"], [f"old_cut.ckpt-0000{i}-of-00002" for i in (0, 1)]))
    files = {n: (seeds.GOLDEN / n).read_bytes() for n in names}
    chosen = rng.choice(names)
    if rng.random() < 0.6:
        kind = pb.SavedTensorSlices
        files[chosen] = _damaged_table(files[chosen], rng, kind, kind)
    else:
        files[chosen] = resealed(files[chosen], rng)
    files["g.pb"] = _graph([(n, 1, [2, 3]) for n in ("floats", "cut", "x")])
    stem = names[0].split("-0")[0]
    return Case(_command(stem, rng), files, (chosen,))


def _command(stem: str, rng: random.Random) -> tuple[str, ...]:
    words = rng.choice(_COMMANDS).split()
    return tuple(f"./{stem}" if w == "P" else w.replace("=P", f"=./{stem}") for w in words)
