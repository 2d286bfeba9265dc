"""The freeze stage: a trained model to a graph without variables, cut down to its outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mobileprep.errors import InvalidGraphError, RecipeError, UsageError
from mobileprep.formats.dtypes import dtype_from_text
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.guess import described, guess
from mobileprep.freezing.options import FreezeOptions, FreezeResult
from mobileprep.freezing.outputs import output_tensors
from mobileprep.freezing.source import LoadedSource, load_source
from mobileprep.fsio import place
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.files import write_graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.statistics import graph_statistics
from mobileprep.ir.verify import check_graph, check_tensors
from mobileprep.stages.assets import write_assets
from mobileprep.stages.base import Job, stage
from mobileprep.stages.interface import Interface, write_interface


@stage("freeze")
def run(job: Job) -> None:
    """Leaves graph, interface, facts and assets, the last below ``files/`` for the app too."""
    told = job.parameters
    choices: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in told["freeze"].items()
    }
    options = FreezeOptions(tuple(told["outputs"]), told["signature"] or "", **choices)
    result = _freeze(_load(job), options, job)
    check_graph(result.graph, job.place("source"))
    target = job.output("graph.pb")
    write_graph(target, result.graph)
    inputs = tuple(i["name"] for i in told["inputs"]) or result.inputs
    write_interface(job, Interface(inputs, result.outputs, result.init_ops))
    write_assets(job, {asset.name: asset.path for asset in result.assets})
    for asset in result.assets:
        place(asset.path, job.output(f"files/assets/{asset.name}"))
    statistics = graph_statistics(result.graph, target.stat().st_size)
    facts = {
        **dataclasses.asdict(statistics),
        "variables": len(result.variables),
        "warnings": list(result.warnings),
        "init_ops": list(result.init_ops),
        "assets": {asset.tensor: f"assets/{asset.name}" for asset in result.assets},
    }
    job.write_json("freeze.json", facts)


def _load(job: Job) -> LoadedSource:
    path, checkpoint = job.roots["graph"], job.roots.get("checkpoint")
    saver = job.roots.get("saver")
    kind = job.parameters["kind"]
    if kind == "meta_graph":
        return load_source(meta_graph=path, checkpoint=checkpoint, saver=saver)
    if kind == "saved_model":
        tags = job.parameters["tags"]
        return load_source(saved_model=path, checkpoint=checkpoint, saver=saver, tags=tags)
    return load_source(graph=path, checkpoint=checkpoint, saver=saver)


def _freeze(source: LoadedSource, options: FreezeOptions, job: Job) -> FreezeResult:
    """Freeze, with faults of what the recipe says put at their place in the recipe."""
    try:
        output_tensors(source, options)
    except UsageError as error:
        raise RecipeError(error.message, error.hint, job.place("outputs")) from error
    except InvalidGraphError as error:
        raise InvalidGraphError(error.message, error.hint, job.place("outputs")) from error
    result = freeze(source, options)
    inputs = job.parameters["inputs"]
    try:
        check_tensors(result.graph, [i["name"] for i in inputs], "input", job.place("inputs"))
    except InvalidGraphError as error:
        likely = described(guess(source).inputs)
        hint = " ".join(h for h in (error.hint, likely and f"likely inputs: {likely}") if h)
        raise InvalidGraphError(error.message, hint, error.where) from error
    nodes = {n.name: n for n in result.graph}
    for declared in inputs:
        name = parse_ref(declared["name"]).node
        nodes[name] = _with_declared(nodes[name], declared, job)
    return dataclasses.replace(result, graph=result.graph.with_nodes(nodes.values()))


def _with_declared(node: Node, declared: Mapping[str, Any], job: Job) -> Node:
    """The input node with the recipe's type checked, and its shape where that says more.

    Raises:
        InvalidGraphError: type or shape contradict the graph's.
    """
    if node.op != "Placeholder":
        return node
    found, wanted = node.attr_dtype("dtype"), declared["dtype"]
    if wanted and dtype_from_text(wanted) != found:
        message = f"the input {node.name!r} is {found.short} in the graph, not {wanted}"
        raise InvalidGraphError(message, f"write dtype: {found.short}", job.place("inputs"))
    if declared["shape"] is None:
        return node
    shape = _refined(node.attr_shape("shape"), tuple(declared["shape"]))
    if shape is None:
        message = (
            f"the input {node.name!r} has the shape {_told(node)} in the graph, "
            f"which {list(declared['shape'])} does not fit"
        )
        raise InvalidGraphError(message, "use the graph's sizes, -1 for any", job.place("inputs"))
    return node if shape == node.attr_shape("shape") else node.with_attrs(shape=attr.shape(shape))


def _refined(known: TensorShape, declared: tuple[int, ...]) -> TensorShape:
    """What two shapes say together, or None where they contradict each other."""
    if known is None:
        return declared
    if len(known) != len(declared):
        return None
    if any(-1 not in (a, b) and a != b for a, b in zip(known, declared, strict=True)):
        return None
    return tuple(max(a, b) for a, b in zip(known, declared, strict=True))


def _told(node: Node) -> str:
    shape = node.attr_shape("shape")
    return "of unknown rank" if shape is None else str(list(shape))
