"""The supported languages: file names, and tree-sitter queries for their definitions.

A query pattern has two captures: `@name`, and one whose name is the kind of the symbol.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

Family = Literal["code", "prose"]

KINDS: Final = (
    "class",
    "constant",
    "enum",
    "function",
    "interface",
    "macro",
    "method",
    "module",
    "property",
    "section",
    "struct",
    "table",
    "text",
    "trait",
    "type",
    "variable",
)
"""Every kind of symbol; `text` is the text between symbols."""

CONTAINERS: Final = frozenset({"class", "interface", "struct", "trait", "enum", "impl"})
"""Kinds in which a function is a method."""


@dataclass(frozen=True, kw_only=True)
class Language:
    """A language, and how its symbols are found."""

    name: str
    suffixes: tuple[str, ...]
    family: Family = "code"
    grammar: tuple[str, str] | None = None
    """The module of the grammar and the function that returns it; None for text without symbols."""
    patterns: str = ""
    file_names: tuple[str, ...] = ()


_PYTHON = """
(function_definition name: (identifier) @name) @function
(class_definition name: (identifier) @name) @class
(module (expression_statement (assignment left: (identifier) @name)) @variable)
"""

_JAVASCRIPT = """
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: (_) @name) @method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function) (function_expression)]) @function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @method
(program (lexical_declaration (variable_declarator name: (identifier) @name) @variable))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @variable)))
"""

_TYPESCRIPT = (
    _JAVASCRIPT
    + """
(class_declaration name: (type_identifier) @name) @class
(abstract_class_declaration name: (type_identifier) @name) @class
(interface_declaration name: (type_identifier) @name) @interface
(type_alias_declaration name: (type_identifier) @name) @type
(enum_declaration name: (identifier) @name) @enum
(internal_module name: (identifier) @name) @module
(function_signature name: (identifier) @name) @function
(method_signature name: (property_identifier) @name) @method
(abstract_method_signature name: (property_identifier) @name) @method
"""
)

_GO = """
(function_declaration name: (identifier) @name) @function
(method_declaration name: (field_identifier) @name) @method
(type_spec name: (type_identifier) @name type: (struct_type)) @struct
(type_spec name: (type_identifier) @name type: (interface_type)) @interface
(type_spec name: (type_identifier) @name type: (_)) @type
(type_alias name: (type_identifier) @name) @type
(source_file (const_declaration (const_spec name: (identifier) @name) @constant))
(source_file (var_declaration (var_spec name: (identifier) @name) @variable))
"""

_RUST = """
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(struct_item name: (type_identifier) @name) @struct
(union_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(trait_item name: (type_identifier) @name) @trait
(impl_item type: (_) @name) @impl
(mod_item name: (identifier) @name) @module
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @variable
(type_item name: (type_identifier) @name) @type
(macro_definition name: (identifier) @name) @macro
"""

_JAVA = """
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(annotation_type_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @variable
"""

_C = """
(function_definition declarator: (_) @name) @function
(struct_specifier name: (type_identifier) @name body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @struct
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(type_definition declarator: (type_identifier) @name) @type
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
"""

_CPP = (
    _C
    + """
(class_specifier name: (type_identifier) @name body: (_)) @class
(namespace_definition name: (_) @name) @module
(alias_declaration name: (type_identifier) @name) @type
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @method
"""
)

_C_SHARP = """
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(struct_declaration name: (identifier) @name) @struct
(interface_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(delegate_declaration name: (identifier) @name) @type
(namespace_declaration name: (_) @name) @module
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
(property_declaration name: (identifier) @name) @property
(local_function_statement name: (identifier) @name) @function
"""

_RUBY = """
(method name: (_) @name) @method
(singleton_method name: (_) @name) @method
(class name: (_) @name) @class
(module name: (_) @name) @module
(program (assignment left: (constant) @name) @constant)
"""

_PHP = """
(function_definition name: (name) @name) @function
(method_declaration name: (name) @name) @method
(class_declaration name: (name) @name) @class
(interface_declaration name: (name) @name) @interface
(trait_declaration name: (name) @name) @trait
(enum_declaration name: (name) @name) @enum
(namespace_definition name: (namespace_name) @name body: (_)) @module
"""

_SQL = """
(create_table (object_reference) @name) @table
(create_view (object_reference) @name) @table
(create_materialized_view (object_reference) @name) @table
(create_function (object_reference) @name) @function
(create_type (object_reference) @name) @type
"""

_MARKDOWN = """
(section (atx_heading (inline) @name)) @section
(section (setext_heading (paragraph) @name)) @section
"""


LANGUAGES: Final = (
    Language(
        name="python",
        suffixes=(".py", ".pyi", ".pyw"),
        grammar=("tree_sitter_python", "language"),
        patterns=_PYTHON,
        file_names=("SConstruct", "SConscript"),
    ),
    Language(
        name="javascript",
        suffixes=(".js", ".mjs", ".cjs", ".jsx"),
        grammar=("tree_sitter_javascript", "language"),
        patterns=_JAVASCRIPT + "(class_declaration name: (identifier) @name) @class",
    ),
    Language(
        name="typescript",
        suffixes=(".ts", ".mts", ".cts"),
        grammar=("tree_sitter_typescript", "language_typescript"),
        patterns=_TYPESCRIPT,
    ),
    Language(name="tsx", suffixes=(".tsx",), grammar=("tree_sitter_typescript", "language_tsx"), patterns=_TYPESCRIPT),
    Language(name="go", suffixes=(".go",), grammar=("tree_sitter_go", "language"), patterns=_GO),
    Language(name="rust", suffixes=(".rs",), grammar=("tree_sitter_rust", "language"), patterns=_RUST),
    Language(name="java", suffixes=(".java",), grammar=("tree_sitter_java", "language"), patterns=_JAVA),
    Language(name="c", suffixes=(".c", ".h"), grammar=("tree_sitter_c", "language"), patterns=_C),
    Language(
        name="cpp",
        suffixes=(".cpp", ".cc", ".cxx", ".c++", ".hpp", ".hh", ".hxx", ".ipp"),
        grammar=("tree_sitter_cpp", "language"),
        patterns=_CPP,
    ),
    Language(name="csharp", suffixes=(".cs",), grammar=("tree_sitter_c_sharp", "language"), patterns=_C_SHARP),
    Language(
        name="ruby",
        suffixes=(".rb", ".rake", ".gemspec"),
        grammar=("tree_sitter_ruby", "language"),
        patterns=_RUBY,
        file_names=("Rakefile", "Gemfile"),
    ),
    Language(name="php", suffixes=(".php", ".phtml"), grammar=("tree_sitter_php", "language_php"), patterns=_PHP),
    Language(
        name="shell",
        suffixes=(".sh", ".bash", ".zsh", ".ksh"),
        grammar=("tree_sitter_bash", "language"),
        patterns="(function_definition name: (word) @name) @function",
    ),
    Language(name="sql", suffixes=(".sql",), grammar=("tree_sitter_sql", "language"), patterns=_SQL),
    Language(
        name="markdown",
        suffixes=(".md", ".markdown", ".mdx"),
        family="prose",
        grammar=("tree_sitter_markdown", "language"),
        patterns=_MARKDOWN,
    ),
    Language(
        name="text",
        suffixes=(".txt", ".rst", ".adoc", ".org", ".tex"),
        family="prose",
        file_names=("README", "LICENSE", "COPYING", "NOTICE", "AUTHORS", "CHANGES", "CHANGELOG", "NEWS", "TODO"),
    ),
    Language(
        name="data",
        suffixes=(
            *(".json", ".jsonc", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".conf", ".xml", ".csv", ".tsv", ".env"),
            *(".properties", ".graphql", ".proto", ".tf", ".nix", ".lock"),
        ),
        file_names=("Makefile", "Dockerfile", "Jenkinsfile", "Procfile", "go.mod", "go.sum"),
    ),
    Language(name="web", suffixes=(".html", ".htm", ".css", ".scss", ".sass", ".less", ".vue", ".svelte", ".svg")),
    Language(
        name="other",
        suffixes=(
            *(".kt", ".kts", ".swift", ".scala", ".lua", ".pl", ".pm", ".r", ".jl", ".hs", ".ex", ".exs", ".erl"),
            *(".clj", ".dart", ".zig", ".m", ".mm", ".vb", ".fs", ".ml", ".el", ".vim", ".ps1", ".bat", ".cmake"),
            *(".gradle", ".groovy", ".s", ".asm", ".pyx", ".pxd", ".f90", ".tcl", ".awk"),
        ),
        file_names=("CMakeLists.txt",),
    ),
)

BY_NAME: Final = {language.name: language for language in LANGUAGES}
_BY_SUFFIX: Final = {suffix: language for language in LANGUAGES for suffix in language.suffixes}
_BY_FILE_NAME: Final = {name: language for language in LANGUAGES for name in language.file_names}
_SHEBANGS: Final = {
    "python": "python",
    "node": "javascript",
    "ruby": "ruby",
    "php": "php",
    "sh": "shell",
    "bash": "shell",
}


def language_of(path: str) -> Language | None:
    """Return the language of a file by its name, or None if the name does not tell."""
    name = PurePosixPath(path).name
    return _BY_FILE_NAME.get(name) or _BY_SUFFIX.get(PurePosixPath(name).suffix.lower())


def language_of_first_line(line: str) -> Language:
    """Return the language named by a `#!` line, else plain text."""
    if line.startswith("#!"):
        words = line[2:].replace("/", " ").split()
        for word in reversed(words):
            if found := _SHEBANGS.get(word.rstrip("0123456789.")):
                return BY_NAME[found]
    return BY_NAME["text"]
