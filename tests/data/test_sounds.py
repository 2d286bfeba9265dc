"""Directories of audio files as samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.options import Reading
from mobileprep.data.source import DataFiles
from mobileprep.formats.dtypes import DType
from tests.data.made import all_of, fed, labels_of, opened, write
from tests.ops.sounds import wav

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
