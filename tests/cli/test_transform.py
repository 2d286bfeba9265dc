"""``mobileprep transform``, a replacement for ``transform_graph``."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.core.declare import declared
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.transforms.base import transform_class, transform_names
from tests.building.stages.hostile import HOSTILE
from tests.building.stages.jobs import classifier, op
from tests.cli.conftest import Run
from tests.transforms.graphs import const, node, normal, placeholder

FLAGS = {"in_graph": "in.pb", "out_graph": "out.pb", "inputs": "x", "outputs": "y"}


@pytest.fixture(autouse=True)
def _folder(workdir: Path) -> None:
    graph = classifier()
    write_graph(Path("in.pb"), graph.with_nodes([*graph.nodes, op("unused", "Relu", "y")]))


def flags(*more: str, **changes: str) -> list[str]:
    return [f"--{k}={v}" for k, v in {**FLAGS, **changes}.items()] + list(more)


def spelled(style: str) -> list[str]:
    """The flags of one command line in different spellings."""
    pairs = {**FLAGS, "transforms": "strip_unused_nodes"}
    if style == "--in_graph=x":
        return [f"--{k}={v}" for k, v in pairs.items()]
    if style == "--in-graph=x":
        return [f"--{k.replace('_', '-')}={v}" for k, v in pairs.items()]
    if style == "--in_graph x":
        return [part for k, v in pairs.items() for part in (f"--{k}", v)]
    return [part for k, v in pairs.items() for part in (f"--{k.replace('_', '-')}", v)]


@pytest.mark.parametrize("style", ["--in_graph=x", "--in-graph=x", "--in_graph x", "--in-graph x"])
def test_flags_accept_all_spellings(run: Run, style: str) -> None:
    result = run("transform", *spelled(style))
    assert result.code == 0, result.err
    assert result.out == ""
    assert "strip_unused_nodes: 5 nodes (0 added, 1 removed, 0 changed)" in result.err
    assert "unused" not in read_graph(Path("out.pb"))


@pytest.mark.parametrize(
    "transforms",
    [
        "strip_unused_nodes remove_device",
        "  strip_unused_nodes()  remove_device  ",
        'strip_unused_nodes(type=float, shape="1,3")\nremove_device',
        "strip_unused_nodes\tremove_device",
    ],
)
def test_chains_are_parsed_like_the_original(run: Run, transforms: str) -> None:
    result = run("transform", *flags(transforms=transforms))
    assert result.code == 0, result.err
    assert result.err.count(" nodes (") == 2


@pytest.mark.parametrize(
    ("flag", "is_text"),
    [
        ("--output_as_text", True),
        ("--output-as-text=true", True),
        ("--output_as_text=1", True),
        ("--output_as_text=false", False),
        ("--output_as_text=0", False),
    ],
)
def test_output_as_text_writes_text(run: Run, flag: str, is_text: bool) -> None:
    assert run("transform", *flags(flag, transforms="remove_device")).code == 0
    assert Path("out.pb").read_bytes().startswith(b"node {") == is_text
    assert len(read_graph(Path("out.pb"))) == 6


def test_unknown_parameter_is_ignored_with_a_warning(run: Run) -> None:
    result = run("transform", *flags(transforms="remove_device(nope=1)"))
    assert result.code == 0
    assert "warning: --transforms:1:15: remove_device has no parameter 'nope'" in result.err


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"in_graph": "none.pb"}, 4, "none.pb: cannot be read: No such file"),
        ({"transforms": ""}, 2, "--transforms is empty"),
        ({"transforms": "strip_unused_node"}, 2, "strip_unused_nodes"),
        ({"transforms": "remove_device("}, 2, "transforms"),
        ({"transforms": "round_weights(num_steps=many)"}, 2, "num_steps"),
        ({"transforms": "freeze_requantization_ranges(min_max_log_file=log)"}, 4, "log"),
        ({"out_graph": "in.pb/out.pb"}, 9, "in.pb/out.pb: cannot be written"),
        ({"output_as_text": "perhaps"}, 2, "neither true nor false"),
    ],
)
def test_failures_have_exit_codes_and_keep_the_output(
    run: Run, changes: dict[str, str], code: int, message: str
) -> None:
    Path("out.pb").write_bytes(b"earlier")
    result = run("transform", *flags(**{"transforms": "remove_device", **changes}))
    assert (result.code, message in result.err) == (code, True), result.err
    assert result.err.count("error:") == 1
    assert Path("out.pb").read_bytes() == b"earlier"


def test_damaged_graph_is_reported(run: Run) -> None:
    Path("in.pb").write_bytes(Path("in.pb").read_bytes()[:-5])
    result = run("transform", *flags(transforms="remove_device"))
    assert (result.code, "in.pb" in result.err) == (4, True)


def test_check_prints_the_difference(run: Run) -> None:
    result = run(
        "transform", *flags("--check", transforms="remove_device quantize_weights(minimum_size=1)")
    )
    assert result.code == 0, result.err
    lines = [line for line in result.err.splitlines() if " nodes (" in line]
    assert lines[0].endswith("largest difference 0")
    assert "largest difference" in lines[1]


# Optional parameters.
MORE = {"insert_logging": "op=Relu", "set_device": 'device="/cpu:0"'}
VALUES = {"op": "Relu", "attribute_name": "T"}


def call(name: str) -> str:
    """A transform with all required parameters."""
    required = [option for option in declared(transform_class(name)) if option.required]
    values = {**VALUES, **{o.name: "in.pb" for o in required if o.option.format is not None}}
    parameters = [f"{o.name}={values.get(o.name, 'a')}" for o in required]
    parameters += [MORE[name]] if name in MORE else []
    return f"{name}({', '.join(parameters)})" if parameters else name


@pytest.mark.parametrize("graph", HOSTILE)
def test_transforms_report_errors_on_hostile_graphs(run: Run, graph: str) -> None:
    write_graph(Path("in.pb"), HOSTILE[graph])
    for name in transform_names():
        result = run("transform", *flags(transforms=call(name)))
        assert result.code in (0, 2, 4, 5, 6, 7), result.err
        assert (result.code == 0) == ("error:" not in result.err)


def test_missing_output_causes_a_warning(run: Run) -> None:
    result = run("transform", *flags(outputs="why", transforms="remove_device"))
    assert result.code == 0
    assert "warning: the output 'why' is not in the graph" in result.err


@pytest.mark.parametrize("transforms", ["remove_device", "strip_unused_nodes"])
@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"outputs": "softmax"}, "nothing reads unused"),
        ({"outputs": "unusd:0"}, "did you mean 'unused'?"),
        ({"inputs": "photograph"}, "its placeholders are x"),
        ({"outputs": "unused:1"}, "count from 0"),
    ],
)
def test_wrong_name_is_reported_with_suggestions(
    run: Run, transforms: str, changes: dict[str, str], hint: str
) -> None:
    result = run("transform", *flags(transforms=transforms, **changes))
    assert "is not in the graph" in result.err
    assert f"; {hint} [MP023]\n" in result.err
    if result.code:
        assert (result.code, f"help: {hint}" in result.err) == (7, True)


def test_control_characters_in_warnings_are_escaped(run: Run) -> None:
    graph = Graph([const("w", [1.0]), node("y", "Un\x1b[2Jknown", "w")])
    write_graph(Path("in.pb"), graph)
    result = run("transform", *flags(transforms="fold_constants", inputs="", outputs="y"))
    assert "unknown op Un\\x1b[2Jknown" in result.err
    assert "\x1b" not in result.err


def test_sizes_of_both_files_are_printed(run: Run) -> None:
    before = Path("in.pb").stat().st_size
    result = run("transform", *flags(transforms="strip_unused_nodes"))
    after = Path("out.pb").stat().st_size
    assert after < before
    assert result.err.endswith(f"out.pb: {after:,} bytes, {before:,} before\n")
    assert "twice" not in result.err


def test_size_before_is_printed_for_in_place_transforms(run: Run) -> None:
    before = Path("in.pb").stat().st_size
    result = run("transform", *flags(transforms="strip_unused_nodes", out_graph="in.pb"))
    assert f"bytes, {before:,} before\n" in result.err


def _write_weight_with_identity() -> None:
    """Write a graph with a weight that is read through an Identity, and a NoOp after it."""
    graph = Graph(
        [
            placeholder(),
            const("w", normal(50, 50)),
            node("read", "Identity", "w"),
            node("all", "NoOp", "^w", T=None),
            node("layer", "MatMul", "x read"),
            node("y", "Identity", "layer ^all"),
        ]
    )
    write_graph(Path("in.pb"), graph)


def test_duplicated_constants_cause_a_warning_with_a_hint(run: Run) -> None:
    _write_weight_with_identity()
    result = run("transform", *flags(transforms="fold_constants"))
    warned = (
        "warning: fold_constants: 1 constants are duplicated now, 10,000 bytes more, "
        "because it copies each that is read through an Identity; put "
        "remove_nodes(op=Identity) before fold_constants, or merge_duplicate_nodes behind it "
        "[MP000]\n"
    )
    assert warned in result.err
    assert Path("out.pb").stat().st_size > 20_000


@pytest.mark.parametrize(
    "chain", ["remove_nodes(op=Identity) fold_constants", "fold_constants merge_duplicate_nodes"]
)
def test_suggested_chains_do_not_duplicate_constants(run: Run, chain: str) -> None:
    _write_weight_with_identity()
    assert run("transform", *flags(transforms=chain)).code == 0
    assert Path("out.pb").stat().st_size < 11_000


def meta_graph() -> None:
    """``in.meta``: a layer of a training graph, with its variable in a collection."""
    proto = saved_model_pb2.MetaGraphDef()
    proto.meta_info_def.tensorflow_version = "1.15.0"
    variable = node("w", "VariableV2", T=None, dtype=DType.FLOAT)
    nodes = [placeholder(), variable, node("w/read", "Identity", "w"), const("b", [1.0])]
    layer = [node("m", "MatMul", "x w/read"), node("a", "BiasAdd", "m b"), node("y", "Relu", "a")]
    proto.graph_def.ParseFromString(graph_to_bytes(Graph([*nodes, *layer])))
    Path("in.meta").write_bytes(proto.SerializeToString())


def test_a_meta_graph_becomes_a_meta_graph(run: Run) -> None:
    meta_graph()
    files = {"in_graph": "in.meta", "out_graph": "out.meta"}
    result = run("transform", *flags(**files, transforms="insert_fake_quant"))
    assert result.code == 0, result.err
    assert "2 matched" in result.err
    proto = saved_model_pb2.MetaGraphDef.FromString(Path("out.meta").read_bytes())
    assert proto.meta_info_def.tensorflow_version == "1.15.0"
    assert len(proto.collection_def["variables"].bytes_list.value) == 8


def test_a_meta_graph_is_not_written_as_text(run: Run) -> None:
    meta_graph()
    more = flags("--output_as_text", in_graph="in.meta", transforms="insert_fake_quant")
    result = run("transform", *more)
    assert result.code == 2
    assert "error: in.meta: a MetaGraph cannot be written as text" in result.err
