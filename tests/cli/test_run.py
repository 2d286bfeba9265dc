"""The verb ``run``."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from mobileprep.cli._shared.results import printer
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.ops.context import Printed
from tests.cli.conftest import Run
from tests.ops.pictures import encoded
from tests.ops.sounds import wav
from tests.transforms.graphs import const, node

# Red, green and blue halves, so that a class is a colour.
RED = np.zeros((6, 10, 3), np.uint8) + np.array([255, 51, 0], np.uint8)


def image_input(name: str, *shape: int) -> Node:
    attrs = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape(shape)}
    return Node(name, "Placeholder", attrs=attrs)


def colours(name: str = "input", out: str = "scores", side: int = 4) -> Graph:
    """The mean of each colour channel, as the scores of three classes."""
    return Graph(
        [
            image_input(name, -1, side, side, 3),
            const("axes", [1, 2], np.int32),
            node(out, "Mean", f"{name} axes", Tidx=DType.INT32, keep_dims=False),
        ]
    )


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    write_graph(tmp_path / "graph.pb", colours())
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


def test_a_picture_is_labelled_in_one_command(
    run: Run, graph: Path, photo: Path, labels: Path
) -> None:
    told = run("run", f"--graph={graph}", f"--image={photo}", f"--labels={labels}")
    assert told.code == 0
    assert told.out == "red (0): 1\ngreen (1): 0.2\nblue (2): 0\n"


def test_the_original_flags_in_both_spellings(run: Run, tmp_path: Path, photo: Path) -> None:
    write_graph(tmp_path / "other.pb", colours("Mul", "final_result"))
    told = run(
        *("run", "--root_dir", tmp_path, "--graph=other.pb", f"--image={photo.name}"),
        *("--input_width=4", "--input-height", "4", "--input_mean=128", "--input-std=128"),
        *("--input_layer=Mul", "--output-layer=final_result:0", "--top=1"),
    )
    assert (told.code, told.out) == (0, "(0): 0.992188\n")


def test_layers_and_size_follow_from_a_graph_that_leaves_no_choice(
    run: Run, tmp_path: Path, photo: Path
) -> None:
    write_graph(tmp_path / "odd.pb", colours("any", "thing", side=7))
    told = run("run", "--graph", tmp_path / "odd.pb", "--image", photo, "--json")
    assert json.loads(told.out)["outputs"][0]["name"] == "thing"


def test_a_layer_that_is_not_there_is_refused(run: Run, graph: Path, photo: Path) -> None:
    told = run("run", "--graph", graph, "--image", photo, "--input_layer=inputt")
    assert told.code == 2
    assert "help: did you mean 'input'?" in told.err


def test_the_self_test_looks_for_the_originals_class(run: Run, graph: Path, photo: Path) -> None:
    told = run("run", "--graph", graph, "--image", photo, "--self_test")
    assert told.code == 8
    assert "class 653 should come first, and 0 does" in told.err


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """The sum of two placeholders."""
    x, y = image_input("x", -1, 2), image_input("y", 2)
    write_graph(tmp_path / "plain.pb", Graph([x, y, node("out", "AddV2", "x y")]))
    return tmp_path / "plain.pb"


def test_arrays_are_fed_and_results_written(run: Run, plain: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32([[1, 2], [3, 4]]))
    write_arrays(tmp_path / "more.npz", {"y": np.float32([10, 20]), "z": np.float32([0])})
    told = run(
        *("run", "--graph", plain, "--feed", f"x={tmp_path / 'x.npy'}"),
        *("--feed", f"y={tmp_path / 'more.npz'}", "--fetch=out,x", "--out", tmp_path / "o.npz"),
    )
    assert told.out.splitlines() == [
        "out: float32[2, 2] [[11.0, 22.0], [13.0, 24.0]]",
        "x: float32[2, 2] [[1.0, 2.0], [3.0, 4.0]]",
    ]
    with np.load(tmp_path / "o.npz") as written:
        np.testing.assert_array_equal(written["out"], [[11, 22], [13, 24]])
        assert sorted(written) == ["out", "x"]


def test_random_values_are_the_same_each_time(run: Run, plain: Path) -> None:
    feeds = ("run", "--graph", plain, "--feed=x=random:3,2", "--feed=y=random")
    first = run(*feeds)
    assert first.out == run(*feeds).out
    assert first.out.startswith("out: float32[3, 2]")
    assert first.out != run(*feeds, "--seed=1").out


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", [[12.0, 12.0]]), ("-0.5,2", [[10.5, 13.0]]), ("true", [[12.0, 12.0]])],
)
def test_numbers_are_fed_as_they_are_written(
    run: Run, plain: Path, text: str, expected: list[list[float]]
) -> None:
    told = run("run", "--graph", plain, f"--feed=x={text}", "--feed=y=11", "--json")
    assert json.loads(told.out)["outputs"][0]["values"] == expected


@pytest.mark.parametrize(
    ("dtype", "text", "told"),
    [
        (DType.INT32, "1.5", "takes int32, not 1.5"),
        (DType.UINT8, "256", "takes uint8, not 256"),
        (DType.INT64, "1,nan", "takes int64, not 1, nan"),
        (DType.BOOL, "2", "takes bool, not 2"),
    ],
)
def test_numbers_must_fit_the_type(
    run: Run, tmp_path: Path, dtype: DType, text: str, told: str
) -> None:
    nodes = [node("x", "Placeholder", T=None, dtype=dtype), node("out", "Identity", "x", T=dtype)]
    write_graph(tmp_path / "g.pb", Graph(nodes))
    refused = run("run", "--graph", tmp_path / "g.pb", f"--feed=x={text}")
    assert refused.code == 2
    assert told in refused.err
    assert run("run", "--graph", tmp_path / "g.pb", "--feed=x=1").code == 0


def test_an_array_is_named_within_its_file_and_fitted_in_width(
    run: Run, plain: Path, tmp_path: Path
) -> None:
    write_arrays(tmp_path / "two.npz", {"a": np.array([[1, 2]]), "b": np.array([0.5, 1])})
    told = run(
        *("run", "--graph", plain, "--feed", f"x={tmp_path / 'two.npz:a'}"),
        *("--feed", f"y={tmp_path / 'two.npz:b'}"),
    )
    assert told.out == "out: float32[1, 2] [[1.5, 3.0]]\n"
    told = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'two.npz:c'}")
    assert (told.code, "has no array 'c'; it has a, b" in told.err) == (2, True)


def test_a_seed_reaches_what_the_graph_draws(run: Run, tmp_path: Path) -> None:
    nodes = [const("shape", [3], np.int32), node("out", "RandomUniform", "shape", T=DType.INT32)]
    nodes[1] = nodes[1].with_attrs(dtype=attr.dtype(DType.FLOAT))
    write_graph(tmp_path / "g.pb", Graph(nodes))
    command = ("run", "--graph", tmp_path / "g.pb")
    assert run(*command).code == 6
    first = run(*command, "--seed=1")
    assert first.code == 0
    assert run(*command, "--seed=1").out == first.out != run(*command, "--seed=2").out


def test_people_are_shown_the_digits_of_single_precision(run: Run, plain: Path) -> None:
    told = run("run", "--graph", plain, "--feed=x=0.1", "--feed=y=0.2")
    assert told.out == "out: float32[1, 2] [[0.3, 0.3]]\n"


def test_names_do_nothing_to_a_terminal(run: Run, tmp_path: Path) -> None:
    named = "a\x1b[2J\nb"
    write_graph(tmp_path / "named.pb", Graph([image_input("x", 1), const(named, [1.0], "f4")]))
    told = run("run", "--graph", tmp_path / "named.pb", "--feed=x=1", "--fetch", named)
    assert told.out == "a\\x1b[2J\\nb: float32[1] [1.0]\n"


def test_json_tells_results_and_classes(run: Run, graph: Path, photo: Path, labels: Path) -> None:
    told = run("run", "--graph", graph, "--image", photo, "--labels", labels, "--json", "--top=1")
    data = json.loads(told.out)
    assert data["engine"] == "numpy"
    assert data["top"] == [[{"index": 0, "label": "red", "score": 1.0}]]
    [output] = data["outputs"]
    assert (output["dtype"], output["shape"], output["max"]) == ("float32", [1, 3], 1.0)


def test_what_is_no_number_is_valid_json(run: Run, plain: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32([[np.nan, np.inf]]))
    told = run(
        *("run", "--graph", plain, "--feed", f"x={tmp_path / 'x.npy'}", "--feed=y=random", "--json")
    )
    assert json.loads(told.out)["outputs"][0]["values"] == [["nan", "inf"]]


def test_infinities_of_both_signs_have_no_mean(run: Run, plain: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32([[-np.inf, np.inf]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'x.npy'}", "--feed=y=0")
    assert told.out == "out: float32[1, 2] [['-inf', 'inf']]\n"


@pytest.mark.slow
def test_the_engine_is_told_where_it_was_chosen(run: Run, graph: Path, photo: Path) -> None:
    told = run("run", "--graph", graph, "--image", photo, "--engine=auto")
    assert "note: the engine is " in told.err


def text_input(name: str) -> Node:
    return Node(name, "Placeholder", attrs={"dtype": attr.dtype(DType.STRING)})


def test_text_is_fed_the_bytes_of_a_file(run: Run, tmp_path: Path, photo: Path) -> None:
    decode = node("pixels", "DecodePng", "contents", T=None, channels=3)
    write_graph(tmp_path / "decode.pb", Graph([text_input("contents"), decode]))
    told = run(
        *("run", "--graph", tmp_path / "decode.pb", "--feed", f"contents={photo}"),
        *("--out", tmp_path / "o.npz"),
    )
    assert told.out == "pixels: uint8[6, 10, 3] from 0 to 255, mean 102\n"
    with np.load(tmp_path / "o.npz") as written:
        np.testing.assert_array_equal(written["pixels"], RED)


def test_a_placeholder_without_a_batch_is_fed_one_picture(
    run: Run, tmp_path: Path, photo: Path
) -> None:
    pixels = image_input("pixels", -1, 5, 3)
    write_graph(tmp_path / "g.pb", Graph([pixels, node("out", "Identity", "pixels")]))
    told = run("run", "--graph", tmp_path / "g.pb", "--feed", f"pixels={photo}", "--json")
    assert json.loads(told.out)["outputs"][0]["shape"] == [299, 5, 3]


def test_sound_is_decoded_and_fitted_to_the_placeholder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(np.array([[16384], [-16384]])))
    for shape, expected in (((1, 3), [[0.5, -0.5, 0]]), ((-1, 1), [[0.5], [-0.5]])):
        samples = image_input("samples", *shape)
        graph = Graph([samples, node("out", "Identity", "samples")])
        write_graph(tmp_path / "sound.pb", graph)
        told = run(
            *("run", "--graph", tmp_path / "sound.pb", "--json"),
            *("--feed", f"samples={tmp_path / 'a.wav'}"),
        )
        assert json.loads(told.out)["outputs"][0]["values"] == expected


def test_texts_are_shown_and_written(run: Run, tmp_path: Path) -> None:
    write_graph(
        tmp_path / "text.pb",
        Graph([text_input("a"), node("out", "StringUpper", "a", T=None)]),
    )
    (tmp_path / "word").write_text("word")
    told = run(
        *("run", "--graph", tmp_path / "text.pb", "--feed", f"a={tmp_path / 'word'}"),
        *("--out", tmp_path / "o.npz"),
    )
    assert told.out == "out: string[] WORD\n"
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
def test_arguments_that_do_not_fit_are_refused(
    run: Run, plain: Path, arguments: list[str], message: str
) -> None:
    told = run("run", "--graph", plain, *arguments)
    assert (told.code, told.out) == (2, "")
    assert message in told.err


def test_files_that_do_not_fit_are_refused(run: Run, plain: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1 2")
    told = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'x.txt'}")
    assert told.code == 2
    assert "the extension determines the format" in told.err
    told = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'none.npy'}")
    assert told.code == 4
    assert "none.npy: cannot be read" in told.err
    write_arrays(tmp_path / "two.npz", {"a": np.zeros(2), "b": np.zeros(2)})
    told = run("run", "--graph", plain, "--feed", f"x={tmp_path / 'two.npz'}")
    assert told.code == 2
    assert "has no array 'x'; it has a, b" in told.err


@pytest.mark.parametrize("name", ["photo.png", "photo.jpg", "sound.wav"])
def test_damaged_files_are_named(run: Run, graph: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n" if name.endswith("png") else b"nothing")
    told = run("run", "--graph", graph, "--feed", f"input={tmp_path / name}")
    assert (told.code, told.out) == (4, "")
    assert f"error: {tmp_path / name}" in told.err


def test_scores_need_a_number_for_each_class(run: Run, plain: Path, labels: Path) -> None:
    told = run(
        *("run", "--graph", plain, "--feed=x=random:0,2", "--feed=y=random"),
        *("--labels", labels),
    )
    assert told.code == 2
    assert "has no scores" in told.err


def telling(path: Path, stream: str, text: str) -> Path:
    """A graph that prints a text of its own."""
    told = const("text", text.encode(), object)
    show = node("show", "PrintV2", "text", T=None, output_stream=stream)
    one = const("one", 1.0)
    write_graph(path / "g.pb", Graph([told, show, one, node("y", "Identity", "one ^show")]))
    return path / "g.pb"


@pytest.mark.parametrize(
    ("stream", "out", "err"),
    [
        ("stdout", "hello\ny: float32[] 1.0\n", ""),
        ("stderr", "y: float32[] 1.0\n", "hello\n"),
        ("log(warning)", "y: float32[] 1.0\n", "warning: hello\n"),
    ],
)
def test_a_graph_prints_where_it_says(
    run: Run, tmp_path: Path, stream: str, out: str, err: str
) -> None:
    told = run("run", "--graph", telling(tmp_path, stream, "hello"), "--fetch=y")
    assert (told.code, told.out, told.err) == (0, out, err)


def test_a_graph_writes_no_file(run: Run, tmp_path: Path) -> None:
    graph = telling(tmp_path, f"file://{tmp_path}/written", "hello")
    told = run("run", "--graph", graph, "--fetch=y")
    assert told.err == f"not written to file://{tmp_path}/written: hello\n"
    assert not (tmp_path / "written").exists()


def test_what_a_graph_prints_does_not_get_into_json(run: Run, tmp_path: Path) -> None:
    told = run("run", "--graph", telling(tmp_path, "stdout", "hello"), "--fetch=y", "--json")
    assert json.loads(told.out)["outputs"][0]["values"] == 1.0
    assert told.err == "hello\n"


def test_a_graph_cannot_steer_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", out)
    printer(is_result_data=False)(Printed("p", "stderr", "\x1b[2J\tß\n"))
    out.flush()
    assert out.buffer.getvalue() == b"\\x1b[2J\t\\xdf\n"


@pytest.mark.parametrize(("engine", "title"), [("openvino", "OpenVINO"), ("litert", "LiteRT")])
def test_an_engine_that_prints_nothing_is_refused_where_the_graph_prints(
    run: Run, tmp_path: Path, engine: str, title: str
) -> None:
    graph = telling(tmp_path, "stderr", "hello")
    told = run("run", "--graph", graph, "--fetch=y", f"--engine={engine}")
    assert told.code == 6
    assert f"{title} prints nothing, which the graph does at 'show'" in told.err
    told = run("run", "--graph", graph, "--fetch=y", "--engine=auto")
    assert told.err == "hello\nnote: the engine is numpy\n"
