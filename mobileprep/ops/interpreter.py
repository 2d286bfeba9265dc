"""The interpreter: runs a graph with numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mobileprep.errors import InvalidGraphError, MobileprepError, UsageError, nearest_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import Ref, parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.feeds import checked_feed
from mobileprep.ops.kernel import call_kernel
from mobileprep.ops.plan import Plan, Step, make_plan

_KEPT_PLANS = 16
# What numpy raises when shapes, types, indices or sizes do not fit.
_KERNEL_FAULTS = (ValueError, TypeError, IndexError, ArithmeticError, MemoryError)


class Interpreter:
    """Runs a graph. The order of nodes is planned once for each set of fetches and feeds.

    Args:
        graph: the graph.
        where: what the graph is called, for messages.
    """

    def __init__(self, graph: Graph, *, where: str = "graph") -> None:
        self._graph = graph
        self._where = where
        self._plans: dict[tuple[tuple[str, ...], tuple[str, ...]], Plan] = {}

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """The values of the tensors named by ``fetches``.

        Args:
            fetches: tensor names such as "probabilities" or "split:1".
            feeds: values for tensors by name; any tensor may be fed, not placeholders only.

        Returns:
            An array for each fetch; strings as object arrays of bytes. The arrays may share
            memory with constants of the graph and must not be written to.

        Raises:
            UsageError: a name is not in the graph, a feed does not fit its placeholder, or a
                placeholder that is needed is not fed.
            UnsupportedError: an op that has to run has no kernel.
            InvalidGraphError: the graph is malformed, or a node's inputs do not fit its op.
        """
        plan = self._plan(tuple(fetches), tuple(feeds))
        values: list[Array | None] = [None] * plan.size
        for (name, array), slot in zip(feeds.items(), plan.feeds, strict=True):
            value = checked_feed(self._graph, parse_ref(name), array, self._where)
            if slot is not None:
                values[slot] = value
        for slot, node in plan.constants:
            values[slot] = node.attr_tensor("value").array()
        # Infinities and NaN are results like others, as they are to TensorFlow.
        with np.errstate(all="ignore"):
            for step in plan.steps:
                self._take(step, values)
        return [
            self._fetched(values[slot], name)
            for slot, name in zip(plan.fetches, fetches, strict=True)
        ]

    def _plan(self, fetches: tuple[str, ...], feeds: tuple[str, ...]) -> Plan:
        key = (fetches, feeds)
        plan = self._plans.get(key)
        if plan is None:
            wanted = [self._ref(name, "fetch") for name in fetches]
            fed = [self._ref(name, "feed") for name in feeds]
            plan = make_plan(self._graph, wanted, fed, self._where)
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[key] = plan
        return plan

    def _ref(self, name: str, what: str) -> Ref:
        ref = parse_ref(name)
        if ref.node not in self._graph or ref.is_control:
            message = f"the {what} {name!r} is not in the graph"
            raise UsageError(message, nearest_hint(ref.node, self._graph.by_name), self._where)
        return ref

    def _take(self, step: Step, values: list[Array | None]) -> None:
        inputs = [values[slot] for slot in step.inputs]
        try:
            results = call_kernel(step.kernel, step.node, inputs)  # type: ignore[arg-type]
            for index, slot in step.outputs:
                values[slot] = results[index]
        except MobileprepError as error:
            raise _placed(error, step, self._where) from error
        except _KERNEL_FAULTS as error:
            raise _failure(step, inputs, error, self._where) from error
        for slot in step.frees:
            values[slot] = None

    def _fetched(self, value: Array | None, name: str) -> Array:
        if value is None:
            message = f"the tensor {name!r} has no value"
            raise InvalidGraphError(message, "", self._where)
        return value


def _placed(error: MobileprepError, step: Step, where: str) -> MobileprepError:
    """The same error, naming the node that it came from."""
    name = repr(step.node.name)
    message = error.message
    if name not in message:
        message = f"node {name} ({step.node.op}): {message}"
    return type(error)(message, error.hint, error.where or where)


def _failure(
    step: Step, inputs: Sequence[Array | None], error: Exception, where: str
) -> InvalidGraphError:
    shown = ", ".join(_described(x) for x in inputs) or "no inputs"
    reason = str(error) or type(error).__name__
    message = f"node {step.node.name!r} ({step.node.op}) cannot run on {shown}: {reason}"
    hint = "check the shapes and types that are fed, and the graph's inputs"
    return InvalidGraphError(message, hint, where)


def _described(array: Array | None) -> str:
    if array is None:
        return "nothing"
    kind = "string" if array.dtype == object else array.dtype.name
    return f"{kind}{list(array.shape)}"
