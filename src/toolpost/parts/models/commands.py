"""`toolpost models`: the circuits and requests of models, and a reset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from toolpost.base import JsonObject
from toolpost.parts.models import PART
from toolpost.parts.models.plugin import render_totals
from toolpost.parts.models.settings import GROUPS, MODELS
from toolpost.parts.models.stats import Totals, select
from toolpost.settings import Config
from toolpost.store import open_part_store, store_exists
from toolpost.terminal import (
    ExitCode,
    NoGateway,
    RunningGateway,
    SuggestingGroup,
    config_option,
    examples,
    json_option,
    load_cli_config,
    print_json_line,
    print_table,
    run_async,
    show_failure,
    table,
    url_option,
)

API = "/api/models"


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    epilog=examples(
        ("toolpost models", "circuit and requests of each"),
        ("toolpost models --stats", "tokens, cost and latencies"),
        ("toolpost models reset small", "ask it again before its pause is over"),
    ),
)
@click.option(
    "--stats", "shows_stats", is_flag=True, help="Calls, failures, tokens, cost and latencies, from the store."
)
@url_option
@config_option
@json_option("Print the models, or with --stats their statistics, as one array, on one line.")
@click.pass_context
def models(
    context: click.Context, url: str | None, config_path: Path | None, *, shows_stats: bool, as_json: bool
) -> ExitCode:
    """Show the models and groups of the running gateway, their statistics, or reset a circuit.

    A gateway's token comes from TOOLPOST_TOKEN or http.token.
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    config = load_cli_config(config_path)
    if shows_stats:
        if url is not None:
            raise click.UsageError("--stats cannot be used with --url: the statistics are in the store")
        _print_stats(run_async(_read_stats, config), as_json=as_json)
        return ExitCode.OK
    try:
        found = RunningGateway.of(config, url).ask("GET", API)["models"]
    except NoGateway as error:
        if url is None:
            _print_models(
                [{"name": name, "circuit": {"state": state}} for name, state in _list_configured(config)], as_json
            )
        return show_failure(error, debug=False)
    _print_models(found, as_json)
    return ExitCode.OK


@models.command(
    epilog=examples(
        ("toolpost models reset small", "one of them"),
        ("toolpost models reset", "all of them"),
    )
)
@click.argument("name", required=False)
@url_option
@config_option
@json_option("Print the models as one array, on one line.")
@click.pass_context
def reset(
    context: click.Context, name: str | None, url: str | None, config_path: Path | None, *, as_json: bool
) -> None:
    """Close the circuit of a model, or of `group/server`.

    Without a name, those of all.
    """
    outer: Mapping[str, Any] = context.parent.params if context.parent else {}
    gateway = RunningGateway.of(load_cli_config(config_path or outer.get("config_path")), url or outer.get("url"))
    found = gateway.ask("POST", f"{API}/reset", {} if name is None else {"name": name})["models"]
    _print_models(found, as_json or bool(outer.get("as_json")))


def _list_configured(config: Config) -> list[tuple[str, str]]:
    """Return the names of models and servers of groups that a gateway would have, with their states."""
    found = [(name, "not running" if model.enabled else "disabled") for name, model in MODELS.of(config).items()]
    return found + [
        (f"{name}/{server}", "not running") for name, group in GROUPS.of(config).items() for server in group.servers
    ]


async def _read_stats(config: Config) -> dict[str, Totals]:
    if not await store_exists(config.store_url):
        return {}
    async with open_part_store(config.store_url, PART.name, PART.migrations) as store:
        return await store.scripts.read(select)


def _print_models(found: list[JsonObject], as_json: bool) -> None:
    if as_json:
        print_json_line(found)
    elif not found:
        click.echo("no models are configured: add [models.NAME] with a `url` to toolpost.toml", err=True)
    else:
        columns = ("NAME", "CIRCUIT", "AGAIN IN", "CALLS", "FAILED", "COST", "P50")
        print_table(table(*columns, rows=[_make_row(one) for one in found]))


def _make_row(one: JsonObject) -> tuple[str, ...]:
    circuit = one["circuit"]
    again_ms = circuit.get("retry_after_ms", 0)
    return (
        one["name"],
        circuit["state"],
        f"{again_ms / 1000:.0f} s" if again_ms else "-",
        str(one.get("calls", "-")),
        str(one.get("failures", "-")),
        _format_cost(one.get("cost")),
        _format_ms(one.get("latency_ms", {}).get("p50")),
    )


def _print_stats(known: Mapping[str, Totals], *, as_json: bool) -> None:
    """Print what models were asked, by name."""
    shown = [{"name": name, **render_totals(totals)} for name, totals in sorted(known.items())]
    if as_json:
        print_json_line(shown)
    elif not shown:
        click.echo("no model was asked yet", err=True)
    else:
        columns = ("NAME", "CALLS", "FAILED", "TOKENS IN", "TOKENS OUT", "COST", "P50", "P95", "P99")
        print_table(table(*columns, rows=[_make_stats_row(one) for one in shown]))


def _make_stats_row(one: JsonObject) -> tuple[str, ...]:
    latency = one["latency_ms"]
    return (
        one["name"],
        *(str(one[key]) for key in ("calls", "failures", "input_tokens", "output_tokens")),
        _format_cost(one["cost"]),
        *(_format_ms(latency[key]) for key in ("p50", "p95", "p99")),
    )


def _format_cost(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:.6g}"


def _format_ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"
