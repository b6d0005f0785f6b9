"""A small authorization server, in a process of its own: metadata, keys, tokens for clients, and any token a test asks for.

`python authorization_server.py` prints its address. `POST /mint` signs what it is given, `POST /rotate` takes another key,
`GET /counts` says how often each path was asked for. `POST /remember` has a token introspected as it says, `POST /metadata`
changes what the metadata says.
"""

import base64
import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

MAKERS: dict[str, Any] = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
SECRETS = {"agent-7": "s7", "agent-8": "s8"}


class AuthorizationServer:
    """What a test sees of it."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def token(self, resource: str | list[str], /, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Have a token signed; a claim that is None is left out."""
        usual = {"iss": self.issuer, "aud": resource, "sub": "ada", "exp": int(time.time()) + 600}
        wanted = {name: value for name, value in (usual | claims).items() if value is not None}
        return str(self.ask("/mint", {"claims": wanted, "header": header or {}})["token"])

    def ask(self, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(f"{self.issuer}{path}", data, timeout=10) as answer:
            return json.loads(answer.read())


@contextmanager
def open_authorization_server() -> Iterator[AuthorizationServer]:
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield AuthorizationServer(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class _State:
    def __init__(self) -> None:
        self.issuer = ""
        self.counts: Counter[str] = Counter()
        self.keys: dict[str, tuple[str, Any]] = {}
        self.number = 0
        self.opaque: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.rotate()

    def rotate(self) -> None:
        self.number += 1
        self.keys = {f"{name}-{self.number}": (name, make()) for name, make in MAKERS.items()}

    def jwks(self) -> Any:
        keys = []
        for kid, (name, key) in self.keys.items():
            algorithm = jwt.get_algorithm_by_name(name)
            keys.append(algorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": kid, "use": "sig", "alg": name})
        return {"keys": keys}

    def sign(self, claims: dict[str, Any], header: dict[str, Any]) -> str:
        name = header.get("alg", "RS256")
        kid = f"{name}-{self.number}"
        key = self.keys[kid][1]
        return jwt.encode(claims, key, algorithm=name, headers={"kid": kid} | header)


STATE = _State()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        STATE.counts[self.path] += 1
        if self.path == "/.well-known/oauth-authorization-server":
            endpoints = {f"{name}_endpoint": f"{STATE.issuer}/{name}" for name in ("token", "authorization")}
            self.reply(
                {"issuer": STATE.issuer, "jwks_uri": f"{STATE.issuer}/jwks", "response_types_supported": ["code"]}
                | endpoints
                | STATE.metadata
            )
        elif self.path == "/jwks":
            self.reply(STATE.jwks())
        elif self.path == "/counts":
            self.reply(STATE.counts)
        else:
            self.reply({}, 404)

    def do_POST(self) -> None:
        STATE.counts[self.path] += 1
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/mint":
            self.reply({"token": STATE.sign(**json.loads(body))})
        elif self.path == "/rotate":
            STATE.rotate()
            self.reply({})
        elif self.path == "/remember":
            STATE.opaque |= json.loads(body)
            self.reply({})
        elif self.path == "/metadata":
            STATE.metadata = json.loads(body)
            self.reply({})
        elif self.path == "/introspect":
            self.introspect(dict(urllib.parse.parse_qsl(body.decode())))
        elif self.path == "/token":
            self.give(dict(urllib.parse.parse_qsl(body.decode())))
        else:
            self.reply({}, 404)

    def introspect(self, form: dict[str, str]) -> None:
        if self.headers["authorization"] != f"Basic {base64.b64encode(b'gateway:s%3A').decode()}":
            self.reply({"error": "invalid_client"}, 401)
            return
        self.reply(STATE.opaque.get(form["token"], {"active": False}))

    def give(self, form: dict[str, str]) -> None:
        client, _, secret = base64.b64decode(self.headers["authorization"].split()[1]).decode().partition(":")
        if SECRETS.get(client) != secret or form.get("grant_type") != "client_credentials":
            self.reply({"error": "invalid_client"}, 401)
            return
        claims = {
            "iss": STATE.issuer,
            "aud": form["resource"],
            "sub": client,
            "client_id": client,
            "scope": form.get("scope", ""),
            "exp": int(time.time()) + 60,
        }
        token = STATE.sign(claims, {"typ": "at+jwt"})
        self.reply({"access_token": token, "token_type": "Bearer", "expires_in": 60, "scope": claims["scope"]})

    def reply(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    STATE.issuer = f"http://127.0.0.1:{server.server_port}"
    print(STATE.issuer, flush=True)
    server.serve_forever()
