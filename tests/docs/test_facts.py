"""Statements on the pages that must match the code."""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import mobileprep
from mobileprep.building.pipeline.remote import settings
from mobileprep.building.targets import BUILD_TYPE, BUILDER
from mobileprep.cli._shared.failures import error_kind
from mobileprep.cli._shared.originals import ORIGINALS
from mobileprep.cli.main import find_verb, parser_of
from mobileprep.errors import InternalError, MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import APART
from mobileprep.litert.quantizing.kernels import KERNELS
from mobileprep.litert.weights import BLOCKS, FOUR_BITS
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.schemas import OUTPUT_SCHEMAS
from mobileprep.recipe.validation_settings import METRIC_NAMES
from mobileprep.transforms.older_ops import REPLACEMENTS
from tests.cli.conftest import Run, run
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, page_id
from tests.fuzz.__main__ import import_formats
from tests.fuzz.__main__ import parser as fuzz_parser

__all__ = ["run"]

DIGITS = ROOT / "recipes" / "digits"
LISTINGS = {
    "python": "doit/dodo.py",
    "make": "make/Makefile",
    "ninja": "ninja/build.ninja",
    "cmake": "cmake/CMakeLists.txt",
    "groovy": "gradle/build.gradle",
    "starlark": "bazel/BUILD.bazel",
}


def text(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def code(page: str, language: str) -> list[str]:
    return [b.body for b in blocks(DOCS / page) if b.language == language]


def test_readme_has_two_setup_commands_and_all_original_tools() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (block,) = [b.body for b in blocks(ROOT / "README.md") if b.language == "sh"]
    assert len(block.splitlines()) == 2
    table = dict(re.findall(r"^\| `(\w+)` \| `([\w-]+)` \|", readme, re.MULTILINE))
    assert table == ORIGINALS


def test_pages_name_every_metric_replacement_and_error() -> None:
    assert all(f"`{name}`" in text("how-to/validate-accuracy.md") for name in METRIC_NAMES)
    assert all(f"`{op}`" in text("how-to/check-targets.md") for op in REPLACEMENTS)
    for error in set(MobileprepError.__subclasses__()) - {InternalError}:
        row = f"| {error.exit_code} | `{error.__name__}` | `{error_kind(error())}` |"
        assert row in text("reference/errors.md")


def test_tests_in_faithfulness_exist() -> None:
    files = list((ROOT / "tests").rglob("test_*.py"))
    sources = [path.read_text("utf-8") for path in files]
    names = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.M)}
    names |= {path.stem for path in files}
    page = (DOCS / "faithfulness.md").read_text("utf-8")
    assert set(re.findall(r"`(?:tests/[\w/]*/)?(test_\w+)(?:\.py)?`", page)) <= names


def test_frequent_errors_are_in_the_code() -> None:
    source = "".join(p.read_text("utf-8") for p in (ROOT / "mobileprep").rglob("*.py"))
    section = text("reference/errors.md").partition("## Frequent errors")[2]
    messages = re.findall(r"^\| `(.*?)`", section, re.MULTILINE)
    assert len(messages) > 8
    for message in messages:
        longest = max(message.split("..."), key=len).strip()
        assert longest in source, message


def test_pages_quote_the_constants_of_the_code() -> None:
    page = text("how-to/reproducible-builds.md")
    assert "it is being worked on by process 4711 on build-3 since" in page
    assert f"`{BUILD_TYPE}`" in page
    assert f"`{BUILDER}`" in page
    assert f"Tensors of {APART >> 10} KiB or more" in text("explanation/cache.md")


def test_report_page_lists_the_parts_of_the_table() -> None:
    program = (ROOT / "web" / "report" / "src" / "main.js").read_text("utf-8")
    titles = re.search(r"const TITLES = {(.*?)}", program, re.DOTALL)
    assert titles is not None
    listed = re.findall(r"^\| (\w+) \|", text("how-to/read-the-report.md"), re.MULTILINE)
    assert listed == ["part", *re.findall(r': "(\w+)"', titles[1])]


def test_integer_operators_of_litert_are_listed() -> None:
    page = text("reference/litert.md")
    rows = dict(re.findall(r"^\| (int8 .*?|int8) \| ([A-Z].*) \|$", page, re.MULTILINE))
    both, only = (set(names.split(", ")) for names in rows.values())
    int16 = {code for code, kernel in KERNELS.items() if DType.INT16 in kernel.types}
    assert (both, only) == (int16, set(KERNELS) - int16)


def test_operators_with_four_bits_are_listed() -> None:
    section = text("reference/litert.md").partition("## Weights in 4 bits")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (yes|no) \|$", section, re.MULTILINE)
    kinds = {code: {kind.short for kind in FOUR_BITS[code]} for code in FOUR_BITS}
    assert {code: set(dtypes.split(", ")) for code, dtypes, _ in rows} == kinds
    assert {code for code, _, blocks in rows if blocks == "yes"} == BLOCKS


def test_schemas_of_json_outputs_are_listed() -> None:
    section = text("reference/command-line.md").partition("## JSON output")[2]
    table = section.partition("| schema |")[2].partition("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert {n for cell in first for n in re.findall(r"`([\w-]+)`", cell)} == {
        path.stem for path in OUTPUT_SCHEMAS.glob("*.json")
    }


@pytest.mark.parametrize("language", LISTINGS)
def test_listings_match_the_example_files(language: str) -> None:
    (listing,) = code("how-to/use-build-tools.md", language)
    assert listing == (ROOT / "examples" / LISTINGS[language]).read_text("utf-8")


def test_every_example_file_is_named() -> None:
    pages = text("how-to/use-build-tools.md") + text("how-to/build-in-ci.md")
    for path in (ROOT / "examples").rglob("*"):
        name = path.relative_to(ROOT / "examples").as_posix()
        assert path.is_dir() or name in LISTINGS.values() or f"examples/{name}" in pages


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_in_shell_blocks_are_valid(page: Path) -> None:
    if page.stem in ("CHANGELOG", "command-line"):
        return
    import_formats()
    for block in blocks(page):
        for line in block.body.replace("\\\n", "").splitlines() if block.language == "sh" else []:
            program, *words = shlex.split(line, comments=True) or [""]
            if program == "mobileprep" and "$" not in line:
                arguments = words[: words.index(">")] if ">" in words else words
                parser = parser_of(find_verb(arguments[0]))
                assert parser.parse_known(arguments[1:])[1] == [], line
            elif words[:2] == ["-m", "tests.fuzz"]:
                assert isinstance(fuzz_parser().parse_args(words[2:]), argparse.Namespace)


def test_variables_and_addresses_of_remote_caches_are_listed() -> None:
    page = text("how-to/remote-cache.md")
    names = {settings.URL, settings.MODE, settings.TOKEN, settings.CA, settings.PLAIN_TOKEN}
    assert set(re.findall(r"^\| `(MOBILEPREP_\w+)`", page, re.MULTILINE)) == names
    extras = dict(re.findall(r"^\| `(\w+)://.*'mobileprep\[(\w+)\]'", page, re.MULTILINE))
    stores = {scheme: extra for scheme, extra in settings.OBJECT_STORES.items() if scheme != "abfs"}
    assert extras == {"https": "remote", **stores}
    environ = dict(re.findall(r"^export (\w+)=(\S+)$", page, re.MULTILINE))
    remote = settings.remote_settings(None, environ | {"NETRC": "none"})
    assert remote == settings.RemoteSettings("https://cache.example.com/mobileprep", read_only=True)


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DIGITS, tmp_path / "digits")
    return tmp_path / "digits" / "recipe.yaml"


def test_generated_code_has_the_listed_files(run: Run, digits: Path) -> None:
    section = code("how-to/integrate.md", "yaml")[0]
    digits.write_text(digits.read_text("utf-8") + section)
    assert run("build", digits).code == 0
    table = text("how-to/integrate.md").partition("| language |")[2].partition("\n\n")[0]
    names = {n for n in re.findall(r"`(\w+/[\w/]+\.\w+)`", table) if "tensorflow" not in n}
    directory = Path("out/digits/phone/integration")
    assert {p.relative_to(directory).as_posix() for p in directory.rglob("*.*")} == names


def test_generated_code_has_the_listed_integer_methods(run: Run, digits: Path) -> None:
    section = code("how-to/integrate.md", "yaml")[1]
    digits.write_text(digits.read_text("utf-8").partition("\nvalidation:")[0] + f"\n{section}")
    built = run("build", digits)
    assert built.code == 0, built.err
    table = text("how-to/integrate.md").partition("| | float | integers |\n")[2]
    names = set(re.findall(r"`(\w+)", table.partition("\n\n")[0]))
    directory = Path("out/digits/eight/integration")
    files = [p for p in directory.rglob("Digits.*") if p.suffix in (".java", ".kt", ".swift", ".h")]
    assert len(files) == 4
    pascal_case = {name for name in names if name[0].isupper()}
    for file in files:
        methods = set(re.findall(r"(\w+)\(", file.read_text("utf-8")))
        assert (pascal_case if file.suffix == ".h" else names - pascal_case) <= methods


def test_metric_function_example_works(run: Run, digits: Path) -> None:
    Path("digits/tools").mkdir()
    (function,) = code("how-to/validate-accuracy.md", "python")
    Path("digits/tools/metric.py").write_text(function)
    section = next(s for s in code("how-to/validate-accuracy.md", "yaml") if "metric.py" in s)
    recipe = yaml.safe_load(digits.read_text("utf-8")) | yaml.safe_load(section)
    recipe["validation"]["labels"] = "label"
    digits.write_text(yaml.safe_dump(recipe))
    built = run("build", digits, "--target", "phone")
    assert built.code == 0, built.err
    assert len(load_recipe(digits).targets[0].validation.metrics) == 1  # type: ignore[union-attr]


def test_pre_commit_hook_checks_recipes(run: Run, digits: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["id"] in text("how-to/use-build-tools.md")
    assert re.search(hook["files"], "recipes/digits/recipe.yaml")
    assert not re.search(hook["files"], "recipes/digits/my-recipe.yaml.txt")
    program, *arguments = shlex.split(hook["entry"])
    assert program == "mobileprep"
    assert run(*arguments, digits).code == 0
    digits.write_text(digits.read_text("utf-8").replace("outputs: [", "outptus: ["))
    assert run(*arguments, digits).code == 3


def test_python_examples_run_in_order(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in code("reference/python.md", "python"):
        exec(compile(block, "docs/reference/python.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    steps = [line.split() for line in printed[:3]]
    assert [step[0] for step in steps] == ["strip_unused_nodes", "remove_nodes", "fold_constants"]
    assert all(float(difference) < 1e-5 for _, _, difference in steps)
    assert printed[3] == "(1, 10)"
    assert re.fullmatch(r"[\d.]+ microseconds \d+ FLOPs", printed[4])
    assert printed[5] == "1"
    assert re.fullmatch(r"\d+ \d+ \(\)", printed[6])
    assert any(line.startswith(f"{Path('out/digits/phone')} ") for line in printed[7:])
    assert "digits/freeze: fresh" in printed[7:-1]
    assert printed[-1] == "the graph has no tensor 'imgae' did you mean 'image'?"
    assert mobileprep.build(digits, targets=["phone"]).ran == ()


def test_python_page_lists_every_function_and_error() -> None:
    rows = re.findall(r"^\| (`.*?) \|", text("reference/python.md"), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)[(`]", row)}
    public = {name: getattr(mobileprep, name) for name in mobileprep.__all__}
    functions = {name for name, value in public.items() if inspect.isfunction(value)}
    errors = {name for name in public if name.endswith("Error") and name != "MobileprepError"}
    assert listed == functions | errors


def test_package_import_does_not_import_dependencies() -> None:
    script = (
        "import sys, mobileprep; mobileprep.MobileprepError; "
        "print(*(n for n in ('numpy', 'google.protobuf', 'doit', 'yaml') if n in sys.modules))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_ops_page_is_current() -> None:
    from tools import make_ops_page

    assert text("reference/ops.md") == make_ops_page.render(), (
        "python tools/make_ops_page.py docs/reference/ops.md"
    )
