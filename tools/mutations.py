"""Mutations of single expressions, for ``tools/mutants.py``."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True)
class Mutation:
    """An expression of a source and its replacement; columns are UTF-8 byte offsets."""

    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str

    def applied(self, source: str) -> str:
        """Return the source with the change."""
        lines = source.encode().splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column
        end = sum(map(len, lines[: self.end_line - 1])) + self.end_column
        whole = source.encode()
        return (whole[:start] + f"({self.after})".encode() + whole[end:]).decode()


def mutations(source: str) -> Iterator[Mutation]:
    """Yield every mutation of a source: comparisons, arithmetic, conditions, numbers."""
    for node in _expressions(ast.parse(source)):
        for after in _variants(node):
            if node.end_lineno is not None and node.end_col_offset is not None:
                yield Mutation(
                    node.lineno,
                    node.col_offset,
                    node.end_lineno,
                    node.end_col_offset,
                    ast.unparse(node),
                    ast.unparse(after),
                )


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions to change.

    Skips annotations, decorators, type aliases, f-strings, and ``strict=True``.
    """
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.Assign | ast.AnnAssign) and _is_type(child):
                continue
            if isinstance(child, ast.keyword) and ast.unparse(child) == "strict=True":
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _expressions(child)


def _is_type(statement: ast.Assign | ast.AnnAssign) -> bool:
    """Return whether a statement defines a type alias or a type variable."""
    if isinstance(statement, ast.AnnAssign):
        return "TypeAlias" in ast.unparse(statement.annotation)
    return isinstance(statement.value, ast.Call) and "TypeVar" in ast.unparse(statement.value.func)


def _variants(node: ast.expr) -> Iterator[ast.expr]:
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.Compare) and type(changed.ops[0]) in _COMPARISONS:
        changed.ops[0] = _COMPARISONS[type(changed.ops[0])]()
        yield changed
    elif isinstance(changed, ast.BinOp) and type(changed.op) in _ARITHMETIC:
        if not _is_text(changed.left) and not _is_text(changed.right):
            changed.op = _ARITHMETIC[type(changed.op)]()
            yield changed
    elif isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
        yield changed
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not):
        yield changed.operand
    elif isinstance(changed, ast.IfExp):
        yield ast.IfExp(changed.test, changed.orelse, changed.body)
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, bool):
        yield ast.Constant(not changed.value)
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, int):
        yield ast.Constant(changed.value + 1)


def _is_text(node: ast.expr) -> bool:
    """Return whether an operand is a string or bytes, which support few other operators."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
