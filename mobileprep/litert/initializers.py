"""What runs once, before a file's first run: subgraphs that fill lookup tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mobileprep.formats.tflite.records import Options
from mobileprep.litert.program import Op, Program

TABLE: Final = "HASHTABLE"
"""The operator that makes a table. In a program it takes keys and values, in a file nothing."""


def initialized(main: Program) -> Program:
    """A program that calls, before all else, what fills its tables.

    Args:
        main: its tables take their keys and values.
    """
    ops = [replace(op, inputs=()) if op.code == TABLE else op for op in main.ops]
    return main.with_ops([*_calls(main), *ops])


def _calls(main: Program) -> Iterator[Op]:
    for op in main.ops:
        if op.code == TABLE:
            handle = replace(op.outputs[0], name=f"{op.outputs[0].name}_to_fill")
            made = replace(op, inputs=(), outputs=(handle,))
            taken = (handle, *op.inputs)
            filled = Op("HASHTABLE_IMPORT", taken, (), Options("HashtableImportOptions"))
            program = Program((), (), (made, filled), f"fill_{op.outputs[0].name}")
            yield Op("CALL_ONCE", (), (), Options("CallOnceOptions"), subgraphs=(program,))
