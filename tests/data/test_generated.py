"""Samples from a Python function."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from mobileprep.data import generated
from mobileprep.data.options import Reading
from mobileprep.data.source import DataFiles
from mobileprep.errors import AccuracyError
from tests.data.made import all_of, fed, labels_of, opened, write

INPUTS = [fed((-1, 2))]
HEAD = "import numpy as np\ndef samples():\n"


def of(folder: Path, body: str, **options) -> DataFiles:
    path = write(folder / "data.py", (HEAD + body).encode())
    return DataFiles("data.py", path, None, Reading(**options))


def test_dictionaries_and_labels_are_read(tmp_path: Path) -> None:
    body = "    for i in range(3):\n        yield {'x': [i, 2 * i], 'more': 1}, i % 2\n"
    batch = all_of(opened(of(tmp_path, body), INPUTS, labels="label"))
    assert batch.feeds["x"].tolist() == [[0, 0], [1, 2], [2, 4]]
    assert batch.feeds["x"].dtype == np.float32
    assert labels_of(batch) == [0, 1, 0]


def test_labels_are_ignored_if_not_needed(tmp_path: Path) -> None:
    dataset = opened(of(tmp_path, "    return [({'x': [1, 2]}, 5), {'x': [3, 4]}]\n"), INPUTS)
    assert len(dataset) == 2
    assert all_of(dataset).labels is None


def test_endless_function_gives_its_first_samples(tmp_path: Path) -> None:
    body = "    i = 0\n    while True:\n        yield {'x': [i, i]}\n        i += 1\n"
    dataset = opened(of(tmp_path, body), INPUTS, samples=3)
    assert len(dataset) == 3
    assert all_of(dataset).feeds["x"][:, 0].tolist() == [0, 1, 2]
    part = next(dataset.batches(5, 1, 3))
    assert part.names == ("sample 1", "sample 2")


def test_endless_function_without_a_limit_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(generated, "MOST", 50)
    dataset = opened(of(tmp_path, "    while True:\n        yield {'x': [1, 2]}\n"), INPUTS)
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
    files = of(tmp_path, body)
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
        opened(of(tmp_path, "    yield\n", function="sample"), INPUTS)
    assert caught.value.hint == "did you mean 'samples'?"


def test_consecutive_parts_call_the_function_once(tmp_path: Path) -> None:
    body = "    with pathlib.Path(__file__).with_name('calls').open('a') as f:\n"
    body += "        f.write('1')\n"
    body += "    for i in range(9):\n        yield {'x': [i, i]}\n"
    files = of(tmp_path, body)
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
    files = of(tmp_path, "    for i in range(9):\n        yield {'x': [i, 2 * i]}\n")
    dataset = opened(files, INPUTS)
    sent = pickle.loads(pickle.dumps(dataset))
    assert len(sent) == 9
    assert all_of(sent).feeds["x"].tolist() == all_of(dataset).feeds["x"].tolist()
