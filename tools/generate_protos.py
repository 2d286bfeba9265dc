"""Generate mobileprep/formats/protos/*_pb2.py and .pyi from the .proto files.

Run with grpcio-tools 1.50.0 (protoc 21), the newest compiler whose output works with
the oldest protobuf that pyproject.toml allows: ``pip install grpcio-tools==1.50.0``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = Path("mobileprep/formats/protos")


def generate(out: Path) -> int:
    """Compile every .proto file into the package below ``out``; return protoc's exit code."""
    from grpc_tools import protoc

    sources = sorted(str(p.relative_to(ROOT)) for p in (ROOT / PROTOS).glob("*.proto"))
    options = [f"-I{ROOT}", f"--python_out={out}", f"--pyi_out={out}"]
    return int(protoc.main(["protoc", *options, *sources]))


if __name__ == "__main__":
    sys.exit(generate(ROOT))
