"""Mutants: the library with one small mistake in one line, which some test should notice."""

import ast
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

PACKAGES = ("estimators", "nn", "batching", "kernels")

OTHER_OPERATOR = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_NAME = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "mean", "mean": "sum"}
OTHER_NAME |= {"zeros_like": "ones_like", "ones_like": "zeros_like", "new_zeros": "new_ones"}
# Statements that speak to people or to a type checker, not to numbers.
SKIPPED = (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.JoinedStr, ast.Delete, ast.Global)


@dataclass(frozen=True)
class Mutant:
    """One piece of one line, replaced.

    Attributes:
        path: of the file, from the root of the tree.
        line: counted from 1.
        start: first byte of the piece in its line.
        stop: the byte after its last.
        text: what takes its place.
        kind: what was done.
    """

    path: str
    line: int
    start: int
    stop: int
    text: str
    kind: str

    def of(self, source: str) -> str:
        """The mutated source."""
        lines = source.encode().splitlines(keepends=True)
        before = lines[self.line - 1]
        lines[self.line - 1] = before[: self.start] + self.text.encode() + before[self.stop :]
        return b"".join(lines).decode()

    def name(self, source: str) -> str:
        """What it is known by as long as its file stays as it is."""
        digest = hashlib.sha256(source.encode()).hexdigest()[:8]
        return f"{self.path}:{self.line}:{self.start}:{self.kind}:{self.text}:{digest}"


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All that can be made of a file, in the order of its lines."""
    places = (
        Mutant(path, node.lineno, node.col_offset, node.end_col_offset, text, kind)
        for node, text, kind in _replacements(ast.parse(source))
        if node.lineno == node.end_lineno
    )
    return sorted(set(places), key=lambda m: (m.line, m.start, m.stop, m.text, m.kind))


def drawn(root: Path, count: int, seed: int) -> list[Mutant]:
    """So many at random, no two in one line: a line of the packages that compute, then one of its mutants."""
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for path in sorted(path for package in PACKAGES for path in (root / "src/lmc" / package).glob("*.py")):
        for mutant in mutants_of(path.relative_to(root).as_posix(), path.read_text()):
            by_line.setdefault((mutant.path, mutant.line), []).append(mutant)
    random, found = Random(seed), []
    for line in random.sample(sorted(by_line), len(by_line)):
        source = (root / line[0]).read_text()
        lawful = [mutant for mutant in by_line[line] if _is_other_program(mutant.of(source), source)]
        if lawful:
            found.append(random.choice(lawful))
        if len(found) == count:
            break
    return found


def _is_other_program(mutated: str, source: str) -> bool:
    try:
        return ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _replacements(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """(node, text in its place, what was done)."""
    for node, function in _code(tree):
        if isinstance(node, ast.stmt):
            yield from _of_statement(node, function)
        elif isinstance(node, ast.expr):
            for other, kind in _of_expression(node):
                yield node, f"({ast.unparse(other)})", kind


def _code(node: ast.AST, function: ast.AST | None = None) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Every node that is computed with, and the function it is in: no annotations, docstrings, messages."""
    if isinstance(node, SKIPPED) or _is_talk(node):
        return
    yield node, function
    inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _code(child, inner)


def _is_talk(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        words = ast.unparse(node.value)
        return isinstance(node.value, ast.Constant) or words.startswith(
            ("warnings.", "print(", "super().__init__")
        )
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.FunctionDef):
        return any(ast.unparse(each) == "overload" for each in node.decorator_list)
    return isinstance(node, ast.Assign) and "Literal[" in ast.unparse(node.value)


def _of_statement(node: ast.stmt, function: ast.AST | None) -> Iterator[tuple[ast.AST, str, str]]:
    acts = isinstance(node, ast.Expr | ast.AugAssign | ast.Continue | ast.Break)
    writes = isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    )
    if acts or writes:
        yield node, "pass", "statement removed"
        returns = getattr(function, "returns", None)
        if isinstance(returns, ast.Constant) and returns.value is None:
            yield node, "return", "returned early"
    if isinstance(node, ast.AugAssign) and type(node.op) in OTHER_OPERATOR:
        other = copy.deepcopy(node)
        other.op = OTHER_OPERATOR[type(node.op)]()
        yield node, ast.unparse(other), "other operator"
    if isinstance(node, ast.If | ast.While):
        yield node.test, f"(not ({ast.unparse(node.test)}))", "condition negated"


def _of_expression(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """Expressions in the place of one."""
    other: ast.expr = copy.deepcopy(node)
    match node, other:
        case (ast.BinOp(), ast.BinOp()) if type(node.op) in OTHER_OPERATOR:
            other.op = OTHER_OPERATOR[type(node.op)]()
            yield other, "other operator"
        case ast.BoolOp(), ast.BoolOp():
            other.op = OTHER_OPERATOR[type(node.op)]()
            yield other, "other operator"
        case ast.Compare(), ast.Compare():
            other.ops = [OTHER_OPERATOR[type(op)]() for op in node.ops]
            yield other, "other operator"
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()), _:
            yield node.operand, "sign dropped"
        case ast.IfExp(), ast.IfExp():
            other.body, other.orelse = other.orelse, other.body
            yield other, "condition negated"
        case ast.Constant(value=bool()), _:
            yield ast.Constant(not node.value), "other constant"
        case ast.Constant(value=int() | float()), _:
            yield ast.Constant(node.value + 1), "other constant"
        case ast.Subscript(slice=ast.Slice(step=None)), ast.Subscript():
            other.slice.lower, other.slice.upper = other.slice.upper, other.slice.lower
            yield other, "other half"
        case ast.Call(), ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    asks = ast.unparse(node.func) in ("isinstance", "getattr", "hasattr", "setattr")
    for place in range(0 if asks else len(node.args) - 1):
        other = copy.deepcopy(node)
        other.args[place : place + 2] = reversed(other.args[place : place + 2])
        yield other, "arguments swapped"
    for place in range(len(node.keywords)):
        other = copy.deepcopy(node)
        del other.keywords[place]
        yield other, "argument dropped"
    called = copy.deepcopy(node)
    match called.func:
        case ast.Name(id=name) if name in OTHER_NAME:
            called.func.id = OTHER_NAME[name]
            yield called, "other function"
        case ast.Attribute(attr=name) if name in OTHER_NAME:
            called.func.attr = OTHER_NAME[name]
            yield called, "other function"
