"""Every language's definitions are found with kind, scope, name, lines, signature and comment."""

import pytest

from toolpost.parts.workspace.engine import compound_parts, parts_of
from toolpost.parts.workspace.languages import BY_NAME, LANGUAGES, language_of, language_of_first_line
from toolpost.parts.workspace.symbols import chunks_of, symbols_of

GO_REST = "type R interface{ Run() }\n\nconst (\n\tA = 1\n\tB = 2\n)\n"

SAMPLES = {
    "python": (
        "LIMIT = 3\n\n@cached\nasync def load(a, b=1) -> int:\n    '''Load it.'''\n\nclass A(B):\n    def run(self): ...\n",
        [("variable", "LIMIT", 1, 1), ("function", "load", 3, 5), ("class", "A", 7, 8), ("method", "A.run", 8, 8)],
    ),
    "javascript": (
        "// Says hi.\nfunction hi(a) {}\nclass A {\n  run() {}\n}\nexport const f = (x) => x;\nconst LIMIT = 3;\n",
        [
            *[("function", "hi", 2, 2), ("class", "A", 3, 5), ("method", "A.run", 4, 4)],
            *[("function", "f", 6, 6), ("variable", "LIMIT", 7, 7)],
        ],
    ),
    "typescript": (
        "export interface I { run(a: string): void }\ntype T = string;\nenum E { A }\nclass A<T> {\n  go(): void {}\n}\n",
        [
            *[("interface", "I", 1, 1), ("method", "I.run", 1, 1), ("type", "T", 2, 2), ("enum", "E", 3, 3)],
            *[("class", "A", 4, 6), ("method", "A.go", 5, 5)],
        ],
    ),
    "tsx": ("export function App(p: P) {\n  return <div/>\n}\n", [("function", "App", 1, 3)]),
    "go": (
        "package a\n\n// Run runs.\nfunc Run() error { }\n\nfunc (s *S) Stop() {}\n\ntype S struct{}\n\n" + GO_REST,
        [
            *[("function", "Run", 4, 4), ("method", "Stop", 6, 6), ("struct", "S", 8, 8), ("interface", "R", 10, 10)],
            *[("constant", "A", 13, 13), ("constant", "B", 14, 14)],
        ],
    ),
    "rust": (
        "/// Runs.\npub fn run(a: i32) -> i32 { 1 }\nstruct S;\nimpl S {\n    fn go(&self) {}\n}\ntrait T {}\nenum E { A }\n",
        [
            *[("function", "run", 2, 2), ("struct", "S", 3, 3), ("method", "S.go", 5, 5)],
            *[("trait", "T", 7, 7), ("enum", "E", 8, 8)],
        ],
    ),
    "java": (
        "/** Runs. */\npublic class A {\n  int size = 1;\n  int run(int a) { return 1; }\n}\ninterface I {}\nenum E { A }\n",
        [
            *[("class", "A", 2, 5), ("variable", "A.size", 3, 3), ("method", "A.run", 4, 4)],
            *[("interface", "I", 6, 6), ("enum", "E", 7, 7)],
        ],
    ),
    "c": (
        "#define MAX 3\n/* Runs. */\nstatic int *run(int a)\n{\n  return 0;\n}\nstruct S { int a; };\ntypedef int T;\n",
        [("macro", "MAX", 1, 1), ("function", "run", 3, 6), ("struct", "S", 7, 7), ("type", "T", 8, 8)],
    ),
    "cpp": (
        "namespace n {\nclass A {\n  int run() { return 1; }\n};\nint A::stop(int x) const { return x; }\n}\n",
        [("module", "n", 1, 6), ("class", "n.A", 2, 4), ("method", "n.A.run", 3, 3), ("method", "n.A.stop", 5, 5)],
    ),
    "csharp": (
        "namespace N {\n  class A {\n    int P { get; set; }\n    int Run(int a) { return 1; }\n  }\n  interface I {}\n}\n",
        [
            *[("module", "N", 1, 7), ("class", "N.A", 2, 5), ("property", "N.A.P", 3, 3)],
            *[("method", "N.A.Run", 4, 4), ("interface", "N.I", 6, 6)],
        ],
    ),
    "ruby": (
        "# Holds.\nmodule M\n  class A < B\n    def run(a)\n    end\n  end\nend\nX = 1\n",
        [("module", "M", 2, 7), ("class", "M.A", 3, 6), ("method", "M.A.run", 4, 5), ("constant", "X", 8, 8)],
    ),
    "php": (
        "<?php\n/** Runs. */\nfunction run($a) { return 1; }\nclass A { function go() {} }\ninterface I {}\n",
        [("function", "run", 3, 3), ("class", "A", 4, 4), ("method", "A.go", 4, 4), ("interface", "I", 5, 5)],
    ),
    "shell": (
        "# Runs.\nrun() {\n  echo\n}\nfunction stop { echo; }\n",
        [("function", "run", 2, 4), ("function", "stop", 5, 5)],
    ),
    "sql": (
        "-- Users.\nCREATE TABLE users (id int);\nCREATE VIEW names AS SELECT 1;\n",
        [("table", "users", 2, 2), ("table", "names", 3, 3)],
    ),
    "markdown": ("intro\n\n# One\ntext\n\n## Two\nmore\n", [("section", "One", 3, 7), ("section", "Two", 6, 7)]),
}


def test_every_language_with_a_grammar_has_a_sample() -> None:
    assert set(SAMPLES) == {language.name for language in LANGUAGES if language.grammar}


@pytest.mark.parametrize("name", SAMPLES)
def test_definitions_are_found(name: str) -> None:
    source, expected = SAMPLES[name]
    symbols = symbols_of(source.encode(), BY_NAME[name])

    found = [(s.kind, f"{s.scope}.{s.name}" if s.scope else s.name, s.start, s.end) for s in symbols]
    assert found == expected


@pytest.mark.parametrize(
    ("name", "symbol", "signature", "doc"),
    [
        ("python", "load", "async def load(a, b=1) -> int:", "Load it."),
        ("javascript", "hi", "function hi(a)", "Says hi."),
        ("go", "Run", "func Run() error", "Run runs."),
        ("rust", "run", "pub fn run(a: i32) -> i32", "Runs."),
        ("java", "A", "public class A", "Runs."),
        ("c", "run", "static int *run(int a)", "Runs."),
        ("php", "run", "function run($a)", "Runs."),
        ("shell", "run", "run()", "Runs."),
        ("sql", "users", "CREATE TABLE users (id int)", "Users."),
    ],
)
def test_signature_and_comment_come_with_a_definition(name: str, symbol: str, signature: str, doc: str) -> None:
    found = next(s for s in symbols_of(SAMPLES[name][0].encode(), BY_NAME[name]) if s.name == symbol)

    assert (found.signature, found.doc) == (signature, doc)


@pytest.mark.parametrize("name", SAMPLES)
def test_broken_code_is_taken_apart_all_the_same(name: str) -> None:
    source = SAMPLES[name][0]
    for broken in (source[: len(source) // 2], source + "\n(((( {{{{ \x00 \ud83d", "", "\n" * 50):
        chunks = chunks_of(broken, BY_NAME[name])

        assert all(1 <= chunk.start <= chunk.end <= broken.count("\n") + 1 for chunk in chunks)


def test_each_line_belongs_to_one_chunk() -> None:
    text = SAMPLES["python"][0]
    chunks = chunks_of(text, BY_NAME["python"])

    assert sorted(line for chunk in chunks for line in chunk.text.split("\n") if line) == sorted(
        filter(None, text.split("\n"))
    )


def test_identifiers_are_split() -> None:
    assert parts_of("getHTTPUser_by2") == ("get", "http", "user", "by", "2")
    assert parts_of("__init__") == ("init",)
    assert set(compound_parts("getUserById plain").split()) == {"get", "user", "by", "id"}


def test_languages_are_told_by_name_and_first_line() -> None:
    names = {path: found.name for path in ("a.py", "A.TS", "Makefile", "x/y.rs") if (found := language_of(path))}
    assert names == {"a.py": "python", "A.TS": "typescript", "Makefile": "data", "x/y.rs": "rust"}
    assert language_of("run") is None
    assert language_of_first_line("#!/usr/bin/env python3").name == "python"
    assert language_of_first_line("#!/bin/sh -e").name == "shell"
    assert language_of_first_line("hello").name == "text"
