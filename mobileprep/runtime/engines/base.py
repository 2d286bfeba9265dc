"""What an engine is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mobileprep.ir.tensor import Array


class Engine(Protocol):
    """Runs one graph."""

    @property
    def name(self) -> str:
        """What does the work: numpy, openvino or tensorflow."""

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """The values of the tensors named by ``fetches``.

        Args:
            fetches: tensor names such as "probabilities" or "split:1".
            feeds: values for tensors by name; any tensor may be fed.

        Returns:
            An array for each fetch, not to be written to; strings as object arrays of bytes.

        Raises:
            UsageError: a name is not in the graph, a feed does not fit its placeholder, or a
                placeholder that is needed is not fed.
            UnsupportedError: the engine cannot run an op that has to run.
            InvalidGraphError: the graph is malformed, or a node's inputs do not fit its op.
        """
