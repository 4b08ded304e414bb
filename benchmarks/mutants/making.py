"""The mutants of a source file: mutmut's operators (but those on texts) and four more, over the whole file.

mutmut's own runner leaves out constants of modules, fields of classes and decorated functions, and draws no samples; so
only its list of operators is used. Not mutated: imports, annotations, decorators, and what errors say.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

MUTMUTS = [(kind, change) for kind, change in mutators.mutation_operators if change is not mutators.operator_string]
LEFT_ALONE = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.FormattedString, cst.Raise)


@dataclass(frozen=True)
class Mutant:
    """One change of `path`. `lines` are those of the statement; `inside`: in what a function does when it is called,
    not in what happens while the module is imported."""

    path: str
    number: int
    lines: tuple[int, int]
    inside: bool
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.lines[0]} #{self.number}"


def mutants(root: Path, path: str) -> list[Mutant]:
    """All mutants of a file, in its order; those that are no Python, or the same Python as before, are left out."""
    original = (root / path).read_bytes()
    wrapper = MetadataWrapper(cst.parse_module(original))
    finder = _Finder(wrapper.resolve(PositionProvider))
    wrapper.module.visit(finder)
    spans = wrapper.resolve(ByteSpanPositionProvider)
    seen = {ast.dump(ast.parse(original))}
    made: list[Mutant] = []
    for node, new, lines, inside in finder.changes:
        start, end = spans[node].start, spans[node].start + spans[node].length
        after = wrapper.module.code_for_node(new)
        source = (original[:start] + after.encode() + original[end:]).decode()
        try:
            shape = ast.dump(ast.parse(source))
            compile(source, path, "exec")
        except SyntaxError:
            continue
        if shape not in seen:
            seen.add(shape)
            before = " ".join(original[start:end].decode().split())
            made.append(Mutant(path, len(made), lines, inside, before, " ".join(after.split()), source))
    return made


class _Finder(cst.CSTVisitor):
    """Collects (node, what to put there, lines of the statement, whether inside a function)."""

    def __init__(self, positions: Mapping[cst.CSTNode, CodeRange]) -> None:
        self.changes: list[tuple[cst.CSTNode, cst.CSTNode, tuple[int, int], bool]] = []
        self._positions = positions
        self._statements: list[cst.CSTNode] = []
        self._bodies: set[cst.CSTNode] = set()
        self._inside = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self._statements.append(node)
        if isinstance(node, cst.FunctionDef):
            self._bodies.add(node.body)
        self._inside += node in self._bodies
        for old, new in _changed(node):
            self.changes.append((old, new, self._lines(node), self._inside > 0))
        return not isinstance(node, LEFT_ALONE) and not _is_text(node)

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self._statements.pop()
        self._inside -= original_node in self._bodies

    def _lines(self, node: cst.CSTNode) -> tuple[int, int]:
        statement = self._statements[-1]
        if node is statement and isinstance(node, cst.If | cst.While):
            node = node.test
        whole = statement if isinstance(statement, cst.SimpleStatementLine) else node
        return self._positions[statement].start.line, self._positions[whole].end.line


def _changed(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """What to replace, and by what."""
    if not isinstance(node, LEFT_ALONE):
        for kind, change in MUTMUTS:
            if isinstance(node, kind):
                yield from ((node, new) for new in change(node))
    if isinstance(node, cst.If | cst.While):
        bare = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.test, cst.UnaryOperation(cst.Not(), bare)
    elif isinstance(node, cst.Return) and node.value is not None:
        yield node, cst.Return(cst.Name("None"))
    elif isinstance(node, cst.Raise | cst.AugAssign) or (isinstance(node, cst.Expr) and not _is_text(node)):
        yield node, cst.Pass()


def _is_text(node: cst.CSTNode) -> bool:
    """A docstring, or a text that stands alone."""
    return isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString | cst.ConcatenatedString)
