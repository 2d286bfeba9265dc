"""How long does the digits recipe take: cold, with nothing changed, with the last step edited?

    python benchmarks/digits.py

The bounds: cold at most 0.6 s; nothing changed at most 0.25 s; last transform edited at most
0.35 s. Every run is a fresh process; the store is a temporary folder.
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
    # Nothing is removed before the end: see measure.set_aside.
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
