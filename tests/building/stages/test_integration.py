"""The integration stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.integration.run import run
from mobileprep.building.stages.integration.spec import IntegrationStage
from mobileprep.data.options import Reading
from mobileprep.errors import AccuracyError, InvalidGraphError, UnsupportedError
from mobileprep.recipe.model import Integration
from mobileprep.recipe.settings import InputSpec
from tests.building.stages.jobs import classifier, files, interface, job, op, slots


def integration(folder: Path, **changes: Any) -> Job[IntegrationStage]:
    parameters: dict[str, Any] = {
        "integration": Integration(("cpp", "java"), "org.example", "Digits", 3),
        "file": "m.pb",
        "artifact": "frozen",
        **changes,
    }
    graph = parameters.pop("graph", classifier())
    inputs = {"graph": graph, "interface": parameters.pop("interface", interface("y"))}
    return job(folder, IntegrationStage(**parameters, **slots("graph", "interface")), **inputs)


def code(done: Job[IntegrationStage], name: str) -> str:
    return (done.folder / "files/integration" / name).read_text()


def test_code_is_written_for_each_language(tmp_path: Path) -> None:
    done = integration(tmp_path, inputs=(InputSpec("x", None, (7, 3)),))
    run(done)
    assert 'kModelFile = "m.pb"' in code(done, "cpp/Digits.h")
    assert "PartialTensorShape({7, 3})" in code(done, "cpp/Digits.cc")
    assert "new float[21]" in code(done, "java/org/example/Digits.java")
    assert not list(done.folder.glob("files/*.txt"))


def test_class_names_are_written_next_to_the_model(tmp_path: Path) -> None:
    listed = tmp_path / "classes.txt"
    listed.write_text("zero\r\none \n\n")
    done = integration(tmp_path, labels="m_labels.txt", classes=files(listed))
    run(done)
    assert (done.folder / "files/m_labels.txt").read_bytes() == b"zero\none\n"
    assert '"m_labels.txt"' in code(done, "cpp/Digits.h")


@pytest.mark.parametrize(
    ("reading", "written"),
    [
        (Reading(), "(rgb[0] - 0.0f) / 255.0f"),
        (Reading(mean=(127.5,), std=(2.0, 3.0, 4.0)), "(rgb[0] - 127.5f) / 2.0f"),
    ],
)
def test_images_are_normalized_like_the_data(
    tmp_path: Path, reading: Reading, written: str
) -> None:
    done = integration(tmp_path, reading=reading)
    run(done)
    assert written in code(done, "cpp/Digits.cc")


def test_std_of_another_length_than_the_channels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="'std' has 2 numbers for 3 channels"):
        run(integration(tmp_path, reading=Reading(std=(1.0, 2.0))))


def test_unknown_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidGraphError, match="'no'"):
        run(integration(tmp_path, interface=interface("y", inputs=("no",))))


def test_unsupported_dtype_is_reported_with_its_position(tmp_path: Path) -> None:
    graph = classifier().with_nodes([*classifier(), op("words", "AsString", "y")])
    done = integration(tmp_path, graph=graph, interface=interface("words"))
    with pytest.raises(UnsupportedError, match="takes no string") as failure:
        run(done)
    assert failure.value.where == done.place("integration")
