"""Measure builds of the digits recipe: cold, unchanged, and with an edited last step.

    python benchmarks/digits.py

Limits: 0.6 s cold, 0.25 s unchanged, and 0.35 s with an edited last transform. Every run is a new
process with a cache in a temporary directory.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measure import measure, mobileprep

DIGITS = Path(__file__).parent.parent / "recipes" / "digits"


def main() -> None:
    cold, edited, idle = [], [], []
    # No files are deleted before the end, see measure.set_aside.
    with tempfile.TemporaryDirectory() as name:
        for number in range(5):
            folder = Path(name, str(number))
            recipe = folder / "digits" / "recipe.yaml"
            shutil.copytree(DIGITS, recipe.parent)
            env = {"MOBILEPREP_CACHE": str(folder / "store")}
            command = [mobileprep(), "build", str(recipe), "--out", str(folder / "out")]
            cold.append(measure(command, runs=1, env=env).best)
            idle.append(measure(command, runs=5, env=env).median)
            edit_last_transform(recipe)
            edited.append(measure(command, runs=1, env=env).best)
    whole = statistics.median(cold)
    print(f"cold build: {whole:.2f} s (bound 0.6)")
    print(f"nothing changed: {statistics.median(idle):.3f} s (bound 0.25)")
    edit = statistics.median(edited)
    print(f"last transform edited: {edit:.2f} s, {edit / whole:.0%} of cold (bound 0.35)")


def edit_last_transform(recipe: Path) -> None:
    text = recipe.read_text()
    old, new = "num_steps: 256", "num_steps: 128"
    if old not in text:
        sys.exit(f"{recipe} has no {old!r} to edit")
    recipe.write_text(text.replace(old, new))


if __name__ == "__main__":
    main()
