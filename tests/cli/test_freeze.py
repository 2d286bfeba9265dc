"""The verb ``freeze`` with the original flags."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph.files import read_graph, write_graph
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.graphs import FLOAT, node, placeholder, ref_variable, source

W = np.arange(3, dtype=np.float32)


@pytest.fixture
def files(tmp_path):
    nodes = [
        placeholder("x", 3),
        ref_variable("w", 3, device="/cpu:0"),
        node("y", "Add", "x", "w/read", T=FLOAT),
    ]
    write_graph(tmp_path / "graph.pbtxt", source(nodes).graph, as_text=True)
    write_bundle(tmp_path / "ckpt", {"w": W})
    return tmp_path


def flags(files, **more):
    values = {
        "input_graph": files / "graph.pbtxt",
        "input_checkpoint": files / "ckpt",
        "output_graph": files / "frozen.pb",
        "output_node_names": "y",
        **more,
    }
    return [f"--{k}={v}" for k, v in values.items() if v is not None]


def test_original_flags_are_accepted(files, run):
    result = run(
        "freeze",
        *flags(
            files,
            input_saver="",
            input_binary="false",
            checkpoint_version=2,
            restore_op_name="save/restore_all",
            filename_tensor_name="save/Const:0",
            clear_devices="True",
            initializer_nodes="",
            variable_names_whitelist="",
            variable_names_denylist="",
            input_meta_graph="",
            input_saved_model_dir="",
            saved_model_tags="serve",
        ),
    )
    assert (result.code, result.err) == (0, "")
    assert result.out == "Converted 1 variables to const ops.\n4 ops in the final graph.\n"
    graph = read_graph(files / "frozen.pb")
    np.testing.assert_array_equal(graph["w"].attr_tensor("value").array(), W)


def test_flags_accept_hyphens(files, run):
    hyphenated = [f.replace("_", "-", f.split("=")[0].count("_")) for f in flags(files)]
    assert run("freeze", *hyphenated, "--variable-names-blacklist=w").code == 0
    assert read_graph(files / "frozen.pb")["w"].op == "VariableV2"


def test_output_as_text_writes_text(files, run):
    assert run("freeze", *flags(files), "--output_as_text").code == 0
    assert (files / "frozen.pb").read_text().startswith("node {")


def test_warnings_go_to_stderr(files, run):
    result = run("freeze", *flags(files), "--moving_averages")
    assert result.code == 0
    assert "warning: the checkpoint has no moving averages" in result.err


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"output_node_names": "yy"}, 5, "the output 'yy' is not in the graph"),
        ({"output_node_names": None}, 2, "likely outputs: y (float32 [3])"),
        ({"output_graph": None}, 2, "--output_graph"),
        ({"input_checkpoint": None}, 5, "name the checkpoint"),
        ({"input_checkpoint": "/nowhere/c"}, 4, "correct the path of the checkpoint"),
        ({"input_graph": "/nowhere/g.pb"}, 4, "/nowhere/g.pb: cannot be read"),
        ({"input_meta_graph": "also.meta"}, 2, "2 of a graph, a meta graph and a saved model"),
        ({"checkpoint_version": 3}, 2, "checkpoint version 3 is neither 1 nor 2"),
        ({"control_flow": "low"}, 2, "invalid choice: 'low'"),
    ],
)
def test_errors_have_messages_and_codes(files, run, change, code, message):
    result = run("freeze", *flags(files, **change))
    assert result.code == code
    assert message in result.err
    assert not (files / "frozen.pb").exists()
