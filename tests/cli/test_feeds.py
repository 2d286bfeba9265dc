"""Values, strings, lists, and files in ``run --feed``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.arrays import read_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.cli.conftest import Run
from tests.ops.pictures import encoded
from tests.transforms.graphs import const, node


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
