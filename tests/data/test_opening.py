"""Detection of the format of data."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mobileprep.data import generated
from mobileprep.data.opening import data_kind
from mobileprep.data.options import Reading
from mobileprep.data.singles import Chosen
from mobileprep.data.source import Batch, DataFiles, SampleChoice, Unread, data_inputs
from mobileprep.errors import AccuracyError, CorruptFileError, MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.data.made import all_of, fed, labels_of, opened, write
from tests.ops.graphs import n, p
from tests.ops.sounds import wav


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("d.npz", "npz"),
        ("d.NPY", "npy"),
        ("d.csv", "csv"),
        ("d.tfrecord", "tfrecord"),
        ("d.py", "python"),
    ],
)
def test_format_follows_from_the_extension(tmp_path: Path, name: str, kind: str) -> None:
    assert data_kind(DataFiles(name, write(tmp_path / name, b""))) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a/b.JPG", "pictures"), ("b.wav", "wav"), ("train-00000-of-00001", "tfrecord")],
)
def test_format_of_a_directory_follows_from_its_files(tmp_path: Path, name: str, kind: str) -> None:
    write(tmp_path / "README.md", b"")
    write(tmp_path / name, b"")
    assert data_kind(DataFiles("d", tmp_path)) == kind


def test_arrays_are_detected_by_content(tmp_path: Path) -> None:
    with (tmp_path / "data").open("wb") as stream:
        np.savez(stream, x=np.ones(2))
    assert data_kind(DataFiles("data", tmp_path / "data")) == "npz"
    with (tmp_path / "data").open("wb") as stream:
        np.save(stream, np.ones(2))
    assert data_kind(DataFiles("data", tmp_path / "data")) == "npy"


def test_unknown_formats_are_reported(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"cannot detect the format of d\.bin"):
        data_kind(DataFiles("d.bin", write(tmp_path / "d.bin", b"?")))
    with pytest.raises(CorruptFileError, match="holds neither images nor audio"):
        data_kind(DataFiles("d", tmp_path))
    write(tmp_path / "a.png", b"")
    write(tmp_path / "a.wav", b"")
    with pytest.raises(CorruptFileError, match="holds pictures and wav"):
        data_kind(DataFiles("d", tmp_path))


X = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
Y = np.arange(5)


def saved(path: Path, **arrays: np.ndarray) -> DataFiles:
    np.savez(path, **arrays)
    return DataFiles("d.npz", path)


def test_arrays_are_inputs_and_labels(tmp_path: Path) -> None:
    files = saved(tmp_path / "d.npz", x=X.astype(np.float64), label=Y, more=X)
    batch = all_of(opened(files, [fed((-1, 3))], labels="label"))
    np.testing.assert_array_equal(batch.feeds["x"], X)
    assert batch.feeds["x"].dtype == np.float32
    assert labels_of(batch) == Y.tolist()
    assert batch.names[1] == "sample 1"


def test_arrays_and_labels_may_have_other_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", images=X, y=Y, label=Y * 0)
    files = DataFiles(
        "d", tmp_path / "d.npz", "npz", Reading(inputs=(("x", ("images",)),), labels="y")
    )
    batch = all_of(opened(files, [fed((-1, 3))], labels="label"))
    np.testing.assert_array_equal(batch.feeds["x"], X)
    assert labels_of(batch) == Y.tolist()


def test_npy_file_is_the_only_input_with_a_separate_labels_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    files = DataFiles("x.npy", tmp_path / "x.npy", labels=tmp_path / "y.npy")
    batch = all_of(opened(files, [fed((-1, 3))], labels="label", samples=2))
    np.testing.assert_array_equal(batch.feeds["x"], X[[0, 2]])
    assert labels_of(batch) == [0, 2]
    with pytest.raises(AccuracyError, match=r"x\.npy has no labels"):
        opened(DataFiles("x.npy", tmp_path / "x.npy"), [fed((-1, 3))], labels="label")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "lable": Y}, "d.npz has no array 'label'"),
        ({"x": X[:, :2], "label": Y}, r"takes the shape \[\?, 3\], and the array has \[5, 2\]"),
        ({"x": X.astype(complex), "label": Y}, "takes float32, and the array is complex128"),
        ({"x": X, "label": Y[:3]}, "3 labels, and x has 5"),
        ({"x": X[:0], "label": Y[:0]}, "0 labels, and x has 0"),
    ],
)
def test_mismatched_arrays_are_reported(tmp_path: Path, arrays: dict, message: str) -> None:
    with pytest.raises(AccuracyError, match=message):
        opened(saved(tmp_path / "d.npz", **arrays), [fed((-1, 3))], labels="label")


@pytest.mark.parametrize(
    ("arrays", "hint"),
    [
        ({"x": X}, "name the labels that it has by 'labels', or take a metric that needs none"),
        ({"pictures": X, "label": Y}, "save the array under that name, or name its own with"),
    ],
)
def test_missing_array_is_reported_with_a_hint(tmp_path: Path, arrays: dict, hint: str) -> None:
    with pytest.raises(AccuracyError) as caught:
        opened(saved(tmp_path / "d.npz", **arrays), [fed((-1, 3))], labels="label")
    assert caught.value.hint.startswith(hint)


def test_inputs_of_unequal_length_are_refused(tmp_path: Path) -> None:
    files = saved(tmp_path / "d.npz", x=X, z=X[:4])
    with pytest.raises(AccuracyError, match=r"do not fit together: x has 5, z has 4"):
        opened(files, [fed((-1, 3)), fed((-1, 3), name="z")])


def test_file_without_arrays_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.npz").write_bytes(b"text")
    with pytest.raises(CorruptFileError):
        opened(DataFiles("d.npz", tmp_path / "d.npz"), [fed((-1, 3))])


def test_strings_are_read(tmp_path: Path) -> None:
    files = saved(tmp_path / "d.npz", x=np.array(["a", "bc"]))
    batch = all_of(opened(files, [fed((-1,), DType.STRING)]))
    assert batch.feeds["x"].tolist() == ["a", "bc"]


class Numbers:
    """Samples that are their own numbers, and a count of batches that were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read_batches = 0

    def __len__(self) -> int:
        return self.count

    def read(self, indices: Sequence[int]) -> tuple[Batch, Sequence[Unread]]:
        self.read_batches += 1
        names = tuple(map(str, indices))
        return Batch({"x": np.array(indices)}, None, names), ()


def chosen_samples(count: int, choice: SampleChoice, size: int = 3) -> list[int]:
    dataset = Chosen("d", Numbers(count), choice, lambda _: None)
    return [int(i) for batch in dataset.batches(size) for i in batch.feeds["x"]]


def test_all_samples_are_read_in_order() -> None:
    assert chosen_samples(7, SampleChoice()) == list(range(7))


def test_fewer_samples_are_spread_evenly() -> None:
    assert chosen_samples(10, SampleChoice(4)) == [0, 2, 5, 7]


def test_seed_draws_one_reproducible_sample_of_each_part() -> None:
    indices = chosen_samples(1000, SampleChoice(10, 7))
    assert indices == chosen_samples(1000, SampleChoice(10, 7))
    assert indices != chosen_samples(1000, SampleChoice(10, 8))
    assert [at // 100 for at in indices] == list(range(10))


def test_too_few_samples_are_refused_unless_allowed() -> None:
    with pytest.raises(AccuracyError, match="d has 3 samples, and 4 are asked for") as caught:
        chosen_samples(3, SampleChoice(4))
    assert caught.value.hint == "add samples, or write 'samples: 3'"
    assert chosen_samples(3, SampleChoice(4, exactly=False)) == [0, 1, 2]


def test_empty_data_is_refused() -> None:
    with pytest.raises(AccuracyError, match="d holds no samples"):
        chosen_samples(0, SampleChoice())


def test_part_matches_the_same_range_of_the_whole() -> None:
    dataset = Chosen("d", Numbers(100), SampleChoice(10, 1), lambda _: None)
    whole = [name for batch in dataset.batches(4) for name in batch.names]
    part = [name for batch in dataset.batches(4, 3, 8) for name in batch.names]
    assert part == whole[3:8]


def test_one_batch_is_read_ahead() -> None:
    source = Numbers(100)
    batches = Chosen("d", source, SampleChoice(), lambda _: None).batches(10)
    next(batches)
    next(batches)
    batches.close()
    assert source.read_batches <= 3


TEXT = 'a,b,"the ""label""",note\r\n1,2.5,0,"one\ntwo"\r\n3,4,1,\r\n\r\n5,6,2,x'


def of(folder: Path, text: str = TEXT, **options) -> DataFiles:
    return DataFiles("d.csv", write(folder / "d.csv", text.encode()), "csv", Reading(**options))


def test_columns_are_inputs_with_quotes_and_line_ends(tmp_path: Path) -> None:
    files = of(tmp_path, inputs=(("x", ("b", "a")), ("t", ("note",))), labels='the "label"')
    batch = all_of(opened(files, [fed((-1, 2)), fed((-1,), DType.STRING, "t")], labels="label"))
    assert batch.feeds["x"].tolist() == [[2.5, 1], [4, 3], [6, 5]]
    assert batch.feeds["t"].tolist() == [b"one\ntwo", b"", b"x"]
    assert labels_of(batch) == [0, 1, 2]
    assert batch.names == ("line 2", "line 4", "line 6")


def test_single_input_gets_all_columns_except_the_labels(tmp_path: Path) -> None:
    files = of(tmp_path, "7;1;2;3;4\n8;5;6;7;8\n", header=False, delimiter="semicolon", labels="0")
    batch = all_of(opened(files, [fed((-1, 2, 2, 1))], labels="label"))
    assert batch.feeds["x"].reshape(2, 4).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert labels_of(batch) == [7, 8]


def test_columns_are_matched_to_inputs_by_name(tmp_path: Path) -> None:
    batch = all_of(opened(of(tmp_path), [fed((-1,), DType.INT32, "a"), fed((-1, 1), name="b")]))
    assert batch.feeds["a"].tolist() == [1, 3, 5]
    assert batch.feeds["b"].tolist() == [[2.5], [4], [6]]


def test_labels_may_be_class_names(tmp_path: Path) -> None:
    classes = write(tmp_path / "c.txt", b"cat\ndog\n")
    files = DataFiles("d", write(tmp_path / "d.csv", b"x,label\n1,dog\n2,cat\n"), classes=classes)
    batch = all_of(opened(files, [fed((-1,))], labels="label"))
    assert labels_of(batch) == [1, 0]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (TEXT, {"inputs": (("x", ("aa",)),)}, "d.csv has no column 'aa'; it has a, b, the"),
        (TEXT, {"inputs": (("z", ("a",)),)}, "'inputs' names the input 'z'; the model has x"),
        ("a,b\n1,x\n", {}, "d.csv: 1 of 1 samples .* line 2 .*'x' is not a number"),
        ("a,b\n1\n", {}, "has 1 columns, and the first row 2"),
        ("a,b\n", {}, "d.csv holds no samples"),
        ("", {}, "d.csv holds no samples"),
        ("a\n1\n", {}, r"takes the shape \[\?, 2\], and the sample has \[1\]"),
        ("a,b\n1,2\n", {"labels": "c"}, "d.csv has no column 'c'"),
    ],
)
def test_invalid_rows_and_options_are_reported(
    tmp_path: Path, text: str, options: dict, message: str
) -> None:
    with pytest.raises(MobileprepError, match=message):
        all_of(opened(of(tmp_path, text, **options), [fed((-1, 2))], labels=options.get("labels")))


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    files = DataFiles("d", write(tmp_path / "d.csv", b"a\n\xff\n"))
    with pytest.raises(CorruptFileError, match="is not valid UTF-8 in line 2"):
        opened(files, [fed((-1,))])


def test_integers_beyond_the_dtype_are_refused(tmp_path: Path) -> None:
    files = of(tmp_path, f"x\n{1 << 70}\n")
    with pytest.raises(AccuracyError, match="has a number that int32 cannot hold"):
        all_of(opened(files, [fed((-1,), DType.INT32)]))


def graph(predicate: str) -> Graph:
    nodes = [p("x"), p("on", np.bool_), p("off", np.bool_), n("not", "LogicalNot", "off")]
    switch = n("switch", "Switch", "x", predicate)
    return Graph([*nodes, switch, n("y", "Merge", "switch:0", "switch:1")])


@pytest.mark.parametrize(
    ("predicate", "on", "off"), [("on", (), None), ("off", None, ()), ("not", None, None)]
)
def test_predicate_of_a_switch_is_a_scalar(predicate: str, on: object, off: object) -> None:
    inputs = data_inputs(graph(predicate), ["x", "on", "off"], {})
    assert [fed.shape for fed in inputs] == [None, on, off]


def test_declared_shape_takes_precedence() -> None:
    (fed,) = data_inputs(graph("on"), ["on"], {"on": (1,)})
    assert fed.shape == (1,)


TONE = np.array([[0], [16384], [-32768], [32767]])
FLOATS = [0.0, 0.5, -1.0, 32767 / 32768]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "no/1.wav", wav(TONE))
    write(tmp_path / "yes/2.wav", wav(TONE[::-1]))
    return tmp_path


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ((-1, 4), {}, FLOATS),
        ((-1, 6), {}, [*FLOATS, 0, 0]),
        ((-1, 2), {}, FLOATS[:2]),
        ((6, 1), {}, [[f] for f in [*FLOATS, 0, 0]]),
        ((-1, 4, 1), {}, [[f] for f in FLOATS]),
        ((-1, -1, 2), {"desired_channels": 2}, [[f, f] for f in FLOATS]),
        ((-1, -1), {"desired_samples": 3}, FLOATS[:3]),
        ((-1,), {}, FLOATS),
        (None, {}, [[f] for f in FLOATS]),
    ],
)
def test_audio_has_the_shape_of_the_input(folder, shape, options, expected) -> None:
    files = DataFiles("clips", folder, None, Reading(**options))
    batch = all_of(opened(files, [fed(shape)], labels="label"))
    np.testing.assert_array_equal(batch.feeds["x"][0], np.array(expected, np.float32))
    assert (labels_of(batch), batch.names) == ([0, 1], ("no/1.wav", "yes/2.wav"))


def test_string_inputs_get_the_file_content(folder) -> None:
    batch = all_of(opened(DataFiles("clips", folder, "wav"), [fed((), DType.STRING)]))
    assert batch.feeds["x"].tolist() == [wav(TONE), wav(TONE[::-1])]


INPUTS = [fed((-1, 2))]
HEAD = "import numpy as np\ndef samples():\n"


def generated_of(folder: Path, body: str, **options) -> DataFiles:
    path = write(folder / "data.py", (HEAD + body).encode())
    return DataFiles("data.py", path, None, Reading(**options))


def test_dictionaries_and_labels_are_read(tmp_path: Path) -> None:
    body = "    for i in range(3):\n        yield {'x': [i, 2 * i], 'more': 1}, i % 2\n"
    batch = all_of(opened(generated_of(tmp_path, body), INPUTS, labels="label"))
    assert batch.feeds["x"].tolist() == [[0, 0], [1, 2], [2, 4]]
    assert batch.feeds["x"].dtype == np.float32
    assert labels_of(batch) == [0, 1, 0]


def test_labels_are_ignored_if_not_needed(tmp_path: Path) -> None:
    dataset = opened(
        generated_of(tmp_path, "    return [({'x': [1, 2]}, 5), {'x': [3, 4]}]\n"), INPUTS
    )
    assert len(dataset) == 2
    assert all_of(dataset).labels is None


def test_endless_function_gives_its_first_samples(tmp_path: Path) -> None:
    body = "    i = 0\n    while True:\n        yield {'x': [i, i]}\n        i += 1\n"
    dataset = opened(generated_of(tmp_path, body), INPUTS, samples=3)
    assert len(dataset) == 3
    assert all_of(dataset).feeds["x"][:, 0].tolist() == [0, 1, 2]
    part = next(dataset.batches(5, 1, 3))
    assert part.names == ("sample 1", "sample 2")


def test_endless_function_without_a_limit_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(generated, "MOST", 50)
    dataset = opened(
        generated_of(tmp_path, "    while True:\n        yield {'x': [1, 2]}\n"), INPUTS
    )
    with pytest.raises(
        AccuracyError, match="samples does not end: it yielded 50 samples"
    ) as caught:
        len(dataset)
    assert caught.value.hint == "let it end, or say how many: 'samples'"


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("    yield {'x': [1, 2]}, 0\n    raise KeyError('k')\n", "KeyError: 'k', after 1 sam", 4),
        ("    raise SystemExit(0)\n    yield\n", "the data function ended the program", 3),
        ("    return 5\n", "TypeError: 'int' object is not iterable", 0),
        ("    yield from ()\n", "data.py: samples holds no samples", 0),
        ("    yield {'x': [1, 2, 3]}, 0\n", r"sample 0: .* and the sample has \[3\]", 0),
        ("    yield {'y': [1, 2]}, 0\n", "sample 0 has no array 'x'; it has y", 0),
        ("    yield [1, 2], 0\n", "sample 0 is list, not a dictionary of arrays", 0),
        ("    yield {'x': [1, 2]}\n", "sample 0 has no label", 0),
        ("    yield {'x': [1, [2]]}, 0\n", "sample 0 is not an array", 0),
        ("    yield {'x': [None, object()]}, 0\n", "sample 0 holds Python objects", 0),
        ("    yield {'x': ['a', 'b']}, 0\n", "takes float32, and the sample is <U1", 0),
        ("    yield {'x': [1, 2]}, 0\n", "has 1 samples, and 2 are asked for", 0),
        ("    oops\n", "NameError", 3),
    ],
)
def test_errors_are_reported_with_their_line(
    tmp_path: Path, body: str, message: str, line: int
) -> None:
    files = generated_of(tmp_path, body)
    samples = 2 if "asked for" in message else None
    with pytest.raises(AccuracyError, match=message) as caught:
        list(opened(files, INPUTS, labels="label", samples=samples).batches(4))
    if line:
        assert caught.value.where == f"{files.root}:{line}"
    assert caught.value.hint


def test_syntax_error_is_reported_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "data.py", b"x = 1\ndef samples(:\n")
    with pytest.raises(AccuracyError, match="SyntaxError") as caught:
        opened(DataFiles("data.py", path), INPUTS)
    assert caught.value.where == f"{path}:2"


def test_misspelled_function_suggests_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match=r"data\.py has no function 'sample'") as caught:
        opened(generated_of(tmp_path, "    yield\n", function="sample"), INPUTS)
    assert caught.value.hint == "did you mean 'samples'?"


def test_consecutive_parts_call_the_function_once(tmp_path: Path) -> None:
    body = "    with pathlib.Path(__file__).with_name('calls').open('a') as f:\n"
    body += "        f.write('1')\n"
    body += "    for i in range(9):\n        yield {'x': [i, i]}\n"
    files = generated_of(tmp_path, body)
    files.root.write_text("import pathlib\n" + files.root.read_text())
    dataset = opened(files, INPUTS, samples=9)

    def names(start: int, stop: int) -> list[str]:
        return [name for batch in dataset.batches(2, start, stop) for name in batch.names]

    for start, stop in ((0, 3), (3, 6), (7, 9)):
        assert names(start, stop) == [f"sample {at}" for at in range(start, stop)]
    assert (tmp_path / "calls").read_text() == "1"
    # Reading an earlier part calls the function again.
    for start, stop in ((7, 9), (2, 4), (0, 1)):
        assert names(start, stop) == [f"sample {at}" for at in range(start, stop)]
    assert (tmp_path / "calls").read_text() == "1111"


def test_unpickled_data_set_calls_the_function_again(tmp_path: Path) -> None:
    files = generated_of(tmp_path, "    for i in range(9):\n        yield {'x': [i, 2 * i]}\n")
    dataset = opened(files, INPUTS)
    sent = pickle.loads(pickle.dumps(dataset))
    assert len(sent) == 9
    assert all_of(sent).feeds["x"].tolist() == all_of(dataset).feeds["x"].tolist()
