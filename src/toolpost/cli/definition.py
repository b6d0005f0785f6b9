"""A tool's definition as text, for `toolpost tools NAME`."""

import json
from collections.abc import Iterable, Iterator

import click

from toolpost.base.ids import META_KEY, Json, JsonObject
from toolpost.cli.call.schemas import describe_type, properties_of, resolve
from toolpost.cli.show import heading, print_json, print_table, table
from toolpost.cli.terminal import printable
from toolpost.contracts.contract import Contract, Keyed
from toolpost.providers import ProvidedTool


def summarize_definition(definition: JsonObject) -> str:
    """Return the first sentence of the description, else the title, else ""."""
    text = str(definition.get("description") or "").strip() or str(definition.get("title") or "")
    line = text.splitlines()[0] if text else ""
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.rstrip()


def format_concurrency(contract: Contract) -> str:
    concurrency = contract.terms.concurrency
    return f"one per {concurrency.argument}" if isinstance(concurrency, Keyed) else concurrency


def print_tool(tool: ProvidedTool) -> None:
    """Print the contract of a tool in this process."""
    print_definition(tool.contract.definition, _facts_of_tool(tool))


def print_definition(definition: JsonObject, facts: Iterable[tuple[str, str]]) -> None:
    """Print a definition as `tools/list` returned it, with facts about it as a table."""
    title, description = definition.get("title"), str(definition.get("description") or "")
    click.echo(heading(printable(str(definition["name"]))) + printable(f"  {title}" if title else ""))
    if description:
        click.echo(printable(description))
    click.echo()
    print_table(table("", "", rows=list(facts), header=False))
    click.echo(f"\n{heading('Arguments')}")
    _print_arguments(definition["inputSchema"])
    click.echo(f"\n{heading('Input schema')}")
    print_json(definition["inputSchema"])
    if "outputSchema" in definition:
        click.echo(f"\n{heading('Output schema')}")
        print_json(definition["outputSchema"])


def facts_of(definition: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield what a gateway lists with a tool besides its schemas."""
    facts = (definition.get("_meta") or {}).get(META_KEY) or {}
    yield "version", version_of(definition)
    yield "schema version", str(facts.get("schemaVersion", "-"))
    if annotations := definition.get("annotations"):
        yield "annotations", ", ".join(f"{name}={json.dumps(value)}" for name, value in annotations.items())
    if aliases := facts.get("aliases"):
        yield "former names", ", ".join(map(str, aliases))


def version_of(definition: JsonObject) -> str:
    """Return the version that a gateway lists with a tool, `-` if there is none."""
    facts = (definition.get("_meta") or {}).get(META_KEY) or {}
    return str(facts.get("toolingVersion") or "-")


def _facts_of_tool(tool: ProvidedTool) -> Iterator[tuple[str, str]]:
    contract = tool.contract
    terms = contract.terms
    yield "plugin", tool.provider
    yield "version", terms.tooling_version or "-"
    yield "schema version", str(terms.schema_version)
    yield "time limit", f"{contract.timeout_s:g} s"
    yield "concurrency", format_concurrency(contract)
    yield "error codes", ", ".join(terms.errors) or "-"
    if terms.annotations:
        yield "annotations", ", ".join(f"{name}={json.dumps(value)}" for name, value in terms.annotations.items())
    if contract.aliases:
        yield "former names", ", ".join(contract.aliases)
    yield "digest", contract.digest


def _print_arguments(schema: JsonObject) -> None:
    required = schema.get("required", ())
    rows = [
        (
            name,
            describe_type(declared, schema),
            "yes" if name in required else "no",
            _format_default(resolve(declared, schema)),
            str(resolve(declared, schema).get("description", "")),
        )
        for name, declared in properties_of(schema, schema).items()
    ]
    if rows:
        print_table(table("NAME", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION", rows=rows))
    else:
        click.echo("none")


def _format_default(declared: JsonObject) -> str:
    default: Json = declared.get("default", ...)
    return "-" if default is ... else json.dumps(default, ensure_ascii=False)
