"""Names with serial numbers, as TensorFlow 1.15 gives them to the constants that it folds to."""

from __future__ import annotations


class SerialNames:
    """Counts on over all steps of a chain, as 1.15 does over all that one process does."""

    def __init__(self) -> None:
        self._given = 0

    def constant(self, node: str, number: int) -> str:
        """The name of the next constant.

        Args:
            node: the node whose output the constant replaces.
            number: which of the constants of one folding it is.
        """
        self._given += 1
        return f"{node}/_{number}__cf__{self._given - 1}"
