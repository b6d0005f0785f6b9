"""`toolpost import openapi`: add an API to `toolpost.toml`, by its OpenAPI document."""

import re
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolpost.admin import TextFile, TomlFile
from toolpost.base import JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.parts.openapi.doctor import SHOWN, describe
from toolpost.parts.openapi.document import Document, load_document
from toolpost.parts.openapi.operations import find_base
from toolpost.parts.openapi.settings import BUDGET_TOKENS, ApiSettings, check_api, is_url
from toolpost.parts.openapi.tools import LOGIN_TYPES, ApiTools, make_tools
from toolpost.settings import CONFIG_NAME, Config, load_config
from toolpost.terminal import ExitCode, examples, json_option, print_json_line, printable, run_async, show_note, warn


@click.command(
    "openapi",
    epilog=examples(
        ("toolpost import openapi petstore.yaml", "all operations of a document"),
        ("toolpost import openapi https://example.com/openapi.json --allow tag:pets", "those with a tag; keeps a copy"),
        ("toolpost import openapi api.json --allow 'GET *' --dry-run", "show the operations that only read"),
    ),
)
@click.argument("source", metavar="FILE|URL")
@click.option("--name", help="The name of the API, before the `__` of its tools (default: by its title).")
@click.option("--base", metavar="URL", help="The URL of the API (default: the first server in the document).")
@click.option(
    "--allow",
    multiple=True,
    metavar="PATTERN",
    help="Serve only these: tag:NAME, '/path/*', 'GET *', a tool; repeatable.",
)
@click.option("--deny", multiple=True, metavar="PATTERN", help="Leave these out; repeatable.")
@click.option("--follow", is_flag=True, help="Fetch the document at each start, instead of keeping a copy.")
@click.option(
    "--write",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=CONFIG_NAME,
    show_default=True,
    help="The file to add it to.",
)
@click.option("--force", is_flag=True, help="Replace an API that exists already; a backup is made.")
@click.option("--dry-run", is_flag=True, help="Show the changes, write nothing.")
@json_option("Print `{file, written, name, base, tools, tokens, omitted, variables}` on one line.")
def import_openapi(
    source: str,
    name: str | None,
    base: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    target: Path,
    *,
    follow: bool,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    """Turn an API into tools, by its OpenAPI document (3.0, 3.1, or Swagger 2.0).

    An entry [apis.NAME] is added at the end of the file. A document at a URL is copied beside it, so that its tools change when
    you import it again. Keys become references to environment variables, which are listed so that you can set them.
    """
    target = target.absolute()
    file = TomlFile(target)
    present = file.read_section("apis")
    config = load_config(target if target.exists() else None)
    document = run_async(_load, source, target.parent if is_url(source) else Path.cwd(), config)
    name = name or _make_name(document)
    if name in present and not force:
        raise InvalidRequest(
            f"{target} has an API `{name}` already.", hint="--force replaces it, --name gives another name"
        )
    found = base or find_base(document, source if is_url(source) else None)
    if found is None:
        raise InvalidRequest("The document does not say at which URL the API is.", hint="give it with --base")
    made = make_tools(document, name, allow=allow or ("*",), deny=deny)
    if not made.tools:
        reasons = [f"{each.shown} {each.reason}" for each in made.omitted[:1]]
        raise InvalidRequest(
            "No operation of the document is left.", hint="; ".join(["check --allow and --deny", *reasons])
        )
    copy = target.parent / f"{name}.openapi.json" if is_url(source) and not follow else None
    variables = _find_variables(name, made)
    values: dict[str, Any] = {"document": _place_of(source, copy, target), "base": found}
    values |= {"allow": list(allow)} if allow else {}
    values |= {"deny": list(deny)} if deny else {}
    values |= {"security": {scheme: f"${{{variable}}}" for scheme, variable in variables.items()}} if variables else {}
    values |= {"auth": auth} if (auth := _find_login(name, made)) is not None else {}
    check_api(name, msgspec.convert(values, ApiSettings))
    entry = file.render_entry("apis", name, values, f"{document.title or 'an API'}, {describe(made)}")
    new = file.add_tables({name: entry}, may_show=True, section="apis")
    if not dry_run:
        if copy is not None:
            TextFile(copy).replace(msgspec.json.format(msgspec.json.encode(document.raw), indent=1).decode())
        if name in present:
            show_note(f"backup of {target}: {file.back_up()}")
        file.replace(new)
    if as_json:
        print_json_line(
            {
                "file": str(target),
                "written": not dry_run,
                "name": name,
                "base": found,
                "tools": [f"{name}__{tool.operation.name}" for tool in made.tools],
                "tokens": made.tokens,
                "omitted": [{"operation": each.shown, "reason": each.reason} for each in made.omitted],
                "variables": [{"name": variable, "scheme": scheme} for scheme, variable in variables.items()],
            }
        )
    else:
        _print_report(made, entry, variables)
        click.echo(printable(f"{name} {'would be' if dry_run else 'was'} written to {target}"))
    return ExitCode.OK


_CONFIGURATION: Final = "/.well-known/openid-configuration"


async def _load(source: str, folder: Path, config: Config) -> Document:
    return await load_document(source, project=folder, place=source, network=config.resolve_network())


def _make_name(document: Document) -> str:
    words = [
        word for word in re.findall(r"[a-z0-9]+", document.title.lower()) if word not in ("api", "the", "rest", "v1")
    ]
    return "-".join(words)[:24].strip("-") or "server"


def _place_of(source: str, copy: Path | None, target: Path) -> str:
    if copy is not None:
        return copy.name
    if is_url(source):
        return source
    path = Path(source).expanduser().absolute()
    return str(path.relative_to(target.parent)) if path.is_relative_to(target.parent) else str(path)


def _find_variables(name: str, made: ApiTools) -> dict[str, str]:
    """Return the variables for the keys that most operations ask for, by the names of their security schemes."""
    used: dict[str, int] = {}
    for tool in made.tools:
        for scheme in (tool.operation.security or ({},))[0]:
            used[scheme] = used.get(scheme, 0) + 1
    kinds = {scheme: made.schemes.get(scheme, {}).get("type") for scheme in used}
    return {
        scheme: TomlFile.name_variable(name, scheme) for scheme in sorted(used) if kinds[scheme] in ("apiKey", "http")
    }


def _find_login(name: str, made: ApiTools) -> JsonObject | None:
    """Return the settings of a login as the document describes it; None if most operations need none, or it says too little.

    Like `base`, they are written down once, where an operator sees them: later nothing that a document says leads a login, or
    what it grants, elsewhere.
    """
    if (wanted := made.login_scopes) is None:
        return None
    scheme, scopes = wanted
    common: JsonObject = {"resource": ""} | ({"scopes": scopes} if scopes else {})
    described = made.schemes[scheme]
    if isinstance(url := described.get("openIdConnectUrl"), str):
        issuer = url.removesuffix(_CONFIGURATION)
        return {"issuer": issuer} | common if issuer != url and is_url(issuer) else None
    flow = (described.get("flows") or {}).get("authorizationCode")
    if not isinstance(flow, dict):
        return None
    login, tokens = flow.get("authorizationUrl"), flow.get("tokenUrl")
    if not (isinstance(login, str) and is_url(login) and isinstance(tokens, str) and is_url(tokens)):
        return None
    client = f"${{{TomlFile.name_variable(name, 'client_id')}}}"
    return {"authorization_url": login, "token_url": tokens, "client_id": client} | common


def _print_report(made: ApiTools, entry: str, variables: dict[str, str]) -> None:
    click.echo(printable(entry))
    for scheme, variable in variables.items():
        show_note(f"{variable}: set it before Toolpost starts; the key of `{scheme}`")
    if "auth" in entry:
        show_note("it takes OAuth tokens: check `auth`, then log in with `toolpost login`")
    elif any(scheme.get("type") in LOGIN_TYPES for scheme in made.schemes.values()):
        show_note("it takes OAuth tokens: set `auth` of the API, then `toolpost login`")
    for omission in made.omitted[:SHOWN]:
        warn(f"{omission.shown} is left out: {omission.reason}")
    if len(made.omitted) > SHOWN:
        warn(f"and {len(made.omitted) - SHOWN} more; --json lists all of them")
    if made.tokens > BUDGET_TOKENS:
        warn(f"its tools take about {made.tokens:,} tokens to list: select operations with --allow and --deny")
