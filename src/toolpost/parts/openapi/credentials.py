"""Fills in what an operation's security asks for: configured keys, or values of the caller, each where its scheme says."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from toolpost.base import JsonObject, remember_secrets
from toolpost.base.redaction import forms_of
from toolpost.credentials.values import CallerValue, Template, fill_in
from toolpost.credentials.vault import Vault
from toolpost.parts.openapi.operations import Operation
from toolpost.parts.openapi.serialize import encode
from toolpost.upstreams import ServerSpec

_PLACES: Final = ("header", "query", "cookie")


@dataclass(frozen=True, kw_only=True)
class Filled:
    """Credentials of one request."""

    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    """Encoded names and values."""
    cookies: tuple[tuple[str, str], ...] = ()
    spec: ServerSpec
    secrets: tuple[str, ...] = ()
    """What answers are masked for."""


class Credentials:
    """The credentials of one API. Raises what `fill_in` raises, if the caller has not set a value."""

    def __init__(
        self, spec: ServerSpec, keys: Mapping[str, Template], schemes: Mapping[str, JsonObject], vault: Vault
    ) -> None:
        own = [name for name, key in keys.items() if any(isinstance(piece, CallerValue) for piece in key)]
        # An API has no process: what would be in the environment of one are the keys of its security schemes. So values of the
        # caller are read, checked and concealed by the same function as those of servers.
        self._spec = replace(
            spec,
            env={name: "".join(map(str, key)) for name, key in keys.items() if name not in own},
            own_env={name: keys[name] for name in own},
        )
        remember_secrets(form for value in self._spec.env.values() for form in forms_of(value))
        self._schemes = schemes
        self._keys = keys
        self._vault = vault

    @property
    def fixed_names(self) -> frozenset[tuple[str, str]]:
        """Places and names of parameters that are filled in here, so that no argument needs to, nor may."""
        headers = {("header", name.lower()) for name in (*self._spec.headers, *self._spec.own_headers)}
        return frozenset(headers | {place for name in self._keys if (place := self._place_of(name)) is not None})

    @property
    def spec(self) -> ServerSpec:
        """How the API is reached."""
        return self._spec

    def explain_missing(self, operation: Operation) -> list[str]:
        """Return the schemes that an operation accepts and that are not configured; empty if it has what it needs."""
        alternatives = operation.security or ()
        if not alternatives or any(self._can_fill(each) for each in alternatives):
            return []
        return sorted({name for each in alternatives for name in each if name not in self._keys})

    async def fill(self, operation: Operation, owner: str) -> Filled:
        """Return the credentials for one request of an owner."""
        needed = next((each for each in operation.security or () if self._can_fill(each)), {})
        schemes = [name for name in needed if name in self._keys]
        spec = replace(
            self._spec,
            owner=owner if self._spec.credentials == "caller" else "",
            own_env={name: key for name, key in self._spec.own_env.items() if name in schemes},
        )
        if spec.caller_values:
            spec = await fill_in(spec, self._vault)
        headers = list(spec.headers.items())
        query: list[tuple[str, str]] = []
        cookies: list[tuple[str, str]] = []
        secrets = list(spec.secrets)
        for name in schemes:
            scheme, value = self._schemes[name], spec.env[name]
            place = self._place_of(name)
            if place is None:
                continue
            secrets.append(value)
            if scheme.get("type") != "apiKey":
                value = _authorization(scheme, value)
                secrets.append(value.partition(" ")[2])
            if place[0] == "header":
                shown = str(scheme.get("name")) if scheme.get("type") == "apiKey" else "Authorization"
                headers = [(key, text) for key, text in headers if key.lower() != shown.lower()]
                headers.append((shown, value))
            elif place[0] == "query":
                query.append((encode(place[1]), encode(value)))
            else:
                cookies.append((place[1], encode(value)))
        return Filled(
            headers=tuple(headers),
            query=tuple(query),
            cookies=tuple(cookies),
            spec=spec,
            secrets=tuple(dict.fromkeys(secrets)),
        )

    def _can_fill(self, schemes: Iterable[str]) -> bool:
        """Whether each of the schemes has a key, or is satisfied by `headers` or `auth`."""
        others = {("header", key.lower()) for key in (*self._spec.headers, *self._spec.own_headers)}
        if self._spec.auth is not None:
            others.add(("header", "authorization"))
        return all(name in self._keys or self._place_of(name) in others for name in schemes)

    def _place_of(self, name: str) -> tuple[str, str] | None:
        """Return where a scheme's value goes, None if that is not known; names of headers are in lower case."""
        scheme = self._schemes.get(name)
        if scheme is None:
            return None
        if scheme.get("type") == "apiKey" and scheme.get("in") in _PLACES:
            key = str(scheme.get("name"))
            return str(scheme["in"]), key.lower() if scheme["in"] == "header" else key
        return ("header", "authorization") if scheme.get("type") in ("http", "oauth2", "openIdConnect") else None


def _authorization(scheme: JsonObject, value: str) -> str:
    kind = str(scheme.get("scheme") or "bearer")
    if kind.lower() == "basic":
        encoded = base64.b64encode(value.encode()).decode()
        remember_secrets([encoded])
        return f"Basic {encoded}"
    return f"{'Bearer' if kind.lower() == 'bearer' else kind} {value}"
