"""The contracts of tools, and their validation. No I/O.

contract     a tool's contract, compiled once and enforced on every call
schema       JSON Schema compiled; the only module that knows the validator
names        names for the tools of servers and APIs, which all clients accept
document     a schema document: the schemas inside it, and where references lead
expansion    the cost of a schema for a validator, estimated before it is compiled
closing      the closed form in which native tools publish their schemas
issues/      the errors of a value, worded for the model that sent it
display      values and schemas shortened for messages
envelope     the two styles of an answer, and their schemas
apps         the `ui://` resources of MCP Apps in definitions
compatibility/  whether callers notice that a definition changed: `judge`
source_digest  the digest of this package's source, by which verdicts are remembered
skills       the skills of servers: their URIs, and the rules for valid entries
findings, injection, signals  texts of a definition that may address the model instead of the user
lockfile     `toolpost.lock` as text, and how live tools differ from it
errors       every error, by who can fix it
digest       SHA-256 digests of JSON

`__init__.pyi` lists the public names, looked up when they are first used: importing a contract must not load the code that
compares definitions.
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
