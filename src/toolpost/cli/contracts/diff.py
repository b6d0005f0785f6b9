"""`toolpost diff`: compare two states of the tools and explain what each change means for callers."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from toolpost.admin.files import read_text
from toolpost.app.tool_states import load_live_tools, read_pinned_tools
from toolpost.base.ids import Json
from toolpost.cli.contracts.output import print_drifts
from toolpost.contracts.compatibility import RULES, Definition, RuleId, judge
from toolpost.contracts.errors import BadConfiguration, InvalidRequest, NotFound
from toolpost.contracts.findings import inspect_change
from toolpost.contracts.lockfile import Drift, LockedTool, drifts, parse_lock
from toolpost.settings import Config
from toolpost.settings.lock import read_lock_text
from toolpost.settings.section import credential_users
from toolpost.terminal import (
    ExitCode,
    config_option,
    examples,
    json_option,
    load_cli_config,
    plugin_option,
    print_json_line,
    run_async,
)
from toolpost.terminal.failures import suggest, warn

LIVE: Final = "live"
PINS: Final = "pins"


@click.command(
    epilog=examples(
        ("toolpost diff", "the lock and the live tools"),
        ("toolpost diff old.lock toolpost.lock", "two locks"),
        ("git show main:toolpost.lock | toolpost diff - toolpost.lock", "the changes of a branch"),
        ("toolpost diff before.json after.json", "two definitions, or two answers to tools/list"),
        ("toolpost diff pins live", "changes since the tools were first seen"),
        ("toolpost diff --explain input.required-added", "the meaning of a rule"),
    )
)
@click.argument("old", required=False, metavar="[OLD]")
@click.argument("new", required=False, metavar="[NEW]")
@click.option("--explain", "rule", metavar="RULE", help="Explain a rule, and the alternatives.")
@config_option
@plugin_option
@json_option("Print `{drifts}`, or with `--explain` the rule, on one line.")
def diff(
    old: str | None,
    new: str | None,
    rule: str | None,
    config_path: Path | None,
    plugins: tuple[str, ...],
    *,
    as_json: bool,
) -> ExitCode:
    """Explain each change between two states of the tools.

    OLD and NEW are lock files, JSON files with one definition or an answer to `tools/list`, `-` for stdin, `live`, or `pins`:
    the definitions as the gateway first saw them. Without them the project's lock, or the pins where there is none, is
    compared with the live tools.
    """
    if rule is not None:
        _explain(rule, as_json=as_json)
        return ExitCode.OK
    config = load_cli_config(config_path, plugins)
    baseline = old or _choose_baseline(config)
    before, knows_before = _load_state(baseline, config)
    after, knows_after = _load_state(new or LIVE, config)
    # Of a plugin or server that could not be listed nothing is known: its tools are not gone.
    before = {name: tool for name, tool in before.items() if knows_after(tool)}
    after = {name: tool for name, tool in after.items() if knows_before(tool)}
    if baseline == PINS:
        # Other plugins are not pinned, so that each of their tools would show as added.
        pinned = credential_users(config)
        after = {name: tool for name, tool in after.items() if tool.source in pinned or name in before}
    found = _compare(before, after)
    if as_json:
        print_json_line({"drifts": [drift.to_json() for drift in found]})
        return ExitCode.OK
    print_drifts(found)
    if not found:
        click.echo("no differences")
    return ExitCode.OK


def _choose_baseline(config: Config) -> str:
    """Return the lock file's path, or `pins` where there is no lock and something is pinned."""
    has_pins = not config.lock_path.exists() and run_async(read_pinned_tools, config)
    return PINS if has_pins else str(config.lock_path)


def _compare(before: Mapping[str, LockedTool], after: Mapping[str, LockedTool]) -> list[Drift]:
    if len(before) == len(after) == 1 and before.keys() != after.keys():
        # Two files with one definition each are two states of one tool, even under different names.
        (old,), (new,) = before.values(), after.values()
        judgement = judge(old.definition, new.definition)
        return [
            Drift(
                name=old.definition.name,
                kind="renamed",
                source=new.source,
                old=old.definition,
                new=new.definition,
                judgement=judgement,
                findings=inspect_change(old.definition, new.definition),
            )
        ]
    return list(drifts(before, after, judge=judge))


def _load_state(name: str, config: Config) -> tuple[Mapping[str, LockedTool], Callable[[LockedTool], bool]]:
    """Return the tools of a state, and whether it can be said what became of a tool of another state there."""
    if name == LIVE:
        live = run_async(load_live_tools, config)
        for source, reason in live.missing.items():
            warn(f"cannot list the tools of `{source}`: {reason}")
        return live.tools, live.is_comparable
    if name == PINS:
        return run_async(read_pinned_tools, config), _know_all
    is_own = Path(name) == config.lock_path
    text = sys.stdin.read() if name == "-" else read_lock_text(Path(name)) if is_own else read_text(Path(name))
    if text is None:
        hint = "run `toolpost lock` to create it" if is_own else "name a file, `-`, `live` or `pins`"
        raise NotFound(f"File not found: {name}.", hint=hint)
    if '"toolpostLock"' in text:
        return parse_lock(text, name=name), _know_all
    return {tool.name: LockedTool.of("", tool) for tool in _parse_definitions(text, name)}, _know_all


def _know_all(_tool: LockedTool) -> bool:
    return True


def _parse_definitions(text: str, name: str) -> list[Definition]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadConfiguration(f"{name} is not JSON: {error}.") from error
    listed = _find_definitions(content)
    if not all(isinstance(tool, dict) and isinstance(tool.get("name"), str) for tool in listed):
        raise InvalidRequest(f"{name} contains no tool definitions.", hint="a definition has a name and an inputSchema")
    return [Definition.from_listed(tool) for tool in listed]


def _find_definitions(content: Json) -> list[Any]:
    """Find the definitions in a single one, a list, or an answer to `tools/list`."""
    if isinstance(content, dict) and isinstance(content.get("result"), dict):
        content = content["result"]
    if isinstance(content, dict) and isinstance(content.get("tools"), list):
        content = content["tools"]
    return content if isinstance(content, list) else [content]


def _explain(name: str, *, as_json: bool) -> None:
    rule = RULES.get(RuleId(name))
    if rule is None:
        hint = suggest(name, RULES, f"known rules: {', '.join(RULES)}")
        raise NotFound(f"Unknown rule `{name}`.", hint=hint)
    if as_json:
        print_json_line(
            {
                "id": rule.id,
                "summary": rule.summary,
                "explanation": rule.explanation,
                "verdict": rule.verdict.value,
                "needsBump": rule.needs_bump,
                "reference": rule.reference,
            }
        )
        return
    click.echo(f"{rule.id}: {rule.summary}\n")
    click.echo(rule.explanation)
    click.echo(f"\nverdict: {rule.verdict.value}")
    click.echo(f"schemaVersion: {'must rise' if rule.needs_bump else 'may stay'}")
    click.echo(f"from: {rule.reference}")
