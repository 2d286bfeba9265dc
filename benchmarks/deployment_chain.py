"""How do the documented chains compare with the original tool on an InceptionV3 graph?

    python benchmarks/deployment_chain.py GRAPH ORIGINAL INPUT OUTPUT

GRAPH is a frozen InceptionV3 (96 MB, 2,200 nodes) without the attributes that TensorFlow 1.15
does not know; ORIGINAL is the original ``transform_graph`` binary. Whole processes, run in turn.
The bounds: at most 1.0 times the original's wall time, at most 0.8 times its peak memory.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from measure import alternate, mobileprep

DEPLOYMENT = (
    "strip_unused_nodes fold_constants(ignore_errors=true) "
    "fold_batch_norms(ignore_errors=true) fold_old_batch_norms"
)
CHAINS = {"deployment": DEPLOYMENT, "deployment, 8-bit weights": f"{DEPLOYMENT} quantize_weights"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name in ("graph", "original", "input", "output"):
        parser.add_argument(name)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for label, chain in CHAINS.items():
            compare(label, chain, args, Path(folder))


def compare(label: str, chain: str, args: argparse.Namespace, folder: Path) -> None:
    def flags(out: str) -> list[str]:
        return [
            f"--in_graph={args.graph}",
            f"--out_graph={folder / out}",
            f"--inputs={args.input}",
            f"--outputs={args.output}",
            f"--transforms={chain}",
        ]

    ours, theirs = alternate(
        [mobileprep(), "transform", *flags("ours.pb")],
        [args.original, *flags("theirs.pb")],
        runs=args.runs,
    )
    print(f"{label}:")
    print(f"  ours   {ours.median:.2f} s (best {ours.best:.2f}), {ours.peak / 1e6:.0f} MB")
    print(f"  theirs {theirs.median:.2f} s (best {theirs.best:.2f}), {theirs.peak / 1e6:.0f} MB")
    print(f"  wall time ratio {ours.median / theirs.median:.2f} (bound 1.0)")
    print(f"  memory ratio    {ours.peak / theirs.peak:.2f} (bound 0.8)")


if __name__ == "__main__":
    main()
