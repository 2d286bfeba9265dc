"""The commands that docs/running.md shows, run as they stand there."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from mobileprep.cli.main import main
from mobileprep.formats.arrays import read_arrays
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from tests.cli.inception import EIGHT_BIT, inception
from tests.freezing.graphs import placeholder
from tests.freezing.saved import write_saved_model
from tests.ops.pictures import encoded
from tests.transforms.graphs import node

PAGE = Path(__file__).resolve().parents[2] / "docs" / "running.md"


def commands() -> list[list[str]]:
    """What stands behind each ``$ mobileprep``, as a shell takes it apart."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    return [
        shlex.split(line.replace("\\\n", ""))[1:]
        for line in lines
        if line.startswith("mobileprep ")
    ]


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the page names."""
    monkeypatch.chdir(tmp_path)
    write_graph(Path("inception.pb"), inception())
    image, keep = placeholder("image", -1, 4), placeholder("keep_prob", 1)
    made = [node("logits", "Mul", "image keep_prob"), node("probabilities", "Softmax", "logits")]
    write_graph(Path("model.pb"), Graph([image, keep, *made]))
    Path("exported").mkdir()
    write_saved_model(Path("exported"))
    Path("labels.txt").write_text("".join(f"label {i}\n" for i in range(7)))
    Path("photos").mkdir()
    Path("digits").mkdir()
    generator = np.random.default_rng(0)
    for number in range(3):
        pixels = generator.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Path(f"photos/{number}.jpg").write_bytes(encoded(pixels, "JPEG"))
        np.save(f"digits/{number}.npy", generator.random((1, 4), dtype=np.float32))
    Path("photos/0.jpg").rename("photo.jpg")
    Path("digits/0.npy").rename("digit.npy")
    flags = ["--in_graph=inception.pb", "--out_graph=quantized_graph.pb", "--inputs=Mul"]
    assert main(["transform", *flags, "--outputs=softmax", f"--transforms={EIGHT_BIT}"]) == 0


@pytest.mark.usefixtures("_files")
def test_every_command_of_the_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    shown = commands()
    assert len(shown) == 10
    capsys.readouterr()
    printed = []
    for command in shown:
        with contextlib.ExitStack() as stack:
            if "2>" in command:
                at = command.index("2>")
                log = stack.enter_context(Path(command[at + 1]).open("w"))
                stack.enter_context(contextlib.redirect_stderr(log))
                command = command[:at]
            assert main(command) == 0, command
        printed.append(capsys.readouterr().out)
    assert printed[0] == "y:0: float32[3] [10.0, 21.0, 32.0]\n"
    assert printed[1].startswith("label ")
    assert printed[2].startswith("photos/1.jpg:\nlabel ")
    assert sorted(read_arrays(Path("results.npz"))) == ["0/probabilities", "1/probabilities"]
    lines = Path("logged_ranges.txt").read_text().splitlines()
    assert len(lines) == 2 * sum(
        n.op == "Print" for n in read_graph(Path("logged_quantized_graph.pb"))
    )
    ops = {n.op for n in read_graph(Path("ranged_quantized_graph.pb"))}
    assert "RequantizationRange" not in ops
    assert "QuantizedConv2D" in ops
