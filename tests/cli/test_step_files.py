"""Files that transforms read are found next to the recipe and tracked for changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.checkpoint_reader import slice_key
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run, replace_text
from tests.formats.checkpoint_writer import v1_meta, v1_table, v1_value, write_bundle
from tests.transforms.graphs import const, node, placeholder

RANGE = {"T": None, "Tinput": DType.QINT32}
GATHER = {"T": None, "Tparams": DType.FLOAT, "Tindices": DType.INT64}
COLUMN = np.array([[0], [3], [0], [0], [0], [-2]], np.float32)


def requantizing() -> Graph:
    return Graph(
        [
            placeholder(kind=DType.QINT32),
            const("low", -4),
            const("high", 4),
            node("range", "RequantizationRange", "x low high", **RANGE),
            node(
                "out", "Requantize", "x low high range range:1", **RANGE, out_type=DType.QUINT8
            ).without_attrs("T"),
        ]
    )


def looking_up() -> Graph:
    return Graph(
        [
            placeholder("ids", DType.INT64),
            node("w", "VariableV2", T=None, dtype=DType.FLOAT),
            node("w/read", "Identity", "w"),
            const("prefix", b"ckpt", object),
            const("save/names", [b"w"], object),
            const("save/slices", [b""], object),
            node("save/Restore", "RestoreV2", "prefix save/names save/slices", T=None),
            node("save/Assign", "Assign", "w save/Restore"),
            node("save/all", "NoOp", "^save/Assign", T=None),
            node("out", "Gather", "w/read ids", **GATHER),
        ]
    )


def line(low: float, high: float) -> str:
    return f";range__print__;__requant_min_max:[{low}][{high}]\n"


RANGES = """
version: 1
name: ranges
source: {frozen: ../models/requantizing.pb}
inputs: {x: {}}
outputs: [out]
transforms:
  - strip_unused_nodes
  - freeze_requantization_ranges: {min_max_log_file: logs/run.txt}
  - sort_by_execution_order
targets: {phone: {}}
"""
LOOK_UPS = """
version: 1
name: lookups
source: {graph: ../models/looking_up.pb, checkpoint: ../models/trained}
freeze: {variable_names_blacklist: [w]}
inputs: {ids: {}}
outputs: [out, save/all]
transforms: 'sparsify_gather(input_checkpoint="weights/tuned")'
targets: {phone: {}}
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with both recipes, which are built from another directory."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    for folder in ("models", "app/logs", "app/weights", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_graph(tmp_path / "models" / "requantizing.pb", requantizing())
    write_graph(tmp_path / "models" / "looking_up.pb", looking_up())
    write_bundle(tmp_path / "models" / "trained", {"w": np.zeros((6, 1), np.float32)})
    write_bundle(tmp_path / "app" / "weights" / "tuned", {"w": COLUMN}, shards=2)
    (tmp_path / "app" / "logs" / "run.txt").write_text(line(-1.5, 2.5))
    (tmp_path / "app" / "ranges.yaml").write_text(RANGES)
    (tmp_path / "app" / "lookups.yaml").write_text(LOOK_UPS)
    return tmp_path / "app"


def stages_run(progress: str) -> list[str]:
    """The stages in the progress output of a build."""
    return [line.split(" ")[0] for line in progress.splitlines() if line.endswith(" s")][:-1]


def upper(app: Path) -> float:
    graph = read_graph(app.parent / "elsewhere" / "out" / "ranges" / "phone" / "ranges.pb")
    return float(graph["range/frozen_max"].attr_tensor("value").array())


def values(app: Path) -> list[float]:
    graph = read_graph(app.parent / "elsewhere" / "out" / "lookups" / "phone" / "lookups.pb")
    result: list[float] = graph["w/values"].attr_tensor("value").array().tolist()
    return result


def build(run: Run, app: Path, name: str) -> list[str]:
    """Build a recipe and return the stages that ran."""
    result = run("build", app / f"{name}.yaml")
    assert result.code == 0, result.err
    return stages_run(result.err)


def test_edited_log_reruns_its_step_and_later_ones(app: Path, run: Run) -> None:
    assert len(build(run, app, "ranges")) == 8
    assert upper(app) == 2.5
    assert build(run, app, "ranges") == []
    (app / "logs" / "run.txt").write_text(line(-1.5, 7))
    result = run("build", app / "ranges.yaml", "--dry-run").err
    assert "input parameter min_max_log_file:logs/run.txt has changed" in result
    assert {*build(run, app, "ranges")} == {
        "ranges/02-freeze_requantization_ranges",
        "ranges/03-sort_by_execution_order",
        "ranges/phone/nodes",
        "ranges/phone/package",
        "ranges/phone/compress",
    }
    assert upper(app) == 7


def test_irrelevant_edit_of_a_log_reruns_only_its_step(app: Path, run: Run) -> None:
    build(run, app, "ranges")
    (app / "logs" / "run.txt").write_text(line(-1.5, 2.5) + "done\n")
    assert build(run, app, "ranges") == ["ranges/02-freeze_requantization_ranges"]


def test_all_files_of_a_checkpoint_are_tracked(app: Path, run: Run) -> None:
    build(run, app, "lookups")
    assert values(app) == [3, -2]
    assert build(run, app, "lookups") == []
    write_bundle(app / "weights" / "tuned", {"w": COLUMN * 2}, shards=2)
    assert {*build(run, app, "lookups")} == {
        "lookups/01-sparsify_gather",
        "lookups/phone/nodes",
        "lookups/phone/package",
        "lookups/phone/compress",
    }
    assert values(app) == [6, -4]
    shard = app / "weights" / "tuned.data-00001-of-00002"
    shard.write_bytes(shard.read_bytes() + b"\0")
    assert build(run, app, "lookups") == ["lookups/01-sparsify_gather"]


def test_checkpoint_in_another_directory_is_not_read(app: Path, run: Run) -> None:
    (app / "lookups.yaml").write_text(LOOK_UPS.replace("weights/tuned", "weights/checkpoint"))
    state = app / "weights" / "checkpoint"
    write_bundle(app.parent / "elsewhere" / "tuned", {"w": COLUMN * 9})
    state.write_text(f'model_checkpoint_path: "{app.parent}/elsewhere/tuned"\n')
    build(run, app, "lookups")
    assert values(app) == [3, -2]
    for path in (app / "weights").glob("tuned*"):
        path.unlink()
    result = run("build", app / "lookups.yaml")
    assert result.code == 4
    assert "elsewhere/tuned', which is not next to it" in result.err


def test_v1_checkpoint_is_read(app: Path, run: Run) -> None:
    for path in (app / "weights").iterdir():
        path.unlink()

    def write(weights: np.ndarray) -> None:
        key = slice_key("w", [(0, -1), (0, -1)])
        table = v1_table(v1_meta({"w": weights}), {key: v1_value("w", weights)})
        (app / "weights" / "tuned").write_bytes(table)

    write(COLUMN)
    build(run, app, "lookups")
    assert values(app) == [3, -2]
    write(COLUMN * 3)
    build(run, app, "lookups")
    assert values(app) == [9, -6]


@pytest.mark.parametrize("verb", ["build", "validate", "plan"])
@pytest.mark.parametrize(
    ("recipe", "typo", "place", "near"),
    [
        ("ranges", ("logs/run.txt", "logs/rum.txt"), ":9:", "run.txt"),
        ("lookups", ("weights/tuned", "weights/tunned"), ":8:47", "tuned"),
    ],
)
def test_missing_file_is_reported_with_its_location(
    app: Path, run: Run, verb: str, recipe: str, typo: tuple[str, str], place: str, near: str
) -> None:
    path = app / f"{recipe}.yaml"
    path.write_text(path.read_text().replace(*typo))
    result = run(verb, path)
    assert result.code == 4
    assert f"{recipe}.yaml{place}" in result.err
    assert typo[1] in result.err
    assert f"did you mean '{near}" in result.err


def test_invalid_file_is_reported_with_the_location_of_its_step(app: Path, run: Run) -> None:
    (app / "logs" / "run.txt").write_text("nothing of interest\n")
    result = run("build", app / "ranges.yaml")
    assert result.code == 7
    assert "ranges.yaml:9:5: " in result.err
    index = app / "weights" / "tuned.index"
    index.write_bytes(index.read_bytes()[:-9])
    result = run("build", app / "lookups.yaml")
    assert result.code == 4
    assert "lookups.yaml:8:14: " in result.err


@pytest.mark.parametrize("name", ["'a\\tb'", '"a\\0b"'])
def test_invalid_file_name_is_reported_with_its_location(app: Path, run: Run, name: str) -> None:
    path = app / "ranges.yaml"
    replace_text(path, "logs/run.txt", name.replace("\\t", "\t"))
    result = run("validate", path)
    assert result.code == 3
    assert "ranges.yaml:9:" in result.err


def test_paths_are_relative_to_the_extended_recipe(app: Path, run: Run) -> None:
    (app / "sub").mkdir()
    (app / "sub" / "mine.yaml").write_text("extends: ../ranges.yaml\nversion: 1\nname: mine\n")
    result = run("build", app / "sub" / "mine.yaml")
    assert result.code == 0, result.err


def test_outputs_and_cache_contain_no_absolute_paths(app: Path, run: Run) -> None:
    for name in ("ranges", "lookups"):
        build(run, app, name)
    (app / "logs" / "run.txt").write_text("nothing of interest\n")
    (app / "weights" / "tuned.data-00000-of-00002").write_bytes(b"")
    for name, (old, new) in {
        "ranges": ("logs/run.txt", "logs/run.txt, ignore_errors: true"),
        "lookups": ('tuned"', 'tuned", ignore_errors=true'),
    }.items():
        path = app / f"{name}.yaml"
        replace_text(path, old, new)
        build(run, app, name)
    out = app.parent / "elsewhere" / "out"
    report = json.loads((out / "lookups" / "phone" / "report.json").read_text())
    assert "weights/tuned" in json.dumps(report["steps"])
    for path in [*out.rglob("*"), *(app.parent / "store").rglob("*")]:
        assert not path.is_file() or str(app).encode() not in path.read_bytes(), path


PLUGIN = """
from pathlib import Path

from mobileprep.transforms.base import Result, Transform, transform


@transform("name_from")
class NameFrom(Transform, frozen=True):
    plugin: str = ""
    tables: tuple[str, ...] = ()
    count: int = 0

    def apply(self, graph, context):
        texts = [Path(p).read_text() for p in (self.plugin, *self.tables)]
        return Result(graph, warnings=(f"read {' '.join(texts)} of {self.tables}",))
"""
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "plugin": {"type": "string", "format": "path", "default": ""},
        "tables": {"type": "array", "items": {"type": "string", "format": "path"}, "default": []},
        "count": {"type": "integer", "default": 0},
    },
}


def test_schema_of_a_plugin_declares_its_files(app: Path, run: Run) -> None:
    (app / "name_from.py").write_text(PLUGIN)
    (app / "name_from.json").write_text(json.dumps(SCHEMA))
    for name in "abc":
        (app / "logs" / name).write_text(name.upper())
    path = app / "ranges.yaml"
    own = "name_from: {plugin: logs/a, tables: [logs/b, logs/c], count: 1}"
    text = path.read_text().replace("strip_unused_nodes", own)
    path.write_text(text.replace("name: ranges", "name: ranges\nplugins: [name_from.py]"))

    def warnings() -> list[str]:
        report = app.parent / "elsewhere" / "out" / "ranges" / "phone" / "report.json"
        messages: list[str] = json.loads(report.read_text())["steps"][0]["warnings"]
        return messages

    build(run, app, "ranges")
    assert warnings() == ["read A B C of ('logs/b', 'logs/c')"]
    (app / "logs" / "c").write_text("D")
    assert build(run, app, "ranges") == ["ranges/01-name_from"]
    assert warnings() == ["read A B D of ('logs/b', 'logs/c')"]
    (app / "logs" / "b").unlink()
    result = run("validate", path)
    assert result.code == 4
    assert f"ranges.yaml:9:{own.index('logs/b') + 5}: " in result.err
