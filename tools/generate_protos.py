"""Makes mobileprep/formats/protos/*_pb2.py and .pyi anew from the .proto files.

Run with grpcio-tools 1.50.0 (protoc 21), the newest compiler whose output the oldest
protobuf that pyproject.toml admits still loads: ``pip install grpcio-tools==1.50.0``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = Path("mobileprep/formats/protos")


def generate(out: Path) -> int:
    """Compile every .proto file into ``out``, below the package's own path; protoc's exit code."""
    from grpc_tools import protoc

    sources = sorted(str(p.relative_to(ROOT)) for p in (ROOT / PROTOS).glob("*.proto"))
    options = [f"-I{ROOT}", f"--python_out={out}", f"--pyi_out={out}"]
    return int(protoc.main(["protoc", *options, *sources]))


if __name__ == "__main__":
    sys.exit(generate(ROOT))
