"""Compare ``mobileprep --help`` and ``validate --no-files`` with ``python -c pass``.

    python benchmarks/startup.py

Limit: 0.2 s more than the bare interpreter. The commands must not import numpy. Without
``--no-files``, ``validate`` opens the models and needs numpy.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from measure import measure, mobileprep

RECIPE = str(Path(__file__).parent.parent / "recipes" / "digits" / "recipe.yaml")


def main() -> None:
    bare = measure([sys.executable, "-c", "pass"], runs=15)
    print(f"python -c pass: {bare.median:.3f} s")
    for arguments in (["--help"], ["validate", "--no-files", RECIPE]):
        taken = measure([mobileprep(), *arguments], runs=15)
        over = taken.median - bare.median
        name = " ".join(a for a in arguments if a != RECIPE)
        print(
            f"mobileprep {name}: {taken.median:.3f} s, {over:.3f} s over bare "
            f"(bound 0.2), {taken.median / bare.median:.1f} times; numpy imported: "
            f"{imports_numpy(arguments)}"
        )


def imports_numpy(arguments: list[str]) -> bool:
    code = (
        "import sys; from mobileprep.cli.main import main; main(sys.argv[1:]); "
        "sys.exit(3 if 'numpy' in sys.modules else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, check=False
    )
    return done.returncode == 3


if __name__ == "__main__":
    main()
