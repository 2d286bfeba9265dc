"""The generated schema data is current and matches the classes of LiteRT."""

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
# Type flags in the accessors of flatbuffers, by scalar type of the schema.
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
    """Return the definitions of the generator."""
    if not TOOL.exists():
        pytest.skip("the generator is not part of an installed package")
    return runpy.run_path(str(TOOL))


@pytest.mark.parametrize("name", ["layout.json", "metadata_layout.json"])
def test_generated_schema_files_are_current(name: str, tmp_path: Path) -> None:
    schema = {"layout.json": "tflite.fbs", "metadata_layout.json": "metadata.fbs"}[name]
    tool()["write_layout"](schema, tmp_path / name)
    assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


@pytest.fixture(scope="module")
def litert_schema() -> object:
    reason = "ai-edge-litert is not installed"
    return pytest.importorskip("ai_edge_litert.schema_py_generated", reason=reason)


def numbers(kind: type) -> dict[str, int]:
    return {n: v for n, v in vars(kind).items() if isinstance(v, int)}


def test_enum_and_union_numbers_match_litert(litert_schema: object) -> None:
    for name, values in layout().enums.items():
        assert values == numbers(getattr(litert_schema, name)), name
    for name, members in layout().unions.items():
        assert {"NONE": 0, **members} == numbers(getattr(litert_schema, name)), name


def accessors(kind: type) -> dict[int, tuple[str, str]]:
    """Return by field ID the name of the accessor without underscores and its element type."""
    result = {}
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
        result[(int(offset[1]) - 4) // 2] = (name.lower(), ("[" if ", j)" in body else "") + read)
    return result


def default_of(kind: type, number: int) -> int:
    """Return the default of a field in its accessor, or 0 if it is not a number."""
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        body = inspect.getsource(function).rstrip()
        returned = re.search(r"return (True|-?\d+)$", body)
        is_its = f"_tab.Offset({4 + 2 * number})" in body
        if is_its and returned and not name.endswith(("AsNumpy", "IsNone", "Length")):
            return 1 if returned[1] == "True" else int(returned[1])
    return 0


def described(kind: str) -> str:
    """Return the type of a field as ``accessors`` returns it."""
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
def test_table_fields_match_litert(table: str, litert_schema: object) -> None:
    fields = accessors(getattr(litert_schema, table))
    stored = dict(enumerate(TABLES[table]))
    # A field without a name is the type of a union or deprecated.
    assert fields.keys() == {i for i, field in stored.items() if field is not None or i in fields}
    for number, field in stored.items():
        if field is not None:
            name, kind = field
            assert fields[number] == (name.replace("_", ""), described(kind))
            assert layout().default(table, name) == default_of(
                getattr(litert_schema, table), number
            )


def test_metadata_fields_match_the_task_library() -> None:
    reason = "tflite-support is not installed"
    schema = pytest.importorskip(
        "tensorflow_lite_support.metadata.metadata_schema_py_generated", reason=reason
    )
    facts = metadata_layout()
    for name, values in facts.enums.items():
        assert values == numbers(getattr(schema, name)), name
    for name, members in facts.unions.items():
        assert {"NONE": 0, **members} == numbers(getattr(schema, name)), name
    for name, fields in facts.tables.items():
        known_fields = accessors(getattr(schema, name))
        for number, field in enumerate(fields):
            if field is not None:
                assert known_fields[number][0] == field[0].replace("_", ""), name
