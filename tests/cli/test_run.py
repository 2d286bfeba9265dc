"""The verb ``run``."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.cli._shared.results import (
    RunOutputs,
    Score,
    best_scores,
    described,
    line,
    printer,
    read_labels,
)
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.ops.kernel import Printed
from tests.cli.conftest import Run, replace_text
from tests.ops.pictures import encoded
from tests.ops.sounds import wav
from tests.transforms.graphs import const, node

# The classes are the color channels.
RED = np.zeros((6, 10, 3), np.uint8) + np.array([255, 51, 0], np.uint8)


def image_input(name: str, *shape: int) -> Node:
    attrs = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape(shape)}
    return Node(name, "Placeholder", attrs=attrs)


def channel_means(name: str = "input", out: str = "scores", side: int = 4) -> Graph:
    """The means of the color channels as scores of three classes."""
    return Graph(
        [
            image_input(name, -1, side, side, 3),
            const("axes", [1, 2], np.int32),
            node(out, "Mean", f"{name} axes", Tidx=DType.INT32, keep_dims=False),
        ]
    )


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    write_graph(tmp_path / "graph.pb", channel_means())
    return tmp_path / "graph.pb"


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "red.png"
    path.write_bytes(encoded(RED, "PNG"))
    return path


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.txt"
    path.write_text("red\ngreen\nblue\n")
    return path


def test_image_is_labeled(run: Run, graph: Path, photo: Path, labels: Path) -> None:
    result = run("run", f"--graph={graph}", f"--image={photo}", f"--labels={labels}")
    assert result.code == 0
    assert result.out == "red (0): 1\ngreen (1): 0.2\nblue (2): 0\n"


def test_original_flags_accept_hyphens(run: Run, tmp_path: Path, photo: Path) -> None:
    write_graph(tmp_path / "other.pb", channel_means("Mul", "final_result"))
    result = run(
        *("run", "--root_dir", tmp_path, "--graph=other.pb", f"--image={photo.name}"),
        *("--input_width=4", "--input-height", "4", "--input_mean=128", "--input-std=128"),
        *("--input_layer=Mul", "--output-layer=final_result:0", "--top=1"),
    )
    assert (result.code, result.out) == (0, "(0): 0.992188\n")


def test_layers_and_size_default_to_those_of_the_graph(
    run: Run, tmp_path: Path, photo: Path
) -> None:
    write_graph(tmp_path / "odd.pb", channel_means("any", "thing", side=7))
    result = run("run", "--graph", tmp_path / "odd.pb", "--image", photo, "--json")
    assert json.loads(result.out)["outputs"][0]["name"] == "thing"


def test_missing_layer_is_refused(run: Run, graph: Path, photo: Path) -> None:
    result = run("run", "--graph", graph, "--image", photo, "--input_layer=inputt")
    assert result.code == 2
    assert "help: did you mean 'input'?" in result.err


def test_self_test_expects_the_original_class(run: Run, graph: Path, photo: Path) -> None:
    result = run("run", "--graph", graph, "--image", photo, "--self_test")
    assert result.code == 8
    assert "class 653 should come first, and 0 does" in result.err


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """The sum of two placeholders."""
    x, y = image_input("x", -1, 2), image_input("y", 2)
    write_graph(tmp_path / "plain.pb", Graph([x, y, node("out", "AddV2", "x y")]))
    return tmp_path / "plain.pb"


def test_arrays_are_fed_and_results_are_written(run: Run, plain: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32([[1, 2], [3, 4]]))
    write_arrays(tmp_path / "more.npz", {"y": np.float32([10, 20]), "z": np.float32([0])})
    result = run(
        *("run", "--graph", plain, "--feed", f"x={tmp_path / 'x.npy'}"),
        *("--feed", f"y={tmp_path / 'more.npz'}", "--fetch=out,x", "--out", tmp_path / "o.npz"),
    )
    assert result.out.splitlines() == [
        "out: float32[2, 2] [[11.0, 22.0], [13.0, 24.0]]",
        "x: float32[2, 2] [[1.0, 2.0], [3.0, 4.0]]",
    ]
    with np.load(tmp_path / "o.npz") as written:
        np.testing.assert_array_equal(written["out"], [[11, 22], [13, 24]])
        assert sorted(written) == ["out", "x"]


def test_random_values_are_reproducible(run: Run, plain: Path) -> None:
    feeds = ("run", "--graph", plain, "--feed=x=random:3,2", "--feed=y=random")
    first = run(*feeds)
    assert first.out == run(*feeds).out
    assert first.out.startswith("out: float32[3, 2]")
    assert first.out != run(*feeds, "--seed=1").out


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", [[12.0, 12.0]]), ("-0.5,2", [[10.5, 13.0]]), ("true", [[12.0, 12.0]])],
)
def test_numbers_are_fed_from_the_command_line(
    run: Run, plain: Path, text: str, expected: list[list[float]]
) -> None:
    result = run("run", "--graph", plain, f"--feed=x={text}", "--feed=y=11", "--json")
    assert json.loads(result.out)["outputs"][0]["values"] == expected


@pytest.mark.parametrize(
    ("dtype", "text", "message"),
    [
        (DType.INT32, "1.5", "takes int32, not 1.5"),
        (DType.UINT8, "256", "takes uint8, not 256"),
        (DType.INT64, "1,nan", "takes int64, not 1, nan"),
        (DType.BOOL, "2", "takes bool, not 2"),
    ],
)
def test_numbers_that_do_not_fit_the_dtype_are_refused(
    run: Run, tmp_path: Path, dtype: DType, text: str, message: str
) -> None:
    nodes = [node("x", "Placeholder", T=None, dtype=dtype), node("out", "Identity", "x", T=dtype)]
    write_graph(tmp_path / "g.pb", Graph(nodes))
    result = run("run", "--graph", tmp_path / "g.pb", f"--feed=x={text}")
    assert result.code == 2
    assert message in result.err
    assert run("run", "--graph", tmp_path / "g.pb", "--feed=x=1").code == 0


def test_array_is_selected_by_name_and_converted(run: Run, plain: Path, tmp_path: Path) -> None:
    write_arrays(tmp_path / "two.npz", {"a": np.array([[1, 2]]), "b": np.array([0.5, 1])})
    result = run(
        *("run", "--graph", plain, "--feed", f"x={tmp_path / 'two.npz:a'}"),
        *("--feed", f"y={tmp_path / 'two.npz:b'}"),
    )
    assert result.out == "out: float32[1, 2] [[1.5, 3.0]]\n"
    result = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'two.npz:c'}")
    assert (result.code, "has no array 'c'; it has a, b" in result.err) == (2, True)


def test_seed_sets_random_ops_of_the_graph(run: Run, tmp_path: Path) -> None:
    nodes = [const("shape", [3], np.int32), node("out", "RandomUniform", "shape", T=DType.INT32)]
    nodes[1] = nodes[1].with_attrs(dtype=attr.dtype(DType.FLOAT))
    write_graph(tmp_path / "g.pb", Graph(nodes))
    command = ("run", "--graph", tmp_path / "g.pb")
    assert run(*command).code == 6
    first = run(*command, "--seed=1")
    assert first.code == 0
    assert run(*command, "--seed=1").out == first.out != run(*command, "--seed=2").out


def test_values_are_printed_in_single_precision(run: Run, plain: Path) -> None:
    result = run("run", "--graph", plain, "--feed=x=0.1", "--feed=y=0.2")
    assert result.out == "out: float32[1, 2] [[0.3, 0.3]]\n"


def test_control_characters_in_names_are_escaped(run: Run, tmp_path: Path) -> None:
    named = "a\x1b[2J\nb"
    write_graph(tmp_path / "named.pb", Graph([image_input("x", 1), const(named, [1.0], "f4")]))
    result = run("run", "--graph", tmp_path / "named.pb", "--feed=x=1", "--fetch", named)
    assert result.out == "a\\x1b[2J\\nb: float32[1] [1.0]\n"


def test_json_lists_results_and_classes(run: Run, graph: Path, photo: Path, labels: Path) -> None:
    result = run("run", "--graph", graph, "--image", photo, "--labels", labels, "--json", "--top=1")
    data = json.loads(result.out)
    assert data["engine"] == "numpy"
    assert data["top"] == [[{"index": 0, "label": "red", "score": 1.0}]]
    [output] = data["outputs"]
    assert (output["dtype"], output["shape"], output["max"]) == ("float32", [1, 3], 1.0)


def test_nan_and_infinity_are_valid_json(run: Run, plain: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32([[np.nan, np.inf]]))
    result = run(
        *("run", "--graph", plain, "--feed", f"x={tmp_path / 'x.npy'}", "--feed=y=random", "--json")
    )
    assert json.loads(result.out)["outputs"][0]["values"] == [["nan", "inf"]]


def test_infinities_of_both_signs_have_no_mean(run: Run, plain: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32([[-np.inf, np.inf]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'x.npy'}", "--feed=y=0")
    assert result.out == "out: float32[1, 2] [['-inf', 'inf']]\n"


@pytest.mark.slow
def test_automatically_selected_engine_is_printed(run: Run, graph: Path, photo: Path) -> None:
    result = run("run", "--graph", graph, "--image", photo, "--engine=auto")
    assert "note: the engine is " in result.err


def text_input(name: str) -> Node:
    return Node(name, "Placeholder", attrs={"dtype": attr.dtype(DType.STRING)})


def test_string_input_is_fed_the_bytes_of_a_file(run: Run, tmp_path: Path, photo: Path) -> None:
    decode = node("pixels", "DecodePng", "contents", T=None, channels=3)
    write_graph(tmp_path / "decode.pb", Graph([text_input("contents"), decode]))
    result = run(
        *("run", "--graph", tmp_path / "decode.pb", "--feed", f"contents={photo}"),
        *("--out", tmp_path / "o.npz"),
    )
    assert result.out == "pixels: uint8[6, 10, 3] from 0 to 255, mean 102\n"
    with np.load(tmp_path / "o.npz") as written:
        np.testing.assert_array_equal(written["pixels"], RED)


def test_placeholder_without_batch_is_fed_one_image(run: Run, tmp_path: Path, photo: Path) -> None:
    pixels = image_input("pixels", -1, 5, 3)
    write_graph(tmp_path / "g.pb", Graph([pixels, node("out", "Identity", "pixels")]))
    result = run("run", "--graph", tmp_path / "g.pb", "--feed", f"pixels={photo}", "--json")
    assert json.loads(result.out)["outputs"][0]["shape"] == [299, 5, 3]


def test_audio_is_decoded_and_padded_to_the_placeholder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(np.array([[16384], [-16384]])))
    for shape, expected in (((1, 3), [[0.5, -0.5, 0]]), ((-1, 1), [[0.5], [-0.5]])):
        samples = image_input("samples", *shape)
        graph = Graph([samples, node("out", "Identity", "samples")])
        write_graph(tmp_path / "sound.pb", graph)
        result = run(
            *("run", "--graph", tmp_path / "sound.pb", "--json"),
            *("--feed", f"samples={tmp_path / 'a.wav'}"),
        )
        assert json.loads(result.out)["outputs"][0]["values"] == expected


def test_strings_are_printed_and_written(run: Run, tmp_path: Path) -> None:
    write_graph(
        tmp_path / "text.pb",
        Graph([text_input("a"), node("out", "StringUpper", "a", T=None)]),
    )
    (tmp_path / "word").write_text("word")
    result = run(
        *("run", "--graph", tmp_path / "text.pb", "--feed", f"a={tmp_path / 'word'}"),
        *("--out", tmp_path / "o.npz"),
    )
    assert result.out == "out: string[] WORD\n"
    with np.load(tmp_path / "o.npz") as written:
        assert written["out"] == b"WORD"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--feed=x"], "--feed takes name=file, name=number or name=random, and got"),
        (["--feed=x=random", "--feed=x=random"], "'x' is fed twice"),
        (["--feed=nothing=random"], "the graph has no tensor 'nothing'"),
        (["--feed=x=random:2,a"], "'2,a' is not a shape"),
        (["--feed=x=random:-1,2"], "has a negative size"),
        (["--feed=x=random:99999999,99999"], "are too many"),
        (["--feed=x=random:1000,1000", "--memory=4MB"], "are too many"),
        (["--feed=x=random:1000,1000", "--memory=4MB"], "or allow more memory"),
        (["--feed=x=random:1,3", "--feed=y=random"], "'x' takes the shape [?, 2]"),
        (
            [],
            "the placeholders 'x' (float32[?, 2]), 'y' (float32[2]) [MP200]\nhelp: feed it",
        ),
        (["--feed=x=random"], "nothing is fed to the placeholder 'y' (float32[2])"),
        (["--feed=x=random", "--feed=y=random", "--fetch=none"], "'none' is not in the graph"),
        (["--engine=fast"], "unknown engine 'fast'"),
        (["--seed=-1"], "'-1' is not a non-negative integer"),
        (["--top=-1"], "'-1' is not a non-negative integer"),
        (["--feed=x=1,2,3", "--feed=y=1"], "'x' takes the shape [?, 2], and is fed [3]"),
    ],
)
def test_invalid_arguments_are_refused(
    run: Run, plain: Path, arguments: list[str], message: str
) -> None:
    result = run("run", "--graph", plain, *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_invalid_feed_files_are_refused(run: Run, plain: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1 2")
    result = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'x.txt'}")
    assert result.code == 2
    assert "the extension determines the format" in result.err
    result = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'none.npy'}")
    assert result.code == 4
    assert "none.npy: cannot be read" in result.err
    write_arrays(tmp_path / "two.npz", {"a": np.zeros(2), "b": np.zeros(2)})
    result = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'two.npz'}")
    assert result.code == 2
    assert "has no array 'x'; it has a, b" in result.err


@pytest.mark.parametrize("name", ["photo.png", "photo.jpg", "sound.wav"])
def test_damaged_feed_file_is_reported(run: Run, graph: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n" if name.endswith("png") else b"nothing")
    result = run("run", "--graph", graph, "--feed", f"input={tmp_path / name}")
    assert (result.code, result.out) == (4, "")
    assert f"error: {tmp_path / name}" in result.err


def test_empty_scores_are_refused(run: Run, plain: Path, labels: Path) -> None:
    result = run(
        *("run", "--graph", plain, "--feed=x=random:0,2", "--feed=y=random"),
        *("--labels", labels),
    )
    assert result.code == 2
    assert "has no scores" in result.err


def printing_graph(path: Path, stream: str, text: str) -> Path:
    """Write a graph that prints a text."""
    message = const("text", text.encode(), object)
    show = node("show", "PrintV2", "text", T=None, output_stream=stream)
    one = const("one", 1.0)
    write_graph(path / "g.pb", Graph([message, show, one, node("y", "Identity", "one ^show")]))
    return path / "g.pb"


@pytest.mark.parametrize(
    ("stream", "out", "err"),
    [
        ("stdout", "hello\ny: float32[] 1.0\n", ""),
        ("stderr", "y: float32[] 1.0\n", "hello\n"),
        ("log(warning)", "y: float32[] 1.0\n", "warning: hello\n"),
    ],
)
def test_graph_prints_to_its_stream(
    run: Run, tmp_path: Path, stream: str, out: str, err: str
) -> None:
    result = run("run", "--graph", printing_graph(tmp_path, stream, "hello"), "--fetch=y")
    assert (result.code, result.out, result.err) == (0, out, err)


def test_graph_does_not_write_files(run: Run, tmp_path: Path) -> None:
    graph = printing_graph(tmp_path, f"file://{tmp_path}/written", "hello")
    result = run("run", "--graph", graph, "--fetch=y")
    assert result.err == f"not written to file://{tmp_path}/written: hello\n"
    assert not (tmp_path / "written").exists()


def test_output_of_the_graph_is_not_in_the_json(run: Run, tmp_path: Path) -> None:
    result = run(
        "run", "--graph", printing_graph(tmp_path, "stdout", "hello"), "--fetch=y", "--json"
    )
    assert json.loads(result.out)["outputs"][0]["values"] == 1.0
    assert result.err == "hello\n"


def test_control_characters_printed_by_the_graph_are_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", out)
    printer(is_result_data=False)(Printed("p", "stderr", "\x1b[2J\tß\n"))
    out.flush()
    assert out.buffer.getvalue() == b"\\x1b[2J\t\\xdf\n"


@pytest.mark.parametrize(("engine", "title"), [("openvino", "OpenVINO"), ("litert", "LiteRT")])
def test_engine_without_print_support_is_refused(
    run: Run, tmp_path: Path, engine: str, title: str
) -> None:
    graph = printing_graph(tmp_path, "stderr", "hello")
    result = run("run", "--graph", graph, "--fetch=y", f"--engine={engine}")
    assert result.code == 6
    assert f"{title} prints nothing, which the graph does at 'show'" in result.err
    result = run("run", "--graph", graph, "--fetch=y", "--engine=auto")
    assert result.err == "hello\nnote: the engine is numpy\n"


LARGE = np.arange(65, dtype=np.float32)


def test_few_values_are_listed_and_many_are_summarized() -> None:
    assert line(described("a", np.float32([1, 2]) / 3)) == "a: float32[2] [0.333333, 0.666667]"
    assert line(described("a", LARGE)) == "a: float32[65] from 0 to 64, mean 32"
    assert "values" in described("a", LARGE[:64])
    assert "values" not in described("a", LARGE)


def test_nan_extremes_are_strings() -> None:
    wild = LARGE.copy()
    wild[0] = np.nan
    facts = described("a", wild)
    assert (facts["min"], facts["max"], facts["mean"]) == ("nan", "nan", "nan")
    assert line(facts) == "a: float32[65] from nan to nan, mean nan"


def test_empty_and_string_tensors_have_no_extremes() -> None:
    empty = described("a", np.zeros((0, 3), np.float32))
    assert empty == {"name": "a", "dtype": "float32", "shape": [0, 3], "values": []}
    strings = described("a", np.array([b"x"] * 65, dtype=object))
    assert strings == {"name": "a", "dtype": "string", "shape": [65]}
    assert line(strings) == "a: string[65]"


def test_equal_scores_are_sorted_by_index() -> None:
    ((first, second),) = best_scores(np.float32([[1, 3, 3, 2]]), ["a", "b"], 2)
    assert (str(first), str(second)) == ("b (1): 3", "(2): 3")
    with pytest.raises(UsageError, match="has no scores"):
        best_scores(np.zeros((0, 3)), [], 1)


def test_classes_replace_the_first_tensor() -> None:
    outputs = {"y": np.float32([0, 1]), "z": np.float32(5)}
    assert str(RunOutputs.of("a.png", outputs, [], 1)) == "a.png:\n(1): 1\nz: float32[] 5.0"
    plain = RunOutputs.of("", outputs, [], 0)
    assert str(plain) == "y: float32[2] [0.0, 1.0]\nz: float32[] 5.0"
    assert plain.as_data()["top"] == []
    assert Score(0, "", float("inf")).as_data()["score"] == "inf"


def test_labels_are_read_from_a_file_of_limited_size(tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(b"a \r\nb\xff\n")
    assert read_labels(tmp_path / "labels") == ["a", "b\N{REPLACEMENT CHARACTER}"]
    with (tmp_path / "labels").open("wb") as stream:
        stream.truncate((16 << 20) + 1)
    with pytest.raises(CorruptFileError):
        read_labels(tmp_path / "labels")


@pytest.mark.parametrize(
    ("shape", "has_values"), [((0,), True), ((2, 0), True), ((1 << 40, 0), False), ((64,), True)]
)
def test_values_are_omitted_for_many_nested_lists(shape: tuple[int, ...], has_values: bool) -> None:
    facts = described("x", np.zeros(shape, np.float32))
    assert facts["shape"] == list(shape)
    assert ("values" in facts) is has_values


def identity_graph(path: Path, dtype: DType = DType.FLOAT, *shape: int) -> Path:
    """Write a graph that returns its input."""
    x = Node("x", "Placeholder", attrs={"dtype": attr.dtype(dtype), "shape": attr.shape(shape)})
    write_graph(path / "g.pb", Graph([x, node("y", "Identity", "x", T=dtype)]))
    return path / "g.pb"


def values(run: Run, graph: Path, what: str) -> object:
    result = run("run", "--graph", graph, f"--feed=x={what}", "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)["outputs"][0]["values"]


@pytest.mark.parametrize(
    ("dtype", "shape", "what", "expected"),
    [
        (DType.FLOAT, (-1, 2), "[[1, 2], [3.5, 4]]", [[1, 2], [3.5, 4]]),
        (DType.FLOAT, (-1,), "[]", []),
        (DType.FLOAT, (-1,), "[true, 2]", [1, 2]),
        (DType.INT64, (-1,), "[9007199254740993]", [9007199254740993]),
        (DType.INT64, (2,), "9007199254740993", [9007199254740993] * 2),
        (DType.UINT64, (-1,), "[18446744073709551615]", [2**64 - 1]),
        (DType.BOOL, (-1,), "[true, false]", [True, False]),
        (DType.STRING, (-1,), '["a", "é"]', ["a", "é"]),
        (DType.STRING, (-1,), "text:a,b", ["a,b"]),
        (DType.STRING, (), "text:[1]", "[1]"),
        (DType.STRING, (2, 1), "text:", [[""], [""]]),
    ],
)
def test_values_are_parsed_from_the_command_line(
    run: Run, tmp_path: Path, dtype: DType, shape: tuple[int, ...], what: str, expected: object
) -> None:
    assert values(run, identity_graph(tmp_path, dtype, *shape), what) == expected


@pytest.mark.parametrize(
    ("dtype", "content", "expected"),
    [
        (DType.FLOAT, "[[1, 2],\n [3, 4]]\n", [[1, 2], [3, 4]]),
        (DType.FLOAT, " 5\n", [[5]]),
        (DType.STRING, "two\nlines\r\n", [["two\nlines"]]),
        (DType.STRING, '[["a"]]', [["a"]]),
    ],
)
def test_values_are_read_from_a_file(
    run: Run, tmp_path: Path, dtype: DType, content: str, expected: object
) -> None:
    (tmp_path / "value").write_bytes(content.encode())
    assert (
        values(run, identity_graph(tmp_path, dtype, -1, -1), f"@{tmp_path / 'value'}") == expected
    )


@pytest.mark.parametrize(
    ("dtype", "what", "message"),
    [
        (DType.FLOAT, "[[1, 2], [3]]", "differ in length at depth 2"),
        (DType.FLOAT, "[[1], 2]", "differ in length at depth 2"),
        (DType.FLOAT, '["a"]', "'x' takes float32, not a"),
        (DType.FLOAT, "[null]", "'x' takes float32, not None"),
        (DType.FLOAT, "text:a", "'x' takes float32, not a"),
        (DType.FLOAT, "[" * 100_000, "nested too deeply"),
        (DType.FLOAT, "[" * 70 + "1" + "]" * 70, "nested too deeply"),
        (DType.FLOAT, "fold*", "no file fits the pattern 'fold*'"),
        (DType.INT32, "[1.5]", "'x' takes int32, not 1.5"),
        (DType.INT32, "[4294967296]", "'x' takes int32, not 4294967296"),
        (DType.STRING, "[1]", "'x' takes string, not 1"),
        (DType.FLOAT, "none/*.png", "no file fits the pattern 'none/*.png'"),
        (DType.FLOAT, "folder", "the folder 'folder' holds no file that can be fed"),
        (DType.FLOAT, "@value", "value: holds no value for 'x' (float32[?])"),
    ],
)
def test_invalid_values_are_refused(
    run: Run, workdir: Path, dtype: DType, what: str, message: str
) -> None:
    (workdir / "folder").mkdir()
    (workdir / "value").write_text("much")
    result = run("run", "--graph", identity_graph(workdir, dtype, -1), f"--feed=x={what}")
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_string_without_prefix_is_reported_with_a_hint(run: Run, tmp_path: Path) -> None:
    result = run("run", "--graph", identity_graph(tmp_path, DType.STRING, -1), "--feed=x=hello")
    assert result.code == 4
    assert "for a text itself write x=text:..." in result.err


def test_file_for_a_string_vector_is_its_only_element(run: Run, tmp_path: Path) -> None:
    (tmp_path / "word").write_text("word\n")
    assert values(run, identity_graph(tmp_path, DType.STRING, -1), str(tmp_path / "word")) == [
        "word\n"
    ]


def test_scalar_for_a_vector_is_refused(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.float32(1))
    result = run(
        "run", "--graph", identity_graph(tmp_path, DType.FLOAT, -1), f"--feed=x={tmp_path}/one.npy"
    )
    assert "'x' takes the shape [?], and is fed a scalar" in result.err


def test_failure_without_a_recorded_shape_names_the_fed_shape(run: Run, tmp_path: Path) -> None:
    x = Node("x", "Placeholder", attrs={"dtype": attr.dtype(DType.FLOAT)})
    graph = Graph([x, const("w", np.eye(2)), node("y", "MatMul", "x w")])
    write_graph(tmp_path / "g.pb", graph)
    result = run("run", "--graph", tmp_path / "g.pb", "--feed=x=1")
    assert result.code == 5
    assert "does not record its shape: 'x' is fed a scalar" in result.err


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, level in (("b.png", 51), ("a.png", 255), ("c.BMP", 0)):
        data = encoded(np.full((2, 2, 3), level, np.uint8), Path(name).suffix[1:].upper())
        (folder / name).write_bytes(data)
    (folder / "notes.txt").write_text("no picture")
    return folder


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("images", [1, 0.2, 0]),
        ("images/*.png", [1, 0.2]),
        ("images/b.png,images/a.png", [0.2, 1]),
    ],
)
def test_several_files_are_a_batch(
    run: Run,
    images: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    expected: list[float],
) -> None:
    monkeypatch.chdir(images.parent)
    graph = identity_graph(images.parent, DType.FLOAT, -1, 1, 1, 3)
    batch = values(run, graph, what)
    assert [one[0][0][0] for one in batch] == pytest.approx(expected)


def test_absolute_pattern_is_accepted(run: Run, images: Path) -> None:
    graph = identity_graph(images.parent, DType.FLOAT, -1, 1, 1, 3)
    assert len(values(run, graph, f"{images}/[ab].png")) == 2


def test_arrays_are_stacked_or_concatenated(run: Run, tmp_path: Path) -> None:
    for name, array in (("a", [[1, 2]]), ("b", [[3, 4], [5, 6]]), ("c", [7, 8]), ("d", [9, 10])):
        np.save(tmp_path / f"{name}.npy", np.float32(array))
    graph = identity_graph(tmp_path, DType.FLOAT, -1, 2)
    assert values(run, graph, f"{tmp_path}/a.npy,{tmp_path}/b.npy") == [[1, 2], [3, 4], [5, 6]]
    assert values(run, graph, f"{tmp_path}/[cd].npy") == [[7, 8], [9, 10]]
    result = run("run", "--graph", graph, f"--feed=x={tmp_path}/a.npy,{tmp_path}/c.npy")
    assert result.code == 2
    assert "c.npy has the shape [2], and" in result.err


def test_each_option_runs_every_file(run: Run, images: Path, tmp_path: Path) -> None:
    graph = identity_graph(tmp_path, DType.FLOAT, 1, 1, 1, 3)
    command = ("run", "--graph", graph, f"--feed=x={images}/*.png")
    result = run(*command)
    assert result.code == 2
    assert "'x' (float32[1, 1, 1, 3]) does not take 2 files at a time" in result.err
    assert "--each" in result.err
    result = run(*command, "--each", "--out", tmp_path / "o.npz")
    assert result.out.splitlines()[0] == f"{images}/a.png:"
    assert result.out.splitlines()[2] == f"{images}/b.png:"
    assert {n: a.item(0) for n, a in read_arrays(tmp_path / "o.npz").items()} == {
        "0/y": 1,
        "1/y": pytest.approx(0.2),
    }
    data = json.loads(run(*command, "--each", "--json").out)
    assert [r["files"] for r in data["runs"]] == [f"{images}/a.png", f"{images}/b.png"]
    assert data["runs"][0]["outputs"][0]["values"] == [[[[1, 1, 1]]]]


def test_lists_of_files_are_paired(run: Run, tmp_path: Path) -> None:
    x, y = (Node(n, "Placeholder", attrs={"dtype": attr.dtype(DType.FLOAT)}) for n in "xy")
    write_graph(tmp_path / "g.pb", Graph([x, y, node("sum", "AddV2", "x y")]))
    for name in ("a1", "a2", "b1", "b2", "b3"):
        np.save(tmp_path / f"{name}.npy", np.float32(name[1]))
    command = ("run", "--graph", tmp_path / "g.pb", "--each", f"--feed=x={tmp_path}/a?.npy")
    result = run(*command, f"--feed=y={tmp_path}/b[12].npy")
    assert result.out.count("sum: float32[]") == 2
    assert "sum: float32[] 4.0" in result.out
    result = run(*command, f"--feed=y={tmp_path}/b?.npy")
    assert "there are 2 files for 'x' and 3 files for 'y', which do not go together" in result.err


def test_images_in_a_directory_are_labeled(run: Run, images: Path, tmp_path: Path) -> None:
    x = Node(
        "input",
        "Placeholder",
        attrs={"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((1, 2, 2, 3))},
    )
    mean = node("scores", "Mean", "input axes", Tidx=DType.INT32, keep_dims=False)
    write_graph(tmp_path / "g.pb", Graph([x, const("axes", [1, 2], np.int32), mean]))
    result = run("run", "--graph", tmp_path / "g.pb", "--image", images, "--top=1")
    expected = [("a.png", "1"), ("b.png", "0.2"), ("c.BMP", "0")]
    assert result.out == "".join(f"{images}/{f}:\n(0): {s}\n" for f, s in expected)


def sarif(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The results and the rules of a SARIF log with one run."""
    log = json.loads(text)
    assert log["version"] == "2.1.0"
    (one,) = log["runs"]
    assert one["tool"]["driver"]["name"] == "mobileprep"
    return one["results"], one["tool"]["driver"]["rules"]


@pytest.fixture
def misspelled(digits: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe with an unknown key in line 17, in the working directory."""
    replace_text(digits, "transforms:", "transform:")
    monkeypatch.chdir(digits.parent)
    return digits


@pytest.mark.parametrize("verb", ["validate", "build"])
def test_recipe_problems_are_annotations(verb: str, misspelled: Path, run: Run) -> None:
    result = run(verb, misspelled, "--output-format", "github")
    assert result.code == 3
    line = misspelled.read_text().split("transform:")[0].count("\n") + 1
    message = "transform: unknown key 'transform'; did you mean 'transforms'?"
    assert result.out == f"::error file=recipe.yaml,line={line},col=1,title=MP301::{message}\n"
    assert f"{message} [MP301]" in result.err


def test_recipe_problems_are_sarif_results(misspelled: Path, run: Run) -> None:
    result = run("validate", misspelled, "--output-format=sarif")
    (problem,), (rule,) = sarif(result.out)
    assert (problem["ruleId"], problem["level"], rule["id"]) == ("MP301", "error", "MP301")
    place = problem["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "recipe.yaml"
    assert place["region"]["startColumn"] == 1


@pytest.mark.parametrize("verb", ["validate", "build"])
def test_success_prints_an_empty_log(verb: str, digits: Path, run: Run) -> None:
    result = run(verb, digits, "--output-format", "sarif")
    assert result.code == 0
    assert sarif(result.out) == ([], [])
    assert run(verb, digits, "--output-format", "github").out == ""


def test_target_findings_name_nodes(tmp_path: Path, run: Run) -> None:
    model = tmp_path / "model, 1.pb"
    write_graph(model, Graph([Node("x", "Placeholder"), Node("m", "MatrixDiagV3", ("x",))]))
    result = run("check-target", model, "--output-format", "sarif")
    findings, rules = sarif(result.out)
    assert result.code == 1
    assert {each["ruleId"] for each in findings} == {rule["id"] for rule in rules}
    of_op = [each for each in findings if each["ruleId"] == "MP103"]
    assert of_op[0]["locations"][0]["logicalLocations"] == [
        {"fullyQualifiedName": "m", "kind": "node"}
    ]
    annotated = run("check-target", model, "--output-format", "github").out
    assert "::error file=" in annotated
    assert "model%2C 1.pb,title=MP103::" in annotated


def test_json_format_equals_the_json_option(digits: Path, run: Run) -> None:
    named = run("validate", digits, "--output-format", "json")
    assert json.loads(named.out) == json.loads(run("validate", digits, "--json").out)


def test_unknown_format_is_refused(digits: Path, run: Run) -> None:
    result = run("validate", digits, "--output-format", "xml")
    assert result.code == 2
    assert "xml" in result.err


def test_usage_error_is_in_the_log(run: Run) -> None:
    result = run("validate", "--output-format", "sarif")
    assert result.code == 2
    assert sarif(result.out)[0][0]["ruleId"] == "MP202"


def test_watch_refuses_output_formats(digits: Path, run: Run) -> None:
    result = run("watch", digits, "--output-format", "github")
    assert result.code == 2
    assert "is not an option of watch" in result.out
