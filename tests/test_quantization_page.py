"""The page on quantization: its examples of data are read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.plan.sources import data_files as planned_files
from mobileprep.building.stages.running import data_files
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import Dataset, SampleChoice
from mobileprep.formats.dtypes import DType
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.validation_settings import USUAL_LABELS
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.data.made import pictures, tf_record, write
from tests.ops.examples import example, integers_of, texts_of
from tests.ops.sounds import wav

PAGE = Path(__file__).parent.parent / "docs" / "quantization.md"
HEAD = "version: 1\nname: page\nsource: {frozen: model.pb}\ntargets: {phone: {}}\n"
CLASSES = b"cat\ndog\n"


def blocks(language: str) -> list[str]:
    section = PAGE.read_text(encoding="utf-8").split("\n## Data\n", 1)[1].split("\n## ", 1)[0]
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples read: eight samples of every kind."""
    top = tmp_path_factory.mktemp("page")
    x, y = np.random.default_rng(5).random((8, 8, 8, 1), np.float32), np.arange(8) % 2
    np.savez(top / "test.npz", image=x, label=y, pictures=x, digits=y)
    np.save(top / "pictures.npy", x)
    np.save(top / "labels.npy", y)
    write(top / "classes.txt", CLASSES)
    pictures(
        top / "photos", [f"{kind}/{at}.png" for kind in ("cat", "dog") for at in range(4)], 9, 9
    )
    for at in range(8):
        write(top / f"clips/{at % 2}/{at}.wav", wav(np.full((9, 1), at)))
    rows = "".join(f"{at},1,2,{('cat', 'dog')[at % 2]}\n" for at in range(8))
    write(top / "test.csv", f"a,b,c,kind\n{rows}".encode())
    encoded = [path.read_bytes() for path in sorted(top.glob("photos/*/*.png"))]
    records = [
        example(**{"image/encoded": texts_of(data), "image/class/label": integers_of(at % 2)})
        for at, data in enumerate(encoded)
    ]
    write(top / "records/part-00000-of-00001", tf_record(records))
    (code,) = blocks("python")
    write(top / "data.py", code.encode())
    return top


def opened(folder: Path, block: str) -> Dataset:
    recipe = load_recipe(folder / "recipe.yaml", environ={}, text=HEAD + block)
    validation = recipe.targets[0].validation
    assert validation is not None
    shape = (-1, 64) if "wav" in block else (-1, 3) if "csv" in block else (-1, 8, 8, 1)
    return open_dataset(
        data_files(planned_files(validation.data), validation.data),
        [FedTensor("image", DType.FLOAT, shape)],
        SampleChoice(validation.samples, validation.seed, validation.strict),
        labels=validation.metrics[0].labels or USUAL_LABELS,
        labelled=True,
    )


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.split("{")[-1][:20])
def test_every_example_of_data_is_read(folder: Path, block: str) -> None:
    dataset = opened(folder, block)
    batches = list(dataset.batches(100))
    assert sum(len(batch.names) for batch in batches) == (4 if "seed" in block else 8)
    for batch in batches:
        assert batch.labels is not None
        assert set(batch.labels.tolist()) == {0, 1}
        assert np.isfinite(batch.feeds["image"]).all()


def test_there_is_an_example_of_every_kind() -> None:
    text = "".join(blocks("yaml"))
    for kind in ("test.npz", "npz:", "npy:", "pictures:", "wav:", "csv:", "tfrecord:", "python:"):
        assert kind in text
