"""Build the files of the guide to custom transforms."""

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
from mobileprep.recipe.schemas import installed_plugins
from mobileprep.runtime.interpreter import Interpreter
from tests.cli.conftest import Run, run
from tests.docs.pages import console_examples

__all__ = ["run"]

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "how-to/custom-transforms.md"


def block(language: str) -> str:
    match = re.search(rf"```{language}(?: title=[^\n]*)?\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert match
    return match.group(1)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app repository with the files of the guide and a model of two LeakyRelus."""
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


def test_guide_recipe_builds(app: Path, run: Run) -> None:
    result = run("build", "recipe.yaml", "--json")
    assert result.code == 0, result.err
    (report,) = json.loads(result.out)
    (step,) = report["steps"]
    assert (step["matched"], step["skipped"]) == (1, {"the slope is above max_alpha": 1})
    assert step["largest_difference"] == 0
    built = read_graph(app / "out" / "leaky" / "phone" / "leaky.pb")
    assert {n.name: n.op for n in built}["mild"] == "Maximum"
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    results = [Interpreter(g).run(["out"], {"x": x})[0] for g in (model(), built)]
    np.testing.assert_array_equal(*results)


def test_guide_command_runs(app: Path, run: Run) -> None:
    ((command, _),) = console_examples(GUIDE)
    result = run(*shlex.split(command)[1:])
    assert result.code == 0, result.err
    assert "largest difference 0" in result.err
    assert "Maximum" in {n.op for n in read_graph(app / "lowered.pb")}


def test_editing_the_code_reruns_the_step(app: Path, run: Run) -> None:
    run("build", "recipe.yaml")
    path = app / "tools" / "lower_leaky_relu.py"
    path.write_text(path.read_text() + "\n# a comment\n")
    result = run("build", "recipe.yaml", "--dry-run")
    assert "lower_leaky_relu: input plugin:tools/lower_leaky_relu.py has changed" in result.err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    relu = match", "    oops = 1 / 0\n    relu = match", "ZeroDivisionError"),
        ("import numpy as np", "import numpy as np\nthis is no Python", "SyntaxError"),
        ("return Result(done.graph, done.matched, done.skipped)", "return 3", "answered int"),
        ("return Result(done.graph, done", "return Result(None, done", "whose graph is NoneType"),
        ("done.matched, done.skipped", "'one', done.skipped", "matched is 'one'"),
        ("done.matched, done.skipped", "-1, done.skipped", "matched is -1"),
        ("done.matched, done.skipped", "1, {3: 4}", "skipped is {3: 4}"),
        ("done.matched, done.skipped", "1, {'why': 'x'}", "skipped is {'why': 'x'}"),
        ("done.matched, done.skipped", "1, {}, 'text'", "warnings is 'text'"),
        ('Node(f"{relu.name}/scaled"', "Node(3", "a name that is not a string: 3"),
        ('"Maximum", (', "4, (", "an op that is not a string: 4"),
        ("(done.graph, done", "(graph.with_nodes([]), done", "the output 'out' is gone"),
        ("(done.graph,", "(Graph([*graph, *graph]),", "two nodes named 'x'"),
        ("(relu.inputs[0], Ref(scaled.name))", "('mild', 'x')", "has str, not Ref, among the"),
        ("return Result(done", "exit(0)\n        return Result(done", ".py:31: the plugin ended"),
        ("import numpy as np", "import numpy as np, sys; sys.exit(0)", ".py:3: the plugin ended"),
        ("import numpy as np", "import os; os._exit(0)", ".py:3: the plugin ended"),
        (
            "import numpy as np",
            "import os, sys\ntry: os._exit(0)\nexcept: sys.path",
            "plugin ended",
        ),
        ("import numpy as np", "raise GeneratorExit", ".py:3: GeneratorExit"),
        ("float = 1.0", "float = 1.0\n    def __post_init__(self): exit(0)", ": the plugin ended"),
    ],
)
def test_errors_in_plugin_code_are_reported_with_their_line(
    app: Path, run: Run, old: str, new: str, message: str
) -> None:
    replace_code(app, old, new)
    result = run("build", "recipe.yaml")
    assert (result.code, message in result.err) == (7, True), result.err


def replace_code(app: Path, old: str, new: str) -> None:
    path = app / "tools" / "lower_leaky_relu.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_plugin_without_the_named_transform_is_refused(app: Path, run: Run) -> None:
    replace_code(app, '@transform("lower_leaky_relu")', '@transform("other")')
    result = run("build", "recipe.yaml")
    assert (result.code, "it holds other" in result.err) == (2, True), result.err


def test_installed_transforms_load_without_running_their_packages(
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
            result = run(verb, "recipe.yaml")
            assert result.code == 0, result.err
    finally:
        installed_plugins.cache_clear()


def test_exit_function_is_restored_after_a_plugin(app: Path, run: Run) -> None:
    before = os._exit
    assert run("build", "recipe.yaml").code == 0
    path = app / "tools" / "lower_leaky_relu.py"
    path.write_text("import os\nos._exit(0)\n")
    assert run("build", "recipe.yaml").code == 7
    assert os._exit is before


def test_child_processes_of_a_plugin_can_exit(app: Path, run: Run) -> None:
    child = "import os, sys\nif not os.fork(): os._exit(0)\nassert os.wait()[1] == 0\n"
    replace_code(app, "import numpy as np\n", f"{child}import numpy as np\n")
    result = run("build", "recipe.yaml")
    assert result.code == 0, result.err


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
def test_invalid_plugin_schemas_are_reported_without_fetching(
    app: Path, run: Run, schema: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a schema was fetched")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    (app / "tools" / "lower_leaky_relu.json").write_text(schema)
    result = run("validate", "recipe.yaml")
    assert result.code == 4, result.err
    assert message in result.err
    assert "lower_leaky_relu.json" in result.err


def test_schema_may_omit_parameters(app: Path, run: Run) -> None:
    (app / "tools" / "lower_leaky_relu.json").write_text("{}")
    assert run("build", "recipe.yaml").code == 0


def test_unknown_parameter_is_reported_with_its_position(app: Path, run: Run) -> None:
    recipe = app / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("max_alpha: 0.5", "max_alhpa: 0.5"))
    result = run("build", "recipe.yaml")
    assert result.code == 3
    assert "recipe.yaml:8:" in result.err
    assert "max_alpha" in result.err


def test_missing_schema_file_is_reported(app: Path, run: Run) -> None:
    (app / "tools" / "lower_leaky_relu.json").unlink()
    result = run("build", "recipe.yaml")
    assert result.code == 4
    assert "lower_leaky_relu.json" in result.err


def test_plugin_named_as_a_builtin_is_refused_on_the_command_line(app: Path, run: Run) -> None:
    (app / "fold_constants.py").write_text("")
    flags = ("--in_graph=model.pb", "--out_graph=o.pb", "--inputs=x", "--outputs=out")
    result = run("transform", *flags, "--plugins=fold_constants.py", "--transforms=fold_constants")
    assert result.code == 2
    assert "fold_constants.py: mobileprep has a transform 'fold_constants' of its own" in result.err
