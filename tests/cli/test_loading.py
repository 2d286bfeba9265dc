"""``validate``, ``build``, and ``check-target`` agree on graphs that a target can load."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE
from mobileprep.graph.refs import parse_function_ref
from mobileprep.inspection.summarizing import summarize
from mobileprep.recipe.model import Target
from mobileprep.recipe.schemas import recipe_schema
from mobileprep.targets.headers import registration_header
from mobileprep.targets.migration.survey import migrate
from tests.cli.conftest import CommandResult, Run
from tests.transforms.graphs import const, node, placeholder

FLOAT = DType.FLOAT
POOL: dict[str, Any] = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "SAME"}
CONV: dict[str, Any] = {"strides": (1, 1, 1, 1), "padding": "SAME"}
RESIZE = {"half_pixel_centers": True, "align_corners": False}


def norm(**attrs: Any) -> tuple[Node, ...]:
    scales = (const(name, [1, 1, 1]) for name in "abcd")
    return (*scales, node("y", "FusedBatchNormV3", "x a b c d", U=FLOAT, **attrs))


def call(body: Node, output: str) -> Graph:
    """A graph with a conditional whose branches are a function with one node."""
    arg = ArgDef("x", FLOAT)
    signature = OpDef("Inner", (arg,), (ArgDef("r", FLOAT),))
    body = replace(body, inputs=tuple(parse_function_ref(str(ref)) for ref in body.inputs))
    inner = Function(signature, (body,), {"r": parse_function_ref(f"{body.name}:{output}:0")})
    types = AttrValue("list(type)", (FLOAT,))
    branches = dict.fromkeys(("then_branch", "else_branch"), AttrValue("func", FuncRef("Inner")))
    chosen = node("y", "StatelessIf", "c x", T=None, Tcond=DType.BOOL, Tin=types, Tout=types,
                  **branches)  # fmt: skip
    condition = node("c", "Greater", "s zero")
    whole = [placeholder(), const("axes", [0, 1, 2, 3], int), const("zero", 0.0)]
    whole += [node("s", "Sum", "x axes", Tidx=DType.INT64), condition, chosen]
    return Graph(whole, Library({"Inner": inner}))


@dataclass(frozen=True)
class Case:
    """A graph, its target, the reported problem, and the fix.

    Args:
        graph: nodes in addition to the placeholder `x`; `y` is the output.
        problem: a part of the message; empty if the graph loads.
        fix: the line of the hint that makes it load.
        release: TensorFlow release of the target.
        platform: platform of the target.
        transforms: transform chain.
        target: additional keys of the target.
    """

    graph: Graph | tuple[Node, ...]
    problem: str = ""
    fix: str = ""
    release: str = '"1.15"'
    platform: str = "android"
    transforms: str = "strip_unused_nodes"
    target: str = ""


DOWNGRADE = "- downgrade"
NEWER = 'registration: {tensorflow: "2.21"}'
ALLOW = "allow: ["
CASES = {
    "nothing newer": Case((node("y", "Relu", "x"),)),
    "an op of both releases": Case((node("y", "AddV2", "x x"),)),
    "an attribute of both releases": Case(
        (const("s", [4, 4], int), node("y", "ResizeBilinear", "x s", **RESIZE))
    ),
    "a default attribute": Case(
        (node("y", "MaxPool", "x", explicit_paddings=(), **POOL),),
        "does not know the attribute `explicit_paddings` of `MaxPool` (node `y`)",
        DOWNGRADE,
    ),
    "a default attribute of a convolution": Case(
        (
            const("w", [[[[1.0], [1.0], [1.0]]]]),
            node("y", "DepthwiseConv2dNative", "x w", explicit_paddings=(), **CONV),
        ),
        "does not know the attribute `explicit_paddings` of `DepthwiseConv2dNative` (node `y`)",
        DOWNGRADE,
    ),
    "an attribute that is used": Case(
        (node("y", "MaxPool", "x", **POOL | {"padding": "EXPLICIT"}, explicit_paddings=(1,) * 8),),
        "does not know the attribute `explicit_paddings=[1, 1, 1, 1, 1, 1, 1, 1]` of `MaxPool`",
        NEWER,
    ),
    "a value": Case(
        (node("y", "MaxPool", "x", **POOL | {"padding": "EXPLICIT"}),),
        "does not accept `padding=EXPLICIT` for `MaxPool` (node `y`)",
        NEWER,
    ),
    "a batch norm with its default factor": Case(
        norm(is_training=False, exponential_avg_factor=1.0),
        "does not know the attribute `exponential_avg_factor` of `FusedBatchNormV3` (node `y`)",
        DOWNGRADE,
    ),
    "a batch norm with another factor": Case(
        norm(is_training=True, exponential_avg_factor=0.5),
        "does not know the attribute `exponential_avg_factor=0.5` of `FusedBatchNormV3`",
        NEWER,
    ),
    "an op with an older equivalent": Case(
        (node("y", "BatchMatMulV3", "x x", T=None, Ta=FLOAT, Tb=FLOAT, Tout=FLOAT),),
        "does not have the op `BatchMatMulV3` (node `y`)",
        DOWNGRADE,
    ),
    "an op without one": Case(
        (node("y", "Xlog1py", "x x"),), "does not have the op `Xlog1py` (node `y`)", NEWER
    ),
    "an op that no release has": Case(
        (node("y", "FancyOp", "x", T=None),),
        "does not have the op `FancyOp` (node `y`)",
        'ops: {FancyOp: {kernel: "',
    ),
    "a graph for newer consumers": Case(
        Graph([placeholder(), node("y", "Relu", "x")], versions=Versions(1200, 900)),
        "TensorFlow 1.15 (GraphDef version 134) rejects a graph with `min_consumer=900`",
        DOWNGRADE,
    ),
    "a graph that names the consumer as bad": Case(
        Graph([placeholder(), node("y", "Relu", "x")], versions=Versions(1200, 0, (134,))),
        "rejects a graph with `bad_consumers=134`",
        NEWER,
    ),
    "a producer that is newer": Case(
        Graph([placeholder(), node("y", "Relu", "x")], versions=Versions(2474, 12))
    ),
    "an op that newer graphs may not have": Case(
        Graph(
            [
                placeholder(),
                *norm()[:4],
                node("y", "BatchNormWithGlobalNormalization", "x a b c d",
                     variance_epsilon=0.1, scale_after_normalization=True),
            ],
            versions=Versions(21),
        ),
        "rejects `BatchNormWithGlobalNormalization` in graphs of version 9 and newer (node `y`)",
        ALLOW,
    ),
    "an op removed after 1.15": Case(
        (node("y", "CompareAndBitpack", "x x"),),
        "TensorFlow 2.21 does not have the op `CompareAndBitpack` (node `y`)",
        'registration: {tensorflow: "1.15"}',
        release='"2.21"',
    ),
    "two releases, one of which lacks an op": Case(
        (node("y", "Xlog1py", "x x"),),
        "TensorFlow 1.15 does not have the op `Xlog1py` (node `y`)",
        NEWER,
        release='["1.15", "2.21"]',
    ),
    "types without a kernel": Case(
        (node("y", "Where", "x", T=DType.QINT8),),
        "has no CPU kernel of `Where` for T=qint8 (node `y`)",
        ALLOW,
    ),
    "an image library": Case(
        (node("y", "DecodePng", "x", T=None, dtype=DType.UINT8),),
        "does not link the image library that `DecodePng` needs (node `y`)",
        ALLOW,
    ),
    "an image library where it is linked": Case(
        (node("y", "DecodePng", "x", T=None, dtype=DType.UINT8),), platform="linux"
    ),
    "an attribute in a function": Case(
        call(node("inner", "MaxPool", "x", explicit_paddings=(), **POOL), "output"),
        "does not know the attribute `explicit_paddings` of `MaxPool` (node `inner` of function "
        "`Inner`)",
        DOWNGRADE,
    ),
    "an op in a function": Case(
        call(node("inner", "Xlog1py", "x x"), "z"),
        "does not have the op `Xlog1py` (node `inner` of function `Inner`)",
        NEWER,
    ),
    "a chain that fixes it": Case(
        (node("y", "MaxPool", "x", explicit_paddings=(), **POOL),),
        transforms="strip_unused_nodes, downgrade",
    ),
    "a chain that removes the node": Case(
        (node("c", "CheckNumericsV2", "x", tensor_debug_mode=0), node("y", "Relu", "c")),
        transforms="{remove_nodes: {op: [CheckNumericsV2]}}",
    ),
    "a mapped model": Case(
        (node("y", "MaxPool", "x", explicit_paddings=(), **POOL),),
        "does not know the attribute `explicit_paddings` of `MaxPool` (node `y`)",
        DOWNGRADE,
        target="artifact: memmapped, ",
    ),
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("workdir")


def write(case: Case) -> str:
    graph = case.graph
    if not isinstance(graph, Graph):
        dtypes = {"DecodePng": DType.STRING, "Where": DType.QINT8}
        fed = placeholder("x", dtypes.get(graph[-1].op, FLOAT))
        graph = Graph([fed, *graph], versions=Versions(1200, 12))
    write_graph(Path("m.pb"), graph)
    text = f"""\
version: 1
name: m
source: {{frozen: m.pb}}
inputs: {{x: {{}}}}
outputs: [y]
transforms:
  - {case.transforms.replace(", ", chr(10) + "  - ")}
targets:
  t:
    {{platform: {case.platform}, {case.target}registration: {{tensorflow: {case.release}}}}}
"""
    Path("recipe.yaml").write_text(text)
    return text


def fixed(text: str, hint: str, fix: str) -> str:
    """The recipe with the fix from a hint."""
    if fix == DOWNGRADE:
        return text.replace("\ntargets:", f"\n  {fix}\ntargets:")
    if fix.startswith("ops:"):
        (line,) = re.findall(r"`(ops: .*?)`", hint)
        return text + line.replace(", source: FILE.cc", "") + "\n"
    line = next(x for x in re.findall(r"`(registration: .*?)`", hint) if fix in x)
    return re.sub(r"registration: \{.*?\}", line, text)


def verdict(run: Run) -> tuple[CommandResult, CommandResult]:
    """The results of ``validate`` and ``build``, which must have equal exit codes."""
    validated, built = run("validate", "recipe.yaml"), run("build", "recipe.yaml")
    assert validated.code == built.code, (validated.err, built.err)
    return validated, built


def check_targets(run: Run) -> list[int]:
    releases = [p.name.removeprefix("tensorflow-") for p in Path("out/m/t").glob("tensorflow-*")]
    flags = [[f"--tensorflow={release}"] for release in releases] or [[]]
    return [run("check-target", "out/m/t/m.pb", *flag).code for flag in flags]


@pytest.mark.parametrize("name", CASES)
def test_built_model_loads(name: str, run: Run) -> None:
    case = CASES[name]
    text = write(case)
    validated, built = verdict(run)
    if case.problem:
        assert built.code == 6
        assert case.problem in built.err
        assert case.problem in validated.err
        assert "recipe.yaml:10:" in built.err
        assert "recipe.yaml:10:" in validated.err
        hint = built.err.partition("help: ")[2]
        assert case.fix in hint
        assert "to ship it anyway, write `registration: {tensorflow: [" in hint
        Path("recipe.yaml").write_text(fixed(text, hint, case.fix))
        validated, built = verdict(run)
    assert built.code == 0, built.err
    if case.fix == ALLOW:
        assert "`allow` lists `" in validated.err
        assert "so the model ships, but TensorFlow " in built.err
        assert check_targets(run) == [1]
    else:
        assert "allow" not in built.err
        assert set(check_targets(run)) == {0}


def test_hint_counts_problems_that_downgrade_does_not_fix(run: Run) -> None:
    pool = node("p", "MaxPool", "x", explicit_paddings=(), **POOL)
    write(Case((pool, node("y", "Xlog1py", "p p"))))
    hint = run("build", "recipe.yaml").err.partition("help: ")[2]
    assert hint.startswith(
        "add `- downgrade` to the end of `transforms:`, which fixes all but 1 of them; "
        'build the app with TensorFlow 2.21: `registration: {tensorflow: "2.21"}`; '
    )
    assert "allow: [MaxPool, Xlog1py]}`" in hint


def test_long_problem_list_is_truncated(run: Run) -> None:
    nodes = [node("y", "Fancy0", "x")]
    nodes += [node(f"n{i}", f"Fancy{i}", "x") for i in range(1, 30)]
    added = node("z", "AddN", " ".join(n.name for n in nodes), N=30)
    write(Case((*nodes[1:], nodes[0].__class__("y", "Fancy0", added.inputs[1:]))))
    result = run("build", "recipe.yaml")
    assert result.code == 6
    assert result.err.count("does not have the op") == 20
    assert "and 10 more problems of this kind" in result.err


def test_unknown_transforms_turn_errors_into_warnings(run: Run) -> None:
    Path("own.py").write_text("raise SystemExit\n")
    Path("own.json").write_text('{"type": "object", "additionalProperties": false}')
    text = write(Case(CASES["a default attribute"].graph, transforms="own"))
    Path("recipe.yaml").write_text(text.replace("\ntargets:", "\nplugins: [own.py]\ntargets:"))
    result = run("validate", "recipe.yaml")
    assert result.code == 0, result.err
    assert "`MaxPool` (node `y`), unless own changes that; add `- downgrade`" in result.err


def test_custom_ops_cannot_be_run(run: Run) -> None:
    custom = "ops: {FancyOp: {kernel: FancyOp}}\n"
    text = write(CASES["an op that no release has"]) + custom
    Path("recipe.yaml").write_text(text)
    validated, built = verdict(run)
    assert built.code == 0
    assert "the model was not run: mobileprep has no kernel for FancyOp" in built.err
    Path("recipe.yaml").write_text(text + "check: true\n")
    validated, built = verdict(run)
    assert built.code == 6
    assert "`check` runs the model, and mobileprep has no kernel for FancyOp" in validated.err
    assert "leave out the steps of a build that run the model" in built.err


def test_declared_op_without_a_node_causes_a_warning(run: Run) -> None:
    text = write(CASES["nothing newer"])
    Path("recipe.yaml").write_text(text + "ops: {FancyOp: {kernel: FancyOp}}\n")
    result = run("validate", "recipe.yaml")
    assert result.code == 0
    assert "`ops` declares `FancyOp`, which the model does not have" in result.err


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ("{FancyOp: {source: a.cc}}", "the key 'kernel' is missing"),
        ("{fancy: {kernel: A}}", "the name of an op starts with a capital"),
        ('{FancyOp: {kernel: "A\\"B"}}', "a kernel class is a C++ class name"),
        ("{FancyOp: {kernel: A, source: [a/x.cc, b/x.cc]}}", "have the same file name"),
        ("{FancyOp: {kernel: A, source: none.cc}}", "no such file: 'none.cc'"),
    ],
)
def test_invalid_ops_are_reported_with_their_location(ops: str, message: str, run: Run) -> None:
    text = write(CASES["an op that no release has"])
    Path("recipe.yaml").write_text(f"{text}ops: {ops}\n")
    result = run("validate", "recipe.yaml")
    assert result.code in (3, 4)
    assert "recipe.yaml:11:" in result.err
    assert message in result.err


def test_default_release_is_consistent(run: Run) -> None:
    assert DEFAULT_RELEASE == "1.15"
    assert next(f.default for f in structs.fields(Target) if f.name == "registration") == ("1.15",)
    registration = recipe_schema()["$defs"]["target"]["properties"]["registration"]
    assert registration["properties"]["tensorflow"]["default"] == [DEFAULT_RELEASE]
    for function in (registration_header, summarize, migrate):
        assert inspect.signature(function).parameters["tensorflow"].default == DEFAULT_RELEASE
    for verb in ("check-target", "header", "init", "migrate", "summarize"):
        result = run("help", verb).out
        assert "--tensorflow RELEASE" in result
        assert re.search(rf"\[default:[^]]*{DEFAULT_RELEASE}\]", result)


def test_changed_op_source_is_published_again(run: Run) -> None:
    source = Path("fancy_op.cc")
    source.write_text("// one\n")
    text = write(CASES["an op that no release has"])
    Path("recipe.yaml").write_text(f"{text}ops: {{FancyOp: {{kernel: FancyOp, source: {source}}}}}")
    assert run("build", "recipe.yaml").code == 0
    source.write_text("// two\n")
    assert run("build", "recipe.yaml").code == 0
    assert Path("out/m/t/custom_ops/fancy_op.cc").read_text() == "// two\n"
    manifest = json.loads(Path("out/m/t/manifest.json").read_text())
    assert "fancy_op.cc" in manifest["sources"]
    assert manifest["settings"]["ops"][0]["kernels"] == ["FancyOp"]
    assert run("verify", "out").code == 0
