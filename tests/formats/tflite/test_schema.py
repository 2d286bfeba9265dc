"""The schema: what is made of it is current, and states what LiteRT's own classes state."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import mobileprep.formats.tflite as package
from mobileprep.formats.tflite.layout import layout, metadata_layout

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


@pytest.mark.parametrize("name", ["layout.json", "metadata_layout.json"])
def test_the_facts_of_the_schemas_are_current(name: str, tmp_path: Path) -> None:
    schema = {"layout.json": "tflite.fbs", "metadata_layout.json": "metadata.fbs"}[name]
    tool()["write_layout"](schema, tmp_path / name)
    assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


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


def default_of(kind: type, number: int) -> int:
    """What the accessor of a field returns where the field is not stored; 0 for no number."""
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        body = inspect.getsource(function).rstrip()
        returned = re.search(r"return (True|-?\d+)$", body)
        is_its = f"_tab.Offset({4 + 2 * number})" in body
        if is_its and returned and not name.endswith(("AsNumpy", "IsNone", "Length")):
            return 1 if returned[1] == "True" else int(returned[1])
    return 0


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
    known = accessors(getattr(theirs, table))
    stored = dict(enumerate(TABLES[table]))
    # A field without a name is a union's number, or out of use.
    assert known.keys() == {i for i, field in stored.items() if field is not None or i in known}
    for number, field in stored.items():
        if field is not None:
            name, kind = field
            assert known[number] == (name.replace("_", ""), described(kind))
            assert layout().default(table, name) == default_of(getattr(theirs, table), number)


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
