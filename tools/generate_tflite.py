"""Makes schema_generated.py and layout.json in mobileprep/formats/tflite anew from tflite.fbs,
and metadata_layout.json from metadata.fbs.

Needs flatc, such as Debian's package flatbuffers-compiler (2.0.8). Run it as
``python tools/generate_tflite.py``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("mobileprep/formats/tflite")
CLASSES = "schema_generated.py"
LAYOUT = "layout.json"
METADATA_LAYOUT = "metadata_layout.json"

_BLOCK = re.compile(r"^(enum|union|table) (\w+)[^{]*\{(.*?)\}", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"(\w+): ([\w\[\]]+)(?: = [-\w.]+)? \(([^)]*)\);")
_HEADER = '"""Made from tflite.fbs by tools/generate_tflite.py: classes of the format."""\n\n'


def layout(schema: str) -> dict[str, dict[str, object]]:
    """Enumerations, unions and tables of a schema, as plain data.

    Returns:
        ``enums`` and ``unions``: numbers by name; ``tables``: for each field id its name and type,
        or None where nothing is stored.
    """
    found: dict[str, dict[str, object]] = {"enums": {}, "unions": {}, "tables": {}}
    for kind, name, body in _BLOCK.findall(schema):
        if kind == "enum":
            values = re.findall(r"(\w+) = (-?\d+)", body)
            found["enums"][name] = {key: int(number) for key, number in values}
        elif kind == "union":
            members = re.findall(r"\w+", body)
            found["unions"][name] = {key: i for i, key in enumerate(members, start=1)}
        else:
            found["tables"][name] = _fields(body)
    return found


def _fields(body: str) -> list[list[str] | None]:
    fields: dict[int, list[str] | None] = {}
    for name, kind, notes in _FIELD.findall(body):
        number = int(re.findall(r"id: (\d+)", notes)[0])
        fields[number] = None if "deprecated" in notes else [name, kind]
    return [fields.get(i) for i in range(max(fields, default=-1) + 1)]


def write_layout(schema: str, target: Path) -> None:
    """Write the facts of a schema in the format's folder to a file."""
    made = layout((ROOT / FOLDER / schema).read_text(encoding="utf-8"))
    text = json.dumps(made, separators=(",", ":"), sort_keys=True)
    target.write_text(text.replace('},"', '},\n"').replace(']],"', ']],\n"') + "\n")


def generate(out: Path) -> int:
    """Write all files into a folder; flatc's exit code."""
    source = ROOT / FOLDER / "tflite.fbs"
    write_layout("tflite.fbs", out / LAYOUT)
    write_layout("metadata.fbs", out / METADATA_LAYOUT)
    with tempfile.TemporaryDirectory() as folder:
        command = ["flatc", "--python", "--gen-onefile", "-o", folder, str(source)]
        code = subprocess.run(command, check=False).returncode
        if code == 0:
            classes = (Path(folder) / "tflite_generated.py").read_text(encoding="utf-8")
            (out / CLASSES).write_text(_HEADER + classes, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(generate(ROOT / FOLDER))
