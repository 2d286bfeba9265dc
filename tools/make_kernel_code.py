"""Generate opdefs/data/kernel_code-1.15.json, the code size of each kernel source file.

python tools/make_kernel_code.py tensorflow_core/python/_pywrap_tensorflow_internal.so

The library is from the unpacked x86-64 wheel of tensorflow-1.15.0 (Python 3.7, manylinux2010).
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile

DATA = Path(__file__).parents[1] / "mobileprep/graph/opdefs/data"
TABLE = DATA / "kernel_code-1.15.json"
SOURCE = (
    "bytes of functions between the local symbols of each source file, in the order of the link, "
    "in _pywrap_tensorflow_internal.so of the x86-64 wheel of TensorFlow 1.15.0; what lies between "
    "two files counts in equal parts to each. A template that several files compile is in the "
    "first of them alone. Made by tools/make_kernel_code.py."
)
# Start-up functions of all files, which come before the code of each file.
_STARTUP = ("_GLOBAL__sub_I_", "_GLOBAL__I_")


class Span(NamedTuple):
    """Address range of the local functions of a source file."""

    start: int
    stop: int
    file: str


def kernel_code(library: Path) -> dict[str, int]:
    """Return the bytes of code by source file below ``tensorflow/core/kernels/``."""
    names = {Path(file).name: file for file in _kernel_sources()}
    functions, spans = _read(library)
    starts = [span.start for span in spans]
    sizes: dict[str, float] = defaultdict(float)
    for address, size in functions.items():
        for file, share in _files_at(address, spans, starts):
            sizes[file] += size * share
    found = {names[file]: round(size) for file, size in sizes.items() if file in names}
    return dict(sorted(found.items()))


def _kernel_sources() -> list[str]:
    """Return the source files of the tables, below ``tensorflow/core/kernels/``."""
    registering = json.loads((DATA / "op_files-1.15.json").read_text(encoding="utf-8"))["files"]
    needed = json.loads((DATA / "file_needs-1.15.json").read_text(encoding="utf-8"))["needed_by"]
    mobile = json.loads((DATA / "mobile_files.json").read_text(encoding="utf-8"))["tf1.15"]
    files = chain(*registering.values(), needed, *mobile.values())
    return sorted({file for file in files if not file.startswith("tensorflow/")})


def _read(library: Path) -> tuple[dict[int, int], list[Span]]:
    """Return the sizes of functions by address, and the spans of files in address order."""
    functions: dict[int, int] = {}
    local: list[tuple[int, str, str, int, int]] = []
    number, file = 0, ""
    with library.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        for symbol in table.iter_symbols():
            info, address, size = symbol["st_info"], symbol["st_value"], symbol["st_size"]
            if info["type"] == "STT_FILE":
                number, file = number + 1, Path(symbol.name).name
            elif info["type"] == "STT_FUNC" and size:
                functions[address] = max(size, functions.get(address, 0))
                if info["bind"] == "STB_LOCAL":
                    local.append((number, file, symbol.name, address, size))
    return functions, _spans(local)


def _spans(local: list[tuple[int, str, str, int, int]]) -> list[Span]:
    """Return the span of each file's local functions, without start-up functions."""
    text = max(address for _, _, name, address, _ in local if name.startswith(_STARTUP))
    spans: dict[int, Span] = {}
    for number, file, _, address, size in local:
        if address > text:
            start, stop, _ = spans.get(number, (address, address, file))
            spans[number] = Span(min(start, address), max(stop, address + size), file)
    return sorted(spans.values())


def _files_at(address: int, spans: list[Span], starts: list[int]) -> Iterator[tuple[str, float]]:
    """Yield the files that may contain a function, with the share of each."""
    at = bisect_right(starts, address)
    before, after = spans[max(at - 1, 0)], spans[min(at, len(spans) - 1)]
    if before.start <= address < before.stop:
        yield before.file, 1.0
    else:
        yield before.file, 0.5
        yield after.file, 0.5


if __name__ == "__main__":
    (given,) = sys.argv[1:]
    table = {"bytes": kernel_code(Path(given)), "source": SOURCE}
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
