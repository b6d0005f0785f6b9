"""Values of a credential's owner in headers and environment variables: `Bearer ${caller:TOKEN}`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from toolpost.base.redaction import REDACTED, SHORTEST, forms_of, remember_secrets
from toolpost.contracts.errors import CredentialRequired, CredentialUnreadable

if TYPE_CHECKING:
    from toolpost.credentials.vault import Vault
    from toolpost.upstreams.spec import ServerSpec


@dataclass(frozen=True)
class CallerValue:
    """A reference to one of the owner's values."""

    name: str


Template = tuple[str | CallerValue, ...]
"""A text in which the owner's values are to be filled in."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


async def add_owner_values(spec: "ServerSpec", vault: "Vault") -> "ServerSpec":
    """Return the specification with the owner's values in its headers and environment, which its `conceal` masks.

    Raises `CredentialRequired` if one is not set, `CredentialUnreadable` if one cannot be decrypted or used.
    """
    values: dict[str, str] = {}
    missing: list[str] = []
    for name in spec.caller_values:
        if (stored := await vault.get(spec.name, spec.owner, name)) is None:
            missing.append(name)
        else:
            values[name] = stored.decode("utf-8", "surrogateescape")
    if missing:
        raise _make_missing(spec, missing)
    headers = {name: _fill(template, values) for name, template in spec.own_headers.items()}
    env = {name: _fill(template, values) for name, template in spec.own_env.items()}
    for name, value in headers.items():
        _check(spec, f"header {name}", value, is_bad=_CONTROL.search(value) is not None)
    for name, value in env.items():
        _check(spec, f"environment variable {name}", value, is_bad="\0" in value)
    secrets = sorted(
        {form for value in values.values() for form in forms_of(value) if len(form) >= SHORTEST}, key=len, reverse=True
    )
    remember_secrets(secrets)
    conceal_others = spec.conceal

    def conceal(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, REDACTED)
        return conceal_others(text)

    return replace(
        spec,
        env={**spec.env, **env},
        headers={**spec.headers, **headers},
        own_env={},
        own_headers={},
        conceal=conceal,
        secrets=(*spec.secrets, *secrets),
    )


def make_command(server: str, name: str, owner: str) -> str:
    """Return the command that sets a value."""
    return f"toolpost auth set {server} {name}{f' --caller {owner}' if owner else ''}"


def _make_missing(spec: "ServerSpec", missing: Sequence[str]) -> CredentialRequired:
    for_whom = f"the caller `{spec.owner}`" if spec.owner else "callers without a name"
    commands = " and ".join(f"`{make_command(spec.name, name, spec.owner)}`" for name in missing)
    return CredentialRequired(
        f"The server `{spec.name}` needs {', '.join(missing)}, which is not set for {for_whom}.",
        hint=f"run {commands} where the gateway runs; it takes effect at once",
        server=spec.name,
        names=list(missing),
    )


def _fill(template: Template, values: Mapping[str, str]) -> str:
    return "".join(piece if isinstance(piece, str) else values[piece.name] for piece in template)


def _check(spec: "ServerSpec", where: str, value: str, *, is_bad: bool) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        is_bad = True
    if is_bad:
        raise CredentialUnreadable(
            f"The server `{spec.name}`: a stored value for the {where} contains a line break, a control character, or is"
            " not UTF-8.",
            hint=f"set it again: `{make_command(spec.name, spec.caller_values[0], spec.owner)}`",
        )
