"""Generate layout.json and metadata_layout.json in mobileprep/formats/tflite from tflite.fbs and
metadata.fbs: ``python tools/generate_tflite.py``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("mobileprep/formats/tflite")
LAYOUT = "layout.json"
METADATA_LAYOUT = "metadata_layout.json"

_BLOCK = re.compile(r"^(enum|union|table) (\w+)[^{]*\{(.*?)\}", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"(\w+): ([\w\[\]]+)(?: = ([-\w.]+))? \(([^)]*)\);")


def layout(schema: str) -> dict[str, dict[str, Any]]:
    """Parse the enumerations, unions, and tables of a schema.

    Returns:
        ``enums`` and ``unions``: numbers by name. ``tables``: name and type of each field by id, or
        None for deprecated and unused ids. ``defaults``: default values other than 0, by table and
        field.
    """
    found: dict[str, dict[str, Any]] = {"enums": {}, "unions": {}, "tables": {}, "defaults": {}}
    for kind, name, body in _BLOCK.findall(schema):
        if kind == "enum":
            values = re.findall(r"(\w+) = (-?\d+)", body)
            found["enums"][name] = {key: int(number) for key, number in values}
        elif kind == "union":
            members = re.findall(r"\w+", body)
            found["unions"][name] = {key: i for i, key in enumerate(members, start=1)}
        else:
            found["tables"][name] = _fields(body)
            defaults = _defaults(body, found["enums"])
            if defaults:
                found["defaults"][name] = defaults
    return found


def _fields(body: str) -> list[list[str] | None]:
    fields: dict[int, list[str] | None] = {}
    for name, kind, _, notes in _FIELD.findall(body):
        number = int(re.findall(r"id: (\d+)", notes)[0])
        fields[number] = None if "deprecated" in notes else [name, kind]
    return [fields.get(i) for i in range(max(fields, default=-1) + 1)]


def _defaults(body: str, enums: dict[str, dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, kind, default, notes in _FIELD.findall(body):
        if default and "deprecated" not in notes:
            words = {"true": 1, "false": 0, **enums.get(kind, {})}
            found[name] = words[default] if default in words else int(float(default))
    return {name: number for name, number in found.items() if number}


def write_layout(schema: str, target: Path) -> None:
    """Write the layout of a schema to a file."""
    made = layout((ROOT / FOLDER / schema).read_text(encoding="utf-8"))
    text = json.dumps(made, separators=(",", ":"), sort_keys=True)
    target.write_text(text.replace('},"', '},\n"').replace(']],"', ']],\n"') + "\n")


def main() -> None:
    write_layout("tflite.fbs", ROOT / FOLDER / LAYOUT)
    write_layout("metadata.fbs", ROOT / FOLDER / METADATA_LAYOUT)


if __name__ == "__main__":
    main()
