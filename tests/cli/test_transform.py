"""``mobileprep transform``, the drop-in for ``transform_graph``."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.core.declare import declared
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.transforms.base import transform_class, transform_names
from tests.building.stages.hostile import HOSTILE
from tests.building.stages.jobs import classifier, op
from tests.cli.conftest import Run
from tests.transforms.graphs import const, node, normal, placeholder

FLAGS = {"in_graph": "in.pb", "out_graph": "out.pb", "inputs": "x", "outputs": "y"}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = classifier()
    write_graph(Path("in.pb"), graph.with_nodes([*graph.nodes, op("unused", "Relu", "y")]))


def flags(*more: str, **changes: str) -> list[str]:
    return [f"--{k}={v}" for k, v in {**FLAGS, **changes}.items()] + list(more)


def spelt(style: str) -> list[str]:
    """The same command line in the ways that people write it."""
    pairs = {**FLAGS, "transforms": "strip_unused_nodes"}
    if style == "--in_graph=x":
        return [f"--{k}={v}" for k, v in pairs.items()]
    if style == "--in-graph=x":
        return [f"--{k.replace('_', '-')}={v}" for k, v in pairs.items()]
    if style == "--in_graph x":
        return [part for k, v in pairs.items() for part in (f"--{k}", v)]
    return [part for k, v in pairs.items() for part in (f"--{k.replace('_', '-')}", v)]


@pytest.mark.parametrize("style", ["--in_graph=x", "--in-graph=x", "--in_graph x", "--in-graph x"])
def test_flags_are_taken_in_every_spelling(run: Run, style: str) -> None:
    told = run("transform", *spelt(style))
    assert told.code == 0, told.err
    assert told.out == ""
    assert "strip_unused_nodes: 5 nodes (0 added, 1 removed, 0 changed)" in told.err
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
def test_chains_are_taken_as_the_original_takes_them(run: Run, transforms: str) -> None:
    told = run("transform", *flags(transforms=transforms))
    assert told.code == 0, told.err
    assert told.err.count(" nodes (") == 2


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
def test_text_is_written_when_asked_for(run: Run, flag: str, is_text: bool) -> None:
    assert run("transform", *flags(flag, transforms="remove_device")).code == 0
    assert Path("out.pb").read_bytes().startswith(b"node {") == is_text
    assert len(read_graph(Path("out.pb"))) == 6


def test_parameters_that_a_transform_does_not_have_are_left_out_with_a_warning(run: Run) -> None:
    told = run("transform", *flags(transforms="remove_device(nope=1)"))
    assert told.code == 0
    assert "warning: --transforms:1:15: remove_device has no parameter 'nope'" in told.err


@pytest.mark.parametrize(
    ("changes", "code", "told"),
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
def test_failures_have_their_exit_codes_and_leave_the_output_alone(
    run: Run, changes: dict[str, str], code: int, told: str
) -> None:
    Path("out.pb").write_bytes(b"earlier")
    answer = run("transform", *flags(**{"transforms": "remove_device", **changes}))
    assert (answer.code, told in answer.err) == (code, True), answer.err
    assert answer.err.count("error:") == 1
    assert Path("out.pb").read_bytes() == b"earlier"


def test_a_damaged_graph_is_told(run: Run) -> None:
    Path("in.pb").write_bytes(Path("in.pb").read_bytes()[:-5])
    answer = run("transform", *flags(transforms="remove_device"))
    assert (answer.code, "in.pb" in answer.err) == (4, True)


def test_a_check_tells_the_difference(run: Run) -> None:
    told = run(
        "transform", *flags("--check", transforms="remove_device quantize_weights(minimum_size=1)")
    )
    assert told.code == 0, told.err
    lines = [line for line in told.err.splitlines() if " nodes (" in line]
    assert lines[0].endswith("largest difference 0")
    assert "largest difference" in lines[1]


# Of options that need not be given, those that let a transform do more.
MORE = {"insert_logging": "op=Relu", "set_device": 'device="/cpu:0"'}
TELLING = {"op": "Relu", "attribute_name": "T"}


def call(name: str) -> str:
    """A transform of a chain with all that it needs."""
    required = [option for option in declared(transform_class(name)) if option.required]
    known = {**TELLING, **{o.name: "in.pb" for o in required if o.option.format is not None}}
    given = [f"{o.name}={known.get(o.name, 'a')}" for o in required]
    given += [MORE[name]] if name in MORE else []
    return f"{name}({', '.join(given)})" if given else name


@pytest.mark.parametrize("graph", HOSTILE)
def test_no_transform_fails_on_a_hostile_graph_but_with_a_message(run: Run, graph: str) -> None:
    write_graph(Path("in.pb"), HOSTILE[graph])
    for name in transform_names():
        told = run("transform", *flags(transforms=call(name)))
        assert told.code in (0, 2, 4, 5, 6, 7), told.err
        assert (told.code == 0) == ("error:" not in told.err)


def test_inputs_and_outputs_that_are_not_there_are_warned_of(run: Run) -> None:
    told = run("transform", *flags(outputs="why", transforms="remove_device"))
    assert told.code == 0
    assert "warning: the output 'why' is not in the graph" in told.err


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
def test_a_wrong_name_is_told_with_the_likely_ones(
    run: Run, transforms: str, changes: dict[str, str], hint: str
) -> None:
    told = run("transform", *flags(transforms=transforms, **changes))
    assert "is not in the graph" in told.err
    assert f"; {hint} [MP023]\n" in told.err
    if told.code:
        assert (told.code, f"help: {hint}" in told.err) == (7, True)


def test_what_is_left_as_it_was_does_nothing_to_a_terminal(run: Run) -> None:
    graph = Graph([const("w", [1.0]), node("y", "Un\x1b[2Jknown", "w")])
    write_graph(Path("in.pb"), graph)
    told = run("transform", *flags(transforms="fold_constants", inputs="", outputs="y"))
    assert "unknown op Un\\x1b[2Jknown" in told.err
    assert "\x1b" not in told.err


def test_the_bytes_of_both_files_are_told(run: Run) -> None:
    before = Path("in.pb").stat().st_size
    told = run("transform", *flags(transforms="strip_unused_nodes"))
    after = Path("out.pb").stat().st_size
    assert after < before
    assert told.err.endswith(f"out.pb: {after:,} bytes, {before:,} before\n")
    assert "twice" not in told.err


def test_the_bytes_before_are_told_where_the_file_is_the_same(run: Run) -> None:
    before = Path("in.pb").stat().st_size
    told = run("transform", *flags(transforms="strip_unused_nodes", out_graph="in.pb"))
    assert f"bytes, {before:,} before\n" in told.err


def _read_as_tensorflow_2_does() -> None:
    """A weight that is read through an Identity, and a NoOp that waits for it and for the read."""
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


def test_constants_that_a_step_copied_are_told_with_the_mend(run: Run) -> None:
    _read_as_tensorflow_2_does()
    told = run("transform", *flags(transforms="fold_constants"))
    warned = (
        "warning: fold_constants: 1 constants are duplicated now, 10,000 bytes more, "
        "because it copies each that is read through an Identity; put "
        "remove_nodes(op=Identity) before fold_constants, or merge_duplicate_nodes behind it "
        "[MP000]\n"
    )
    assert warned in told.err
    assert Path("out.pb").stat().st_size > 20_000


@pytest.mark.parametrize(
    "mend", ["remove_nodes(op=Identity) fold_constants", "fold_constants merge_duplicate_nodes"]
)
def test_the_mend_keeps_the_file_small(run: Run, mend: str) -> None:
    _read_as_tensorflow_2_does()
    assert run("transform", *flags(transforms=mend)).code == 0
    assert Path("out.pb").stat().st_size < 11_000
