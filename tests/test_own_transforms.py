"""The guide to transforms of one's own: its files, put in place and built."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.recipe.plugins import installed_plugins
from mobileprep.runtime.interpreter import Interpreter
from tests.cli.conftest import Run, run
from tests.docs.pages import console_examples

__all__ = ["run"]

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "how-to/custom-transforms.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}(?: title=[^\n]*)?\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found
    return found.group(1)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app's repository with the guide's files and a model of two LeakyRelus."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "lower_leaky_relu.py").write_text(block("python"))
    (tmp_path / "tools" / "lower_leaky_relu.json").write_text(block("json"))
    (tmp_path / "recipe.yaml").write_text(block("yaml"))
    write_graph(tmp_path / "model.pb", model())
    return tmp_path


def model() -> Graph:
    kind = {"T": attr.dtype(DType.FLOAT)}
    shape = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((2, 3))}
    return Graph(
        [
            Node("x", "Placeholder", attrs=shape),
            Node("mild", "LeakyRelu", (Ref("x"),), attrs={**kind, "alpha": attr.floating(0.25)}),
            Node("out", "LeakyRelu", (Ref("mild"),), attrs={**kind, "alpha": attr.floating(0.75)}),
        ]
    )


def test_the_recipe_of_the_guide_builds(app: Path, run: Run) -> None:
    told = run("build", "recipe.yaml", "--json")
    assert told.code == 0, told.err
    (report,) = json.loads(told.out)
    (step,) = report["steps"]
    assert (step["matched"], step["skipped"]) == (1, {"the slope is above max_alpha": 1})
    assert step["largest_difference"] == 0
    built = read_graph(app / "out" / "leaky" / "phone" / "leaky.pb")
    assert {n.name: n.op for n in built}["mild"] == "Maximum"
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    results = [Interpreter(g).run(["out"], {"x": x})[0] for g in (model(), built)]
    np.testing.assert_array_equal(*results)


def test_the_command_of_the_guide_runs(app: Path, run: Run) -> None:
    ((command, _),) = console_examples(GUIDE)
    told = run(*shlex.split(command)[1:])
    assert told.code == 0, told.err
    assert "largest difference 0" in told.err
    assert "Maximum" in {n.op for n in read_graph(app / "lowered.pb")}


def test_editing_the_code_reruns_the_step(app: Path, run: Run) -> None:
    run("build", "recipe.yaml")
    path = app / "tools" / "lower_leaky_relu.py"
    path.write_text(path.read_text() + "\n# a comment\n")
    told = run("build", "recipe.yaml", "--dry-run")
    assert "lower_leaky_relu: input plugin:tools/lower_leaky_relu.py has changed" in told.err


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("    relu = match", "    oops = 1 / 0\n    relu = match", 7, "ZeroDivisionError"),
        ("import numpy as np", "import numpy as np\nthis is no Python", 7, "SyntaxError"),
        ('@transform("lower_leaky_relu")', '@transform("other")', 2, "it holds other"),
        ("return Result(done.graph, done.matched, done.skipped)", "return 3", 7, "answered int"),
        (
            "return Result(done.graph, done",
            "return Result(None, done",
            7,
            "whose graph is NoneType",
        ),
        ("done.matched, done.skipped", "'one', done.skipped", 7, "matched is 'one'"),
        ("done.matched, done.skipped", "-1, done.skipped", 7, "matched is -1"),
        ("done.matched, done.skipped", "1, {3: 4}", 7, "skipped is {3: 4}"),
        ("done.matched, done.skipped", "1, {'why': 'x'}", 7, "skipped is {'why': 'x'}"),
        ("done.matched, done.skipped", "1, {}, 'text'", 7, "warnings is 'text'"),
        ('Node(f"{relu.name}/scaled"', "Node(3", 7, "a name that is not a string: 3"),
        ('"Maximum", (', "4, (", 7, "an op that is not a string: 4"),
        ("(done.graph, done", "(graph.with_nodes([]), done", 7, "the output 'out' is gone"),
        ("(done.graph,", "(Graph([*graph, *graph]),", 7, "two nodes named 'x'"),
        ("(relu.inputs[0], Ref(scaled.name))", "('mild', 'x')", 7, "has str, not Ref, among the"),
        (
            "return Result(done",
            "exit(0)\n        return Result(done",
            7,
            ".py:31: the plugin ended",
        ),
        (
            "import numpy as np",
            "import numpy as np, sys; sys.exit(0)",
            7,
            ".py:3: the plugin ended",
        ),
        ("import numpy as np", "import os; os._exit(0)", 7, ".py:3: the plugin ended"),
        (
            "import numpy as np",
            "import os, sys\ntry: os._exit(0)\nexcept: sys.path",
            7,
            "plugin ended",
        ),
        ("import numpy as np", "raise GeneratorExit", 7, ".py:3: GeneratorExit"),
        (
            "float = 1.0",
            "float = 1.0\n    def __post_init__(self): exit(0)",
            7,
            ": the plugin ended",
        ),
    ],
)
def test_a_mistake_in_the_code_is_told_with_its_line(
    app: Path, run: Run, old: str, new: str, code: int, message: str
) -> None:
    path = app / "tools" / "lower_leaky_relu.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    told = run("build", "recipe.yaml")
    assert (told.code, message in told.err) == (code, True), told.err


def test_an_installed_package_s_transform_is_found_and_its_packages_are_not_run(
    app: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = app / "site"
    (site / "our_transforms" / "deep").mkdir(parents=True)
    (site / "our-1.dist-info").mkdir()
    (site / "our-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: our\n")
    entry = "[mobileprep.transforms]\nlower_leaky_relu = our_transforms.deep.lower_leaky_relu\n"
    (site / "our-1.dist-info" / "entry_points.txt").write_text(entry)
    for package in ("our_transforms", "our_transforms/deep"):
        (site / package / "__init__.py").write_text("import sys; sys.exit(0)")
    for ending in ("py", "json"):
        (app / "tools" / f"lower_leaky_relu.{ending}").rename(
            site / "our_transforms" / "deep" / f"lower_leaky_relu.{ending}"
        )
    recipe = app / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("plugins: [tools/lower_leaky_relu.py]\n", ""))
    monkeypatch.syspath_prepend(site)
    installed_plugins.cache_clear()
    try:
        for verb in ("validate", "build"):
            told = run(verb, "recipe.yaml")
            assert told.code == 0, told.err
    finally:
        installed_plugins.cache_clear()


def test_the_program_can_be_ended_again_after_a_plugin(app: Path, run: Run) -> None:
    before = os._exit
    assert run("build", "recipe.yaml").code == 0
    path = app / "tools" / "lower_leaky_relu.py"
    path.write_text("import os\nos._exit(0)\n")
    assert run("build", "recipe.yaml").code == 7
    assert os._exit is before


def test_a_plugin_s_own_children_end_as_they_like(app: Path, run: Run) -> None:
    path = app / "tools" / "lower_leaky_relu.py"
    child = "import os, sys\nif not os.fork(): os._exit(0)\nassert os.wait()[1] == 0\n"
    path.write_text(
        path.read_text().replace("import numpy as np\n", f"{child}import numpy as np\n")
    )
    told = run("build", "recipe.yaml")
    assert told.code == 0, told.err


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("[]", "a mapping"),
        ('{"$ref": "http://127.0.0.1:1/a"}', "refers to 'http://127.0.0.1:1/a'"),
        ('{"properties": {"max_alpha": {"$ref": "other.json#/x"}}}', "refers to 'other.json#/x'"),
        ('{"allOf": [{"$dynamicRef": "file:///etc/passwd"}]}', "refers to 'file:///etc/passwd'"),
        ('{"properties": {"max_alpha": {"$ref": "#/$defs/none"}}}', "/$defs/none, which is not"),
        ('{"$ref": "#"}', "JSON Schema"),
        ('{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "JSON Schema"),
        ('{"properties": 3}', "'properties'"),
        ('{"properties": {"max_alpha": true}}', "'max_alpha'"),
        ('{"properties": {"max_alpha": {"type": "numbr"}}}', "numbr"),
        ('{"properties": {"max_alpha": {"type": 3}}}', "'max_alpha'"),
        ('{"properties": {"max_alpha": {"items": 3}}}', "'max_alpha'"),
        ('{"properties": {"max_alpha": {"minimum": "x"}}}', "JSON Schema"),
        ('{"patternProperties": {"(": {}}}', "JSON Schema"),
        ('{"required": 7}', "JSON Schema"),
        ("[" * 100_000, "JSON Schema"),
    ],
)
def test_a_plugin_s_schema_that_cannot_be_used_is_told_and_nothing_fetched(
    app: Path, run: Run, schema: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a schema was fetched")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    (app / "tools" / "lower_leaky_relu.json").write_text(schema)
    told = run("validate", "recipe.yaml")
    assert told.code == 4, told.err
    assert message in told.err
    assert "lower_leaky_relu.json" in told.err


def test_a_plugin_s_schema_without_the_parameter_leaves_it_to_the_code(app: Path, run: Run) -> None:
    (app / "tools" / "lower_leaky_relu.json").write_text("{}")
    assert run("build", "recipe.yaml").code == 0


def test_a_parameter_that_the_schema_lacks_is_told_at_its_place(app: Path, run: Run) -> None:
    recipe = app / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("max_alpha: 0.5", "max_alhpa: 0.5"))
    told = run("build", "recipe.yaml")
    assert told.code == 3
    assert "recipe.yaml:8:" in told.err
    assert "max_alpha" in told.err


def test_a_missing_file_is_told(app: Path, run: Run) -> None:
    (app / "tools" / "lower_leaky_relu.json").unlink()
    told = run("build", "recipe.yaml")
    assert told.code == 4
    assert "lower_leaky_relu.json" in told.err


def test_a_plugin_that_would_not_run_is_refused_on_the_command_line_too(
    app: Path, run: Run
) -> None:
    (app / "fold_constants.py").write_text("")
    flags = ("--in_graph=model.pb", "--out_graph=o.pb", "--inputs=x", "--outputs=out")
    told = run("transform", *flags, "--plugins=fold_constants.py", "--transforms=fold_constants")
    assert told.code == 2
    assert "fold_constants.py: mobileprep has a transform 'fold_constants' of its own" in told.err
