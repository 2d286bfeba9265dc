"""Input files of steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.stages.transform.spec import named_files, plugin_file
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Step

TEXT = """
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {}}
outputs: [y]
transforms:
  - remove_device
  - sparsify_gather: {group_init_node: a, input_checkpoint: model/ckpt-1}
targets: {phone: {}}
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Step, ...]:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(TEXT)
    return load_recipe("recipe.yaml", environ={}).targets[0].transforms


def test_checkpoint_includes_all_its_files(steps: tuple[Step, ...]) -> None:
    plain, reading = steps
    assert named_files(plain) == {}
    assert plugin_file(plain) is None
    with pytest.raises(CorruptFileError, match="model/ckpt-1 does not exist"):
        named_files(reading)
    Path("model").mkdir()
    for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00001", "ckpt-10.index"):
        Path("model", name).write_text(name)
    ((slot, files),) = named_files(reading).items()
    assert slot == "parameter input_checkpoint"
    assert [f.name for f in files.members] == [
        "model/ckpt-1.data-00000-of-00001",
        "model/ckpt-1.index",
    ]
