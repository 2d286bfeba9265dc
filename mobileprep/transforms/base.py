"""What a transform is: a frozen dataclass of its options, with one method from graph to graph."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from mobileprep.errors import InternalError, TransformError, UsageError, nearest_hint
from mobileprep.ir.ends import nodes_of
from mobileprep.ir.graph import Graph
from mobileprep.ir.rewrite import Rewritten
from mobileprep.registry import Registry, module_names
from mobileprep.tf115.serial_names import SerialNames


@dataclass(frozen=True)
class Context:
    """What a transform may know besides the graph.

    Args:
        inputs: the names of the tensors that will be fed, as the user gave them.
        outputs: the names of the tensors that will be fetched.
        tf115: do what the tool of TensorFlow 1.15 does, its harmless faults included. A
            recipe's chain runs with False and gets the right thing instead.
        serials: the numbers in names that 1.15 gives; steps of a recipe, which do not all run
            in one process, have no use for them.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    tf115: bool = False
    serials: SerialNames = field(default_factory=SerialNames, compare=False, repr=False)

    @property
    def protected(self) -> frozenset[str]:
        """The nodes that the user feeds or fetches, which no transform may take away."""
        return nodes_of((*self.inputs, *self.outputs))


@dataclass(frozen=True)
class Result:
    """What a transform did.

    Args:
        graph: the graph afterwards; the very same object where nothing changed.
        matched: how many places the transform acted on.
        skipped: how many places looked alike but were left, by reason.
        warnings: what the user should know, a sentence each.
    """

    graph: Graph
    matched: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, done: Rewritten, before: Graph, context: Context, warnings: tuple[str, ...] = ()
    ) -> Result:
        """The result of a rewriting.

        1.15 puts the nodes of a place that it looked at and left in another order; only with
        ``tf115`` does that count as a change.
        """
        graph = done.graph if done.matched or context.tf115 else before
        return cls(graph, done.matched, done.skipped, warnings)


class Transform(ABC):
    """Base of all transforms. Subclasses are frozen dataclasses; their fields are the options,
    named as the original tool names its parameters."""

    transform_name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    """What it does, in a sentence or two, for the reference page and editors."""
    of_graph_transform_tool: ClassVar[bool] = False
    """Whether the original tool has a transform of that name."""

    @abstractmethod
    def apply(self, graph: Graph, context: Context) -> Result:
        """Transform a graph.

        Raises:
            TransformError: the transform cannot do its work on this graph.
        """


TransformType = TypeVar("TransformType", bound=type[Transform])

_transforms: Registry[type[Transform]] = Registry("transform")
_NOT_TRANSFORMS = frozenset({"base", "plugins"})


_collecting: list[dict[str, type[Transform]]] = []


def transform(name: str) -> Callable[[TransformType], TransformType]:
    """A decorator that files a transform under its name, which is also its module's."""

    def file_under(kind: TransformType) -> TransformType:
        kind.transform_name = name
        if _collecting:
            _collecting[-1][name] = kind
        else:
            _transforms.register(name)(kind)
        return kind

    return file_under


@contextlib.contextmanager
def collected() -> Iterator[dict[str, type[Transform]]]:
    """Transforms declared inside the block go into the mapping, not among the package's own."""
    found: dict[str, type[Transform]] = {}
    _collecting.append(found)
    try:
        yield found
    finally:
        _collecting.pop()


def transform_names() -> list[str]:
    """The names of all transforms of this package, found by file name, none imported."""
    return [n for n in module_names("mobileprep.transforms") if n not in _NOT_TRANSFORMS]


def transform_class(name: str) -> type[Transform]:
    """The class of a transform; only its own module is imported.

    Raises:
        UsageError: no transform has that name.
    """
    if name not in _transforms:
        known = transform_names()
        if name not in known:
            message = f"there is no transform {name!r}"
            raise UsageError(message, nearest_hint(name, known))
        importlib.import_module(f"mobileprep.transforms.{name}")
    found = _transforms.get(name)
    if found is None:
        message = f"the module mobileprep.transforms.{name} registers no transform {name!r}"
        raise InternalError(message)
    return found


def make_transform(
    name: str, options: Mapping[str, Any], kind: type[Transform] | None = None
) -> Transform:
    """A transform with options of the types that its schema names; lists become tuples.

    Args:
        name: the transform's name.
        options: its parameters.
        kind: its class, where it is none of the package's own.

    Raises:
        UsageError: no such transform, no such option, or an option is missing.
    """
    if kind is None:
        kind = transform_class(name)
    declared = dataclasses.fields(kind)  # type: ignore[arg-type]
    fields = [f.name for f in declared]
    for option in options:
        if option not in fields:
            message = f"the transform {name} has no parameter {option!r}"
            raise UsageError(message, nearest_hint(option, fields))
    for missing in (f.name for f in declared if _is_required(f) and f.name not in options):
        message = f"the transform {name} needs the parameter {missing!r}"
        raise UsageError(message, f"give it: {name}({missing}=...)")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return kind(**values)


def _is_required(option: dataclasses.Field[Any]) -> bool:
    return option.default is option.default_factory is dataclasses.MISSING


def refuse(name: str, message: str, hint: str = "") -> TransformError:
    """The error of a transform that cannot do its work."""
    return TransformError(f"{name}: {message}", hint)
