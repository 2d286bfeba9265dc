"""The ops that are lookup tables, and those that fill them."""

from __future__ import annotations

from typing import Final

TABLES: Final = frozenset(
    {
        "HashTable",
        "HashTableV2",
        "MutableHashTable",
        "MutableHashTableV2",
        "MutableHashTableOfTensors",
        "MutableHashTableOfTensorsV2",
        "MutableDenseHashTable",
        "MutableDenseHashTableV2",
    }
)
"""Their output is the table's handle."""

READERS: Final = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
"""They fill a table, their first input, from the file that their second input names."""

FILLERS: Final = READERS | {
    "InitializeTable",
    "InitializeTableV2",
    "LookupTableImport",
    "LookupTableImportV2",
    "LookupTableInsert",
    "LookupTableInsertV2",
}
"""Their first input is the table that they fill."""
