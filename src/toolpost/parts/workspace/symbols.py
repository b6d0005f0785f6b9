"""Split a file into chunks: each symbol with its own lines, and the text between symbols in pieces.

Symbols come from the tree-sitter syntax tree: kind, name, signature, lines and documentation. Example: a class with two methods
gives three chunks. The lines of a method belong to the chunk of the method, not of the class.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from toolpost.parts.workspace import optional
from toolpost.parts.workspace.languages import CONTAINERS, Language

PIECE_LINES: Final = 60
"""The longest piece of text without a symbol."""
SIGNATURE_LIMIT: Final = 240
DOC_LIMIT: Final = 4_000
NAME_LIMIT: Final = 200
_MAX_ANONYMOUS_RUN: Final = 500
_MAX_NAME_CHARS: Final = 1_000
"""Characters of a name that are read: the pattern for names takes more than linear time."""

_WRAPPERS: Final = frozenset({"decorated_definition", "export_statement", "template_declaration"})
_WRAPPERS_OF_ONE: Final = frozenset(
    {
        *("lexical_declaration", "variable_declaration", "type_declaration", "const_declaration", "var_declaration"),
        *("expression_statement", "statement"),
    }
)
_GENERIC_KINDS: Final = frozenset({"variable", "constant", "type"})
_COMMENTS: Final = frozenset({"comment", "line_comment", "block_comment", "marginalia"})
_COMMENT_MARKS: Final = re.compile(r"^\s*(?:/\*\*?|\*/|\*(?!/)|//[/!]?|#+|--|;+)?[ \t]?|\s*\*/\s*$", re.MULTILINE)
_STRING: Final = re.compile(r"""^[rRuUbBfF]{0,2}("{3}|'{3}|"|')(.*)\1$""", re.DOTALL)
_SPACES: Final = re.compile(r"\s+")
_DECLARED: Final = re.compile(r"(?:(?P<scope>[\w:~<>, ]*)::)?(?P<name>~?\w+|operator\s*\S+?)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """One definition; lines count from 1, `end` included."""

    name: str
    kind: str
    scope: str
    """The names of the enclosing symbols, joined by dots; empty at the top level."""
    line: int
    """The line of its name."""
    start: int
    end: int
    signature: str
    doc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A symbol, or a piece of text between symbols; lines count from 1, `end` included."""

    symbol: Symbol | None
    start: int
    end: int
    text: str
    """Its own lines, without those of symbols inside it."""

    @property
    def kind(self) -> str:
        return self.symbol.kind if self.symbol else "text"


@dataclass(slots=True)
class _SymbolDefinition:
    """A match of a query, whose enclosing symbols are not known yet."""

    node: Any
    outer: Any
    name: str
    scope: str
    kind: str
    line: int
    start: int
    end: int


def chunks_of(text: str, language: Language) -> list[Chunk]:
    lines = text.split("\n")
    symbols = symbols_of(text.encode("utf-8", "replace"), language)
    # For each line the index of the innermost symbol that contains it, or -1: inner symbols come later, and overwrite outer ones.
    owners = [-1] * len(lines)
    for index, symbol in enumerate(symbols):
        start, end = symbol.start - 1, min(symbol.end, len(lines))
        owners[start:end] = [index] * (end - start)
    own: dict[int, list[str]] = {}
    for number, owner in enumerate(owners):
        if owner >= 0:
            own.setdefault(owner, []).append(lines[number])
    chunks = [
        Chunk(symbol=symbol, start=symbol.start, end=symbol.end, text="\n".join(own.get(index, ())))
        for index, symbol in enumerate(symbols)
    ]
    chunks.extend(
        Chunk(symbol=None, start=start + 1, end=end, text="\n".join(lines[start:end]))
        for start, end in _pieces(lines, owners)
    )
    return chunks


def _pieces(lines: list[str], owners: list[int]) -> Iterator[tuple[int, int]]:
    """Yield start and end of the runs of lines outside symbols, without blank lines at either end."""
    start = 0
    while start < len(lines):
        if owners[start] >= 0 or not lines[start].strip():
            start += 1
            continue
        end = start
        while end < len(lines) and owners[end] < 0 and end - start < PIECE_LINES:
            end += 1
        last = end
        while not lines[last - 1].strip():
            last -= 1
        yield start, last
        start = end


def symbols_of(source: bytes, language: Language) -> list[Symbol]:
    """Return the symbols by line, an outer one before those inside it; none if there is no grammar or the tree is too costly."""
    if language.grammar is None:
        return []
    parser, query = _load_parser(language)
    tree = parser.parse(source)
    if _is_too_costly(tree.root_node):
        return []
    definitions: dict[tuple[int, int], _SymbolDefinition] = {}
    cursor = optional.tree_sitter().QueryCursor(query)
    for _, captures in cursor.matches(tree.root_node):
        if (definition := _read_definition(captures)) is not None:
            place = definition.node.start_byte, definition.node.end_byte
            # Several patterns may match one node: an arrow function is a variable too.
            if place not in definitions or definitions[place].kind in _GENERIC_KINDS:
                definitions[place] = definition
    ordered = sorted(definitions.values(), key=lambda each: (each.start, -each.end, each.node.start_byte))
    return _nest(ordered, source, language)


def _is_too_costly(root: Any) -> bool:
    """Whether a query on this tree would take too long: the time is quadratic in the length of a run of anonymous nodes."""
    pending = [root] if root.descendant_count > _MAX_ANONYMOUS_RUN else []
    while pending:
        run = 0
        for child in pending.pop().children:
            run = 0 if child.is_named else run + 1
            if run > _MAX_ANONYMOUS_RUN:
                return True
            if child.descendant_count > _MAX_ANONYMOUS_RUN:
                pending.append(child)
    return False


@cache
def _load_parser(language: Language) -> tuple[Any, Any]:
    assert language.grammar is not None
    tree_sitter = optional.tree_sitter()
    module, function = language.grammar
    compiled = tree_sitter.Language(getattr(optional.grammar(module), function)())
    return tree_sitter.Parser(compiled), tree_sitter.Query(compiled, language.patterns)


def _read_definition(captures: dict[str, list[Any]]) -> _SymbolDefinition | None:
    names = captures.pop("name", None)
    if not names or not captures:
        return None
    kind, (node, *_) = next(iter(captures.items()))
    name, scope = _name_of(names[0])
    if not name:
        return None
    # The lines of a symbol include its decorators, `export` and the like.
    outer = node
    while (parent := outer.parent) is not None and (
        parent.type in _WRAPPERS or (parent.type in _WRAPPERS_OF_ONE and parent.named_child_count == 1)
    ):
        outer = parent
    # A node that ends in column 0 ends with the line before.
    end = outer.end_point[0] + (1 if outer.end_point[1] > 0 or outer.end_point[0] == outer.start_point[0] else 0)
    start = outer.start_point[0] + 1
    return _SymbolDefinition(
        node=node,
        outer=outer,
        name=name[:NAME_LIMIT],
        scope=scope,
        kind=kind,
        line=names[0].start_point[0] + 1,
        start=start,
        end=max(start, end),
    )


def _name_of(node: Any) -> tuple[str, str]:
    """Return the name and the explicit scope of a name node; for C, of the innermost declarator."""
    while (inner := node.child_by_field_name("declarator")) is not None:
        node = inner
    text = _SPACES.sub(" ", _text(node)[-_MAX_NAME_CHARS:]).strip()
    if node.type in ("qualified_identifier", "scope_resolution") and (parts := _DECLARED.search(text)):
        return parts["name"], (parts["scope"] or "").replace("::", ".").strip(". ")
    return text.strip("'\"`"), ""


def _nest(definitions: list[_SymbolDefinition], source: bytes, language: Language) -> list[Symbol]:
    """Give each definition the scope of those around it; a function in a class becomes a method."""
    symbols: list[Symbol] = []
    enclosing: list[_SymbolDefinition] = []
    for definition in definitions:
        while enclosing and definition.node.start_byte >= enclosing[-1].node.end_byte:
            enclosing.pop()
        scope = [outer.name for outer in enclosing if outer.kind != "section"] + (
            [definition.scope] if definition.scope else []
        )
        is_within = bool(enclosing) and enclosing[-1].kind in CONTAINERS
        kind = "method" if definition.kind == "function" and (is_within or definition.scope) else definition.kind
        enclosing.append(definition)
        # An `impl` of Rust defines nothing itself: it is the scope of its methods.
        if kind == "impl":
            continue
        if language.name == "python":
            doc = _docstring(definition.node)
        else:
            doc = _comment_before(definition.outer) if language.family == "code" else ""
        symbols.append(
            Symbol(
                name=definition.name,
                kind=kind,
                scope=".".join(scope)[:NAME_LIMIT],
                line=definition.line,
                start=definition.start,
                end=definition.end,
                signature=_signature(definition, source),
                doc=doc[:DOC_LIMIT],
            )
        )
    return symbols


def _signature(definition: _SymbolDefinition, source: bytes) -> str:
    """Return the text before the body, on one line."""
    body = definition.node.child_by_field_name("body") or definition.node.child_by_field_name("value")
    if body is not None and body.type in ("arrow_function", "function_expression"):
        body = body.child_by_field_name("body")
    start = definition.node.start_byte
    until = body.start_byte if body is not None and body.start_byte > start else definition.node.end_byte
    text = source[start : min(until, start + 4 * SIGNATURE_LIMIT)].decode("utf-8", "replace")
    if body is None:
        text = text.split("\n", 1)[0]
    text = _SPACES.sub(" ", text).strip().rstrip("{").rstrip()
    text = text.removesuffix("=").rstrip() if definition.kind in ("variable", "constant") else text
    return text if len(text) <= SIGNATURE_LIMIT else f"{text[:SIGNATURE_LIMIT]}…"


def _docstring(node: Any) -> str:
    body = node.child_by_field_name("body")
    if body is None:
        return ""
    first = next((child for child in body.named_children if child.type != "comment"), None)
    if first is None or first.type != "expression_statement" or first.named_child_count != 1:
        return ""
    (value,) = first.named_children
    if value.type not in ("string", "concatenated_string"):
        return ""
    text = _text(value)
    inner = _STRING.match(text)
    return (inner[2] if inner else text).strip()


def _comment_before(node: Any) -> str:
    lines: list[str] = []
    line = node.start_point[0]
    before = node.prev_sibling
    while before is not None and before.type in _COMMENTS and line - before.end_point[0] <= 1:
        lines.append(_text(before))
        line, before = before.start_point[0], before.prev_sibling
    lines.reverse()
    return _COMMENT_MARKS.sub("", "\n".join(lines)[: 2 * DOC_LIMIT]).strip()


def _text(node: Any) -> str:
    found: bytes = node.text or b""
    return found.decode("utf-8", "replace")
