"""The schema: what is made of it is current, and states what LiteRT's own classes state."""

from __future__ import annotations

import inspect
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

import mobileprep.formats.tflite as package
from mobileprep.formats.tflite.layout import layout, metadata_layout
from mobileprep.formats.tflite.library import schema_module

FOLDER = Path(package.__file__).parent
TOOL = FOLDER.parents[2] / "tools" / "generate_tflite.py"
TABLES = layout().tables
# The type flags of flatbuffers' accessors, by the schema's plain types.
FLAGS = {
    "byte": "Int8",
    "ubyte": "Uint8",
    "bool": "Bool",
    "short": "Int16",
    "ushort": "Uint16",
    "int": "Int32",
    "uint": "Uint32",
    "long": "Int64",
    "ulong": "Uint64",
    "float": "Float32",
    "double": "Float64",
}


def tool() -> dict[str, Any]:
    """What the generator defines."""
    if not TOOL.exists():
        pytest.skip("the generator is not part of an installed package")
    return runpy.run_path(str(TOOL))


def test_the_made_files_are_current(tmp_path: Path) -> None:
    if shutil.which("flatc") is None:
        pytest.skip("flatc is not installed")
    assert tool()["generate"](tmp_path) == 0
    for name in ("schema_generated.py", "layout.json", "metadata_layout.json"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_the_facts_of_the_schema_are_current() -> None:
    made = tool()["layout"]((FOLDER / "tflite.fbs").read_text())
    assert made["enums"] == layout().enums
    assert made["unions"] == layout().unions
    assert made["tables"].keys() == TABLES.keys()


@pytest.fixture(scope="module")
def theirs() -> object:
    reason = "ai-edge-litert is not installed"
    return pytest.importorskip("ai_edge_litert.schema_py_generated", reason=reason)


def numbers(kind: type) -> dict[str, int]:
    return {n: v for n, v in vars(kind).items() if isinstance(v, int)}


def test_enumerations_and_unions_have_litert_s_numbers(theirs: object) -> None:
    for name, values in layout().enums.items():
        assert values == numbers(getattr(theirs, name)), name
    for name, members in layout().unions.items():
        assert {"NONE": 0, **members} == numbers(getattr(theirs, name)), name


def accessors(kind: type) -> dict[int, tuple[str, str]]:
    """For each field id the accessor's name without underscores, and how it reads an element."""
    found = {}
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if name.endswith(("AsNumpy", "IsNone", "Length")) or name == "Init":
            continue
        body = inspect.getsource(function)
        offset = re.search(r"_tab\.Offset\((\d+)\)", body)
        if offset is None:
            continue
        reads = re.findall(r"number_types\.(\w+)Flags, [oa] \+|_tab\.(Union|String)\(", body)
        table = re.search(r"obj = (\w+)\(\)", body)
        read = table[1] if table else "".join(reads[0])
        found[(int(offset[1]) - 4) // 2] = (name.lower(), ("[" if ", j)" in body else "") + read)
    return found


def described(kind: str) -> str:
    """A field's type as an accessor shows it."""
    element = kind.strip("[]")
    mark = "[" if kind.startswith("[") else ""
    if element == "string":
        return f"{mark}String"
    if element in layout().unions:
        return "Union"
    if element in layout().enums:
        width = layout().width(element)
        unsigned = element.startswith("Stablehlo")
        return f"{mark}{'Uint' if unsigned else 'Int'}{8 * (width or 0)}"
    return mark + FLAGS.get(element, element)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_table_has_litert_s_fields(table: str, theirs: object) -> None:
    ours, known = accessors(getattr(schema_module(), table)), accessors(getattr(theirs, table))
    assert ours == known
    for number, field in enumerate(TABLES[table]):
        if field is not None:
            name, kind = field
            assert ours[number] == (name.replace("_", ""), described(kind))


def test_the_facts_of_descriptions_are_current(tmp_path: Path) -> None:
    tool()["write_layout"]("metadata.fbs", tmp_path / "made.json")
    assert (tmp_path / "made.json").read_bytes() == (FOLDER / "metadata_layout.json").read_bytes()


def test_descriptions_have_the_task_library_s_fields() -> None:
    reason = "tflite-support is not installed"
    known = pytest.importorskip(
        "tensorflow_lite_support.metadata.metadata_schema_py_generated", reason=reason
    )
    facts = metadata_layout()
    for name, values in facts.enums.items():
        assert values == numbers(getattr(known, name)), name
    for name, members in facts.unions.items():
        assert {"NONE": 0, **members} == numbers(getattr(known, name)), name
    for name, fields in facts.tables.items():
        found = {number: field for number, (field, _) in accessors(getattr(known, name)).items()}
        for number, field in enumerate(fields):
            if field is not None:
                assert found[number] == field[0].replace("_", ""), name
