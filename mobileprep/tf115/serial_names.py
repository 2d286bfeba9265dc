"""Names with serial numbers, as TensorFlow 1.15 gives them to the constants that it folds to."""

from __future__ import annotations

from collections.abc import Container


class SerialNames:
    """Counts on over all steps of a chain, as 1.15 does over all that one process does."""

    def __init__(self) -> None:
        self._given = 0

    def constant(self, node: str, number: int, taken: Container[str] = ()) -> str:
        """The name of the next constant.

        Args:
            node: the node whose output the constant replaces.
            number: which of the constants of one folding it is.
            taken: the names that nodes have, which 1.15 gives a second time.
        """
        while True:
            name = f"{node}/_{number}__cf__{self._given}"
            self._given += 1
            if name not in taken:
                return name
