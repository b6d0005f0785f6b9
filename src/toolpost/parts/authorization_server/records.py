"""The tables of the authorization server and their transactions, for both databases.

Codes, tokens, cookies, form tokens and states are random, and stored as SHA-256 hashes only: who reads the database can use none
of them. Rows that are over are removed by the transactions that add new ones.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from toolpost.store import NOW, Row, Script, Statement, change

REQUEST_S: Final = 600
CODE_S: Final = 60
ATTEMPTS: Final = 5
"""How often a person may sign in wrongly within one request."""

REQUESTS_LIMIT: Final = 10_000
CLIENTS_LIMIT: Final = 10_000
"""Rows that strangers can cause; beyond that the oldest go."""

USE_S: Final = 60.0
"""How often it is noted, at most, that a login is used."""

_REUSE_S: Final = 86_400
"""How long a used token is kept past its end, to notice that it comes again."""

Kind = Literal["code", "access", "refresh"]


def hash_of(secret: str) -> str:
    """Return the form in which a random secret is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a client: the parameters of RFC 6749, 4.1.1, checked."""

    redirect_uri: str
    has_redirect_uri: bool
    """Whether the client sent it, and did not rely on its only one."""
    code_challenge: str
    scopes: list[str]
    resource: str
    state: str | None = None


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who has logged in: a configured caller, or a person of the OpenID Connect provider."""

    caller: str | None = None
    secrets_hash: str = ""
    issuer: str | None = None
    claims: dict[str, Any] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginRequest:
    """An authorization request that waits for a person."""

    id: str
    """The hash of its id."""
    browser: str
    client: str
    params: Params
    identity: Identity | None
    form: str | None
    attempts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """A code or a token, with its grant."""

    hash: str
    kind: Kind
    grant: str
    scopes: list[str]
    expires_at: float
    is_used: bool
    client: str
    identity: Identity
    params: Params
    is_use_due: bool
    """Whether it was not noted for a while that its login is used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginInfo:
    """A login that holds, for its person and for administrators. Times are those of the store."""

    id: str
    caller: str
    client: str
    client_name: str | None
    """What a registered client calls itself."""
    scopes: list[str]
    resource: str
    created_at: float
    used_at: float | None
    expires_at: float


# Clients


def insert_client(client: str, metadata: str, secret_hash: str | None) -> Script[None]:
    """Register a client; where there are too many, the oldest of those that are not used go."""
    ((now,),) = yield NOW
    yield Statement(
        "INSERT INTO login_clients (id, metadata, secret_hash, used_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        (client, metadata, secret_hash, now),
    )
    ((count,),) = yield Statement("SELECT count(*) FROM login_clients")
    if count > CLIENTS_LIMIT:
        # Those that no person has ever allowed go first: strangers must not displace the others.
        yield Statement(
            "DELETE FROM login_clients WHERE id IN (SELECT id FROM login_clients c ORDER BY"
            " CASE WHEN EXISTS (SELECT 1 FROM login_grants g WHERE g.client = c.id) THEN 0 ELSE 1 END,"
            f" used_at DESC, id LIMIT 1000 OFFSET {CLIENTS_LIMIT})"
        )


def find_client(client: str) -> Script[tuple[str, str | None] | None]:
    """Return the metadata of a registered client and the hash of its secret."""
    rows = yield Statement("SELECT metadata, secret_hash FROM login_clients WHERE id = ?1", (client,))
    return (rows[0][0], rows[0][1]) if rows else None


# Requests

_REQUEST: Final = "id, browser, client, params, identity, form, attempts"


def insert_request(request: str, browser: str, client: str, params: Params) -> Script[None]:
    """Keep an authorization request until a person has decided."""
    ((now,),) = yield NOW
    yield Statement("DELETE FROM login_requests WHERE expires_at < ?1", (now,))
    yield Statement(
        "DELETE FROM login_requests WHERE id IN (SELECT id FROM login_requests ORDER BY expires_at DESC, id"
        f" LIMIT 1000 OFFSET {REQUESTS_LIMIT})"
    )
    yield Statement(
        "INSERT INTO login_requests (id, browser, client, params, attempts, expires_at) VALUES (?1, ?2, ?3, ?4, 0, ?5)"
        " ON CONFLICT DO NOTHING",
        (request, browser, client, _encode(params), now + REQUEST_S),
    )


def show_request(request: str, browser: str, form: str) -> Script[LoginRequest | None]:
    """Return a request of this browser, for a page whose form has a new token: earlier pages can no longer be sent."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"UPDATE login_requests SET form = ?3 WHERE id = ?1 AND browser = ?2 AND expires_at >= ?4 RETURNING {_REQUEST}",
        (request, browser, form, now),
    )
    return _request_of(rows[0]) if rows else None


def take_form(request: str, browser: str, form: str) -> Script[LoginRequest | None]:
    """Return the request whose form was sent, once: a second time the token is gone."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE login_requests SET form = NULL WHERE id = ?1 AND browser = ?2 AND form = ?3 AND expires_at >= ?4"
        f" RETURNING {_REQUEST}",
        (request, browser, form, now),
    )
    return _request_of(rows[0]) if rows else None


def note_attempt(request: str) -> Script[bool]:
    """Count a wrong passphrase; False if the request is over with it."""
    yield Statement("UPDATE login_requests SET attempts = attempts + 1 WHERE id = ?1", (request,))
    gone = yield change("DELETE FROM login_requests WHERE id = ?1 AND attempts >= ?2", (request, ATTEMPTS))
    return not gone


def set_identity(request: LoginRequest, identity: Identity, browser: str) -> Script[bool]:
    """Note who has logged in, and the hash of the cookie that their browser has from now on; False if the request is over."""
    # The form of a page from before the login must not count as consent.
    changed = yield change(
        "UPDATE login_requests SET identity = ?2, form = NULL, browser = ?3 WHERE id = ?1",
        (request.id, _encode(identity), browser),
    )
    if changed:
        # Requests in other tabs of this browser go on.
        yield Statement("UPDATE login_requests SET browser = ?2 WHERE browser = ?1", (request.browser, browser))
    return bool(changed)


def set_state(request: str, browser: str, state: str) -> Script[LoginRequest | None]:
    """Note the state with which the person was sent to the OpenID Connect provider."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"UPDATE login_requests SET state = ?3 WHERE id = ?1 AND browser = ?2 AND expires_at >= ?4 RETURNING {_REQUEST}",
        (request, browser, state, now),
    )
    return _request_of(rows[0]) if rows else None


def take_state(browser: str, state: str) -> Script[LoginRequest | None]:
    """Return the request whose person came back from the provider, once, and only to the browser that was sent there."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE login_requests SET state = NULL WHERE state = ?1 AND browser = ?2 AND expires_at >= ?3"
        f" RETURNING {_REQUEST}",
        (state, browser, now),
    )
    return _request_of(rows[0]) if rows else None


def delete_request(request: str) -> Script[bool]:
    """End a request; False if it was over already."""
    gone = yield change("DELETE FROM login_requests WHERE id = ?1", (request,))
    return bool(gone)


# Grants and tokens

_ISSUED: Final = (
    "t.hash, t.kind, t.login, t.scopes, t.expires_at, t.used_at, g.client, g.identity, g.params, g.used_at"
    " FROM login_tokens t JOIN login_grants g ON g.id = t.login"
)


def approve(request: LoginRequest, identity: Identity, caller: str, grant: str, code: str) -> Script[bool]:
    """Make a grant of a request, and the hash of its code; False if the request is over. `caller` is the id of its caller."""
    ((now,),) = yield NOW
    gone = yield change("DELETE FROM login_requests WHERE id = ?1 AND expires_at >= ?2", (request.id, now))
    if not gone:
        return False
    yield from _delete_expired(now)
    yield Statement("UPDATE login_clients SET used_at = ?2 WHERE id = ?1", (request.client, now))
    yield Statement(
        "INSERT INTO login_grants (id, client, identity, params, created_at, expires_at, caller)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        (grant, request.client, _encode(identity), _encode(request.params), now, now + CODE_S, caller),
    )
    yield _insert_token(code, "code", grant, request.params.scopes, now + CODE_S)
    return True


def find_token(token: str, kind: Kind) -> Script[Token | None]:
    """Return a code or token by its hash, used or not; None once it is over or its grant revoked."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"SELECT {_ISSUED} WHERE t.hash = ?1 AND t.kind = ?2 AND t.expires_at >= ?3 AND g.revoked_at IS NULL",
        (token, kind, now),
    )
    return _token_of(rows[0], now) if rows else None


def note_use(grant: str) -> Script[None]:
    """Note that a login is used."""
    ((now,),) = yield NOW
    yield Statement("UPDATE login_grants SET used_at = ?2 WHERE id = ?1", (grant, now))


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTokens:
    """The tokens for a code or a refresh token: their hashes, and how long they are valid."""

    access: str
    refresh: str
    access_s: int
    login_s: int
    """How long after the login they end at the latest."""
    scopes: list[str]


def exchange(token: Token, issue: NewTokens) -> Script[float | None]:
    """Exchange a code or a refresh token, once, and return for how many seconds the access token is valid.

    None if the login is over, or if the token was used before: then it was stolen, by the one who comes now or by the one who
    came first, and everything that was issued for its grant is revoked (RFC 6749, 4.1.2, and OAuth 2.1, 4.3.1).
    """
    ((now,),) = yield NOW
    rows = yield Statement("SELECT revoked_at, created_at FROM login_grants WHERE id = ?1 /*lock*/", (token.grant,))
    if not rows or rows[0][0] is not None:
        return None
    # Not prolonged by refreshing: what the provider has said of a person was true when they logged in.
    end = rows[0][1] + issue.login_s
    used = yield change(
        "UPDATE login_tokens SET used_at = ?2 WHERE hash = ?1 AND used_at IS NULL AND expires_at >= ?2",
        (token.hash, now),
    )
    if not used or now >= end:
        yield from revoke(token.grant)
        return None
    yield from _delete_expired(now)
    # Access tokens before it stay valid to their end: calls may be in flight with them.
    yield _insert_token(issue.access, "access", token.grant, issue.scopes, access_end := min(now + issue.access_s, end))
    yield _insert_token(issue.refresh, "refresh", token.grant, token.scopes, end)
    yield Statement("UPDATE login_grants SET expires_at = ?2, used_at = ?3 WHERE id = ?1", (token.grant, end, now))
    return float(access_end - now)


def revoke(grant: str) -> Script[None]:
    """Revoke everything that was issued for a grant."""
    ((now,),) = yield NOW
    yield Statement("UPDATE login_grants SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL", (grant, now))
    yield Statement("DELETE FROM login_tokens WHERE login = ?1 AND kind = 'access'", (grant,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Which:
    """Which logins are meant: those to which everything that is set applies."""

    login: str | None = None
    caller: str | None = None
    """An id, or a name for all people of it: `staff` is also `staff:SUB`."""
    client: str | None = None
    owner: str | None = None
    """The id of the only caller whose logins may be meant, and of no one else under the same name."""


def list_logins(which: Which) -> Script[list[LoginInfo]]:
    """Return the logins that hold, the newest first."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "SELECT g.id, g.caller, g.identity, g.client, c.metadata, g.params, g.created_at, g.used_at, g.expires_at"
        " FROM login_grants g LEFT JOIN login_clients c ON c.id = g.client"
        " WHERE g.revoked_at IS NULL AND g.expires_at >= ?1 ORDER BY g.created_at DESC, g.id",
        (now,),
    )
    found = (_info_of(row) for row in rows)
    return [one for one in found if _is_meant(one, which)]


def revoke_all(which: Which) -> Script[list[LoginInfo]]:
    """Revoke the logins that are meant, and return them."""
    found = yield from list_logins(which)
    for one in found:
        yield from revoke(one.id)
    return found


def list_revoked(within_s: float) -> Script[list[str]]:
    """Return the ids of logins that were revoked lately."""
    ((now,),) = yield NOW
    rows = yield Statement("SELECT id FROM login_grants WHERE revoked_at >= ?1", (now - within_s,))
    return [row[0] for row in rows]


def _is_meant(one: LoginInfo, which: Which) -> bool:
    is_caller = which.caller is None or which.caller in (one.caller, one.caller.partition(":")[0])
    is_own = which.owner in (None, one.caller)
    return is_own and is_caller and which.login in (None, one.id) and which.client in (None, one.client)


def _delete_expired(now: float) -> Script[None]:
    yield Statement("DELETE FROM login_tokens WHERE expires_at < ?1", (now - _REUSE_S,))
    yield Statement("DELETE FROM login_grants WHERE expires_at < ?1", (now - _REUSE_S,))


def _insert_token(token: str, kind: Kind, grant: str, scopes: list[str], expires_at: float) -> Statement:
    return Statement(
        "INSERT INTO login_tokens (hash, kind, login, scopes, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        (token, kind, grant, " ".join(scopes), expires_at),
    )


def _encode(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()


def _request_of(row: Row) -> LoginRequest:
    request, browser, client, params, identity, form, attempts = row
    return LoginRequest(
        id=request,
        browser=browser,
        client=client,
        params=msgspec.json.decode(params, type=Params),
        identity=None if identity is None else msgspec.json.decode(identity, type=Identity),
        form=form,
        attempts=attempts,
    )


def _info_of(row: Row) -> LoginInfo:
    login, caller, identity, client, metadata, params, created_at, used_at, expires_at = row
    decoded = msgspec.json.decode(params, type=Params)
    return LoginInfo(
        id=login,
        # Logins of before the column have the name alone.
        caller=caller or msgspec.json.decode(identity, type=Identity).caller or "",
        client=client,
        client_name=None if metadata is None else msgspec.json.decode(metadata).get("client_name"),
        scopes=decoded.scopes,
        resource=decoded.resource,
        created_at=created_at,
        used_at=used_at,
        expires_at=expires_at,
    )


def _token_of(row: Row, now: float) -> Token:
    token, kind, grant, scopes, expires_at, used_at, client, identity, params, last_use = row
    return Token(
        hash=token,
        kind=kind,
        grant=grant,
        scopes=scopes.split(),
        expires_at=expires_at,
        is_used=used_at is not None,
        client=client,
        identity=msgspec.json.decode(identity, type=Identity),
        params=msgspec.json.decode(params, type=Params),
        is_use_due=last_use is None or last_use < now - USE_S,
    )
