"""One tool in full, for people."""

import json
from collections.abc import Iterator

import click

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.call.schemas import declared_type, properties_of, resolved
from toolpost.cli.show import heading, print_json, print_table, table
from toolpost.cli.terminal import printable
from toolpost.contracts.contract import Contract, Keyed
from toolpost.providers import HeldTool


def first_sentence(contract: Contract) -> str:
    """Say in a line what a tool does."""
    text = contract.terms.description.strip() or contract.terms.title or ""
    line = text.splitlines()[0] if text else ""
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.rstrip()


def spelled_concurrency(contract: Contract) -> str:
    """Say which calls of a tool wait for each other."""
    concurrency = contract.terms.concurrency
    return f"one per {concurrency.argument}" if isinstance(concurrency, Keyed) else concurrency


def print_tool(tool: HeldTool) -> None:
    """Print all there is to know about a tool."""
    contract = tool.contract
    terms = contract.terms
    click.echo(heading(contract.name) + printable(f"  {terms.title}" if terms.title else ""))
    if terms.description:
        click.echo(printable(terms.description))
    click.echo()
    print_table(table("", "", rows=list(_facts(tool)), header=False))
    click.echo(f"\n{heading('Arguments')}")
    _print_arguments(contract.definition["inputSchema"])
    click.echo(f"\n{heading('Input schema')}")
    print_json(contract.definition["inputSchema"])
    if "outputSchema" in contract.definition:
        click.echo(f"\n{heading('Output schema')}")
        print_json(contract.definition["outputSchema"])


def _facts(tool: HeldTool) -> Iterator[tuple[str, str]]:
    contract = tool.contract
    terms = contract.terms
    yield "plugin", tool.source
    yield "version", terms.tooling_version or "-"
    yield "schema version", str(terms.schema_version)
    yield "time limit", f"{contract.timeout_s:g} s"
    yield "concurrency", spelled_concurrency(contract)
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
            declared_type(declared, schema),
            "yes" if name in required else "no",
            _default(resolved(declared, schema)),
            str(resolved(declared, schema).get("description", "")),
        )
        for name, declared in properties_of(schema, schema).items()
    ]
    if rows:
        print_table(table("NAME", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION", rows=rows))
    else:
        click.echo("none")


def _default(declared: JsonObject) -> str:
    default: Json = declared.get("default", ...)
    return "-" if default is ... else json.dumps(default, ensure_ascii=False)
