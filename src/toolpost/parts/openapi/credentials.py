"""Puts what an operation's security asks for, configured keys or values of the caller, where each security scheme says."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from toolpost.base import JsonObject, remember_secrets
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
    secrets: tuple[str, ...] = ()
    """What answers are masked for."""


class KeyPlaces:
    """Where the keys of one API go. They are in the environment of its specification, by the names of their security schemes."""

    def __init__(self, spec: ServerSpec, schemes: Mapping[str, JsonObject]) -> None:
        self._spec = spec
        self._schemes = schemes
        self._keys = spec.env.keys() | spec.own_env.keys()

    @property
    def fixed_names(self) -> frozenset[tuple[str, str]]:
        """Places and names of parameters that are filled in here, so that no argument needs to, nor may."""
        headers = {("header", name.lower()) for name in (*self._spec.headers, *self._spec.own_headers)}
        return frozenset(headers | {place for name in self._keys if (place := self._place_of(name)) is not None})

    def explain_missing(self, operation: Operation) -> list[str]:
        """Return the schemes that an operation accepts and that are not configured; empty if it has what it needs."""
        alternatives = operation.security or ()
        if not alternatives or any(self._can_fill(each) for each in alternatives):
            return []
        return sorted({name for each in alternatives for name in each if name not in self._keys})

    def find_needed(self, operation: Operation) -> list[str]:
        """Return the schemes whose keys an operation is sent with."""
        needed = next((each for each in operation.security or () if self._can_fill(each)), {})
        return [name for name in needed if name in self._keys]

    def fill(self, spec: ServerSpec, schemes: Iterable[str]) -> Filled:
        """Return the headers of a specification that has the caller's values, and the keys of these schemes in their places."""
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
