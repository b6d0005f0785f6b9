"""The input and output schemas of the tools of the workspace."""

from typing import Any, Final

from toolpost.base import JsonObject
from toolpost.parts.workspace.languages import KINDS, LANGUAGES


def _object(properties: dict[str, Any], *, optional: tuple[str, ...] = ()) -> JsonObject:
    """Return the schema of a closed object; all properties are required except `optional`."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(items: JsonObject) -> JsonObject:
    return {"type": "array", "items": items}


def _or_null(schema: JsonObject) -> JsonObject:
    return {"anyOf": [schema, {"type": "null"}]}


_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_LINE: Final = {"type": "integer", "minimum": 1}
_FLAG: Final = {"type": "boolean"}
_COUNTS: Final = {"type": "object", "additionalProperties": _COUNT}
_FAMILY: Final = {"type": "string", "enum": ["code", "prose"]}
_MODE: Final = {"type": "string", "enum": ["all", "code", "prose"]}
_NUMBERED: Final = _list(_object({"line": _LINE, "text": _TEXT, "cut": _FLAG}, optional=("cut",)))
_FAILURES: Final = _list(_object({"repo": _TEXT, "code": _TEXT, "message": _TEXT, "hint": _TEXT}, optional=("hint",)))
_REPO: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "Name of a repository of the workspace",
}

NOTHING: Final = {"type": "object", "properties": {}}

BUILD_INPUT: Final = {
    "type": "object",
    "properties": {
        "repo": {**_REPO, "description": "The repository to build; every one unless named"},
        "mode": {**_MODE, "default": "all", "description": "What the index holds: code, prose (documents), or all"},
        "incremental": {
            "type": "boolean",
            "default": True,
            "description": "Keep what has not changed since the last build; false builds from nothing",
        },
        "force": {
            "type": "boolean",
            "default": False,
            "description": "Compare every file by its content, whatever its size and times say",
        },
    },
}

BUILD_OUTPUT: Final = _object(
    {
        "repositories": _list(
            _object(
                {
                    "repo": _TEXT,
                    "generation": _COUNT,
                    **dict.fromkeys(("files", "chunks", "lines", "bytes", "sourceBytes"), _COUNT),
                    **dict.fromkeys(("added", "changed", "removed", "renamed", "unchanged"), _COUNT),
                    "skipped": {**_COUNTS, "description": "How many files were left out, by reason"},
                    "skippedFiles": _list(_object({"path": _TEXT, "reason": _TEXT})),
                    "seconds": {"type": "number", "minimum": 0},
                    "rebuilt": {**_TEXT, "description": "Why nothing of the index before was used"},
                },
                optional=("rebuilt",),
            )
        ),
        "failures": _FAILURES,
    }
)

SEARCH_INPUT: Final = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1000,
            "description": 'A name, words, or a "phrase in quotes"; with `regex` a regular expression',
            "examples": ["getUserById", "parse the configuration file", '"raise ValueError"'],
        },
        "repo": {**_REPO, "description": "The repository to search; all of them together unless named"},
        "mode": {**_MODE, "default": "all", "description": "Where to look: code, prose (documents), or all"},
        "top": {"type": "integer", "minimum": 1, "maximum": 100, "default": 5, "description": "How many hits"},
        "context": {
            "type": "integer",
            "minimum": 0,
            "maximum": 50,
            "default": 0,
            "description": "Lines to show before and after the line that matters",
        },
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 500,
            "description": "A folder, a file or a glob such as src/**/*.py",
        },
        "language": {"type": "string", "enum": [language.name for language in LANGUAGES]},
        "kind": {"type": "string", "enum": list(KINDS), "description": "Kind of symbol; text is what is in none"},
        "symbol": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "Name of the symbol a hit must be, such as Config.load; * stands for anything",
        },
        "case": {"type": "boolean", "default": False, "description": "Whether capitals matter"},
        "regex": {
            "type": "boolean",
            "default": False,
            "description": "Whether the query is a regular expression (RE2), matched line by line",
        },
    },
    "required": ["query"],
}

SEARCH_OUTPUT: Final = _object(
    {
        "hits": _list(
            _object(
                {
                    "repo": _TEXT,
                    "path": _TEXT,
                    "language": _TEXT,
                    "startLine": _LINE,
                    "endLine": _LINE,
                    "line": {**_LINE, "description": "The line that matters, which `headline` shows"},
                    "kind": {"type": "string", "enum": list(KINDS)},
                    "headline": _TEXT,
                    "isDefinition": {**_FLAG, "description": "Whether it defines what was asked for by name"},
                    "stale": {**_FLAG, "description": "The file has changed since it was indexed; the lines are right"},
                    "score": {"type": "number", "minimum": 0, "maximum": 1},
                    "symbol": {**_TEXT, "description": "Its name, with what it stands in"},
                    "signature": _TEXT,
                    "lines": _NUMBERED,
                },
                optional=("symbol", "signature", "lines"),
            )
        ),
        "searched": {**_list(_TEXT), "description": "The repositories that answered"},
        "truncated": {**_FLAG, "description": "Whether the search stopped before it had seen everything"},
        "stale": {
            **_list(_object({"repo": _TEXT, "path": _TEXT, "state": {"type": "string", "enum": ["changed", "gone"]}})),
            "description": "Files that differ from what was indexed",
        },
        "failures": _FAILURES,
    }
)

SHOW_INPUT: Final = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "description": "A file, relative to its repository",
        },
        "repo": {**_REPO, "description": "The repository it is in; the first that has it unless named"},
        "start": {**_LINE, "description": "First line; 1 unless given"},
        "end": {**_LINE, "description": "Last line; that of the file unless given"},
    },
    "required": ["path"],
}

SHOW_OUTPUT: Final = _object(
    {
        "repo": _TEXT,
        "path": _TEXT,
        "language": _TEXT,
        "encoding": _TEXT,
        "bytes": _COUNT,
        "totalLines": {**_or_null(_COUNT), "description": "null for a file too large to count them"},
        "startLine": _LINE,
        "endLine": _COUNT,
        "lines": _NUMBERED,
        "truncated": {**_FLAG, "description": "Whether there was more than fits"},
        "nextStart": {**_LINE, "description": "Where to go on"},
    },
    optional=("nextStart",),
)

_GIT: Final = _or_null(
    _object(
        {
            "head": _or_null(_TEXT),
            "branch": _or_null(_TEXT),
            "dirty": _FLAG,
            "note": {**_TEXT, "description": "What is not known of it, and why; `dirty` is then true to be safe"},
        },
        optional=("note",),
    )
)
_MAYBE: Final = (
    *("message", "generation", "builtAt", "ageSeconds", "mode", "files", "lines", "chunks", "sourceBytes", "bytes"),
    *("languages", "skipped", "indexedGit", "changed", "stale", "watch"),
)

STATUS_INPUT: Final = {
    "type": "object",
    "properties": {"repo": {**_REPO, "description": "The repository it is about; the first one unless named"}},
}

STATUS_OUTPUT: Final = _object(
    {
        "repo": _TEXT,
        "root": _TEXT,
        "exists": {**_FLAG, "description": "Whether there is an index that can be searched"},
        "damaged": _FLAG,
        "message": _TEXT,
        "git": _GIT,
        "generation": _COUNT,
        "builtAt": {"type": "string", "format": "date-time"},
        "ageSeconds": {"type": "number", "minimum": 0},
        "mode": _MODE,
        **dict.fromkeys(("files", "lines", "chunks", "sourceBytes", "bytes"), _COUNT),
        "languages": _COUNTS,
        "skipped": _COUNTS,
        "indexedGit": {**_GIT, "description": "What git said when the index was built"},
        "changed": {
            **_object({**dict.fromkeys(("added", "modified", "deleted"), _COUNT), "paths": _list(_TEXT)}),
            "description": "Files that differ from what was indexed",
        },
        "stale": _FLAG,
        "watch": {
            **_object(
                {
                    "state": {"type": "string", "enum": ["starting", "watching", "indexing", "polling", "failing"]},
                    "message": _TEXT,
                },
                optional=("message",),
            ),
            "description": "How it follows the repository by itself, where it does",
        },
    },
    optional=_MAYBE,
)

CHECK_OUTPUT: Final = _object(
    {
        "repositories": _list(_object({"repo": _TEXT, "root": _TEXT, "index": _TEXT})),
        "languages": _list(
            _object({"name": _TEXT, "family": _FAMILY, "suffixes": _list(_TEXT), "symbols": _FLAG, "available": _FLAG})
        ),
        "capabilities": {"type": "object", "additionalProperties": _or_null(_TEXT)},
        "limits": {"type": "object", "additionalProperties": {"type": "number"}},
        "warnings": _list(_object({"code": _TEXT, "message": _TEXT, "repo": _TEXT}, optional=("repo",))),
    }
)

WORKSPACE_OUTPUT: Final = _object(
    {
        "repositories": _list(STATUS_OUTPUT),
        "failures": _FAILURES,
        "totals": _object(dict.fromkeys(("files", "chunks", "lines", "bytes"), _COUNT)),
    }
)
