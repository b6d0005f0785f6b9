"""`toolpost audit verify`: the hash chain of the record of calls."""

from pathlib import Path

import click

from toolpost.audit.verification import verify_audit
from toolpost.cli.audit.records import make_printer, refuse_without_store
from toolpost.settings import Config
from toolpost.store.audit_values import AuditVerdict
from toolpost.terminal import ExitCode, config_option, examples, json_option, load_cli_config, run_async
from toolpost.terminal.group import outer_options


@click.command(
    epilog=examples(
        ("toolpost audit verify", "check the hash chain, read-only"),
        ("toolpost audit verify --archive archive", "archives of removed entries too"),
        ("toolpost audit verify --json | jq .head", "the last hash, to note elsewhere"),
    )
)
@click.option(
    "--archive",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Check the archives of removed entries in this folder too (audit.archive).",
)
@config_option
@json_option("Print the verdict as one object, on one line.")
@click.pass_context
def verify(context: click.Context, archive: Path | None, config_path: Path | None, *, as_json: bool) -> ExitCode:
    """Verify the whole hash chain of the record, read-only.

    Exit code 1: an entry was changed; 2: there are no entries.
    """
    outer = outer_options(context)
    verdict = run_async(_verify, load_cli_config(config_path or outer.get("config_path")), archive)
    make_printer(as_json=as_json or outer["as_json"]).show_verdict(verdict)
    if verdict.is_empty:
        return ExitCode.INCOMPLETE
    return ExitCode.OK if verdict.is_intact else ExitCode.FAILED


async def _verify(config: Config, archive: Path | None) -> AuditVerdict:
    await refuse_without_store(config)
    return await verify_audit(config.store_url, archive=archive)
