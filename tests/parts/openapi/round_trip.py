"""Arguments that schemathesis makes, sent through the gateway to prism, a mock that validates requests against the document.

The same requests are sent by schemathesis itself: where prism answers both alike, arguments were written as the document says.
"""

import base64
import json
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
from anyio import to_thread

from toolpost.app import App, open_app
from toolpost.base.caller import OPERATOR
from toolpost.parts.openapi.document import Document, parse_document
from toolpost.parts.openapi.operations import Operation, read_schemes
from toolpost.parts.openapi.settings import APIS, ApiSettings
from toolpost.parts.openapi.tools import make_tools
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings

PRISM = Path(sys.prefix) / "node-clients" / "node_modules" / ".bin" / "prism"
START_S = 90.0
UNANSWERED = 599
CLOSED = "unknown properties"


class PrismRefuses(Exception):
    """The mock cannot be started with a document."""


@asynccontextmanager
async def open_prism(path: Path) -> AsyncIterator[str]:
    """Start a mock of a document; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [str(PRISM), "mock", "-p", str(port), str(path)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            for _ in range(int(START_S * 5)):
                output.seek(0)
                said = output.read()
                if b"Prism is listening" in said:
                    break
                if process.poll() is not None:
                    raise PrismRefuses(said[-500:].decode(errors="replace"))
                await anyio.sleep(0.2)
            else:
                raise PrismRefuses("it does not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def make_cases(document: Document, *, operations: int, examples: int) -> list[Any]:
    """Make cases for the first operations of a document that schemathesis can read."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable

    cases: list[Any] = []
    read = 0
    for result in schemathesis.openapi.from_dict(document.raw).get_all_operations():
        operation = result.ok() if hasattr(result, "ok") else None
        if operation is None:
            continue

        @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE))
        @settings(
            max_examples=examples,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            deadline=None,
            phases=[Phase.generate],
        )
        def collect(case: Any) -> None:
            cases.append(case)

        with suppress(Exception, Unsatisfiable):
            collect()
            read += 1
        if read >= operations:
            break
    return cases


def to_arguments(operation: Operation, case: Any) -> dict[str, Any] | None:
    """Return the arguments of a tool for a case; None if its body cannot be compared."""
    headers = {name.lower(): value for name, value in (case.headers or {}).items()}
    places = {"path": case.path_parameters, "query": case.query, "header": headers, "cookie": case.cookies}
    arguments = {}
    for parameter in operation.parameters:
        values = places[parameter.place] or {}
        name = parameter.name.lower() if parameter.place == "header" else parameter.name
        if name in values:
            value = values[name]
            if hasattr(value, "encoded") and (parameter.style != "form" or parameter.schema.get("type") != "array"):
                return None
            # Those of the path are quoted already.
            value = unquote(value) if parameter.place == "path" and isinstance(value, str) else value
            arguments[parameter.key] = _read_text(value, parameter.schema)
    if type(case.body).__name__ != "NotSet":
        body = operation.body
        # Texts and files are written by schemathesis in a form of its own.
        if body is None or case.media_type != body.media_type or body.kind in ("text", "binary"):
            return None
        arguments["body"] = _to_json(case.body)
    return arguments


def _read_text(value: Any, schema: Any) -> Any:
    """Return a number or a flag that was written as text, since it is for a header, a path or a query."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if hasattr(value, "encoded"):  # The items of an array, joined.
        return [_read_text(unquote(item), schema.get("items")) for item in value.encoded.split(",")]
    if not isinstance(value, str) or kind not in ("boolean", "integer", "number"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _to_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_to_json(inner) for inner in value]
    if isinstance(value, bytes) or hasattr(value, "data"):
        data = value if isinstance(value, bytes) else value.data
        return {"base64": base64.b64encode(data).decode()}
    return value


async def round_trip(path: Path, *, operations: int = 4, examples: int = 2) -> tuple[Counter[str], list[str]]:
    """Send the cases of a document both ways; returns what came of them, and descriptions of those that differ."""
    document = parse_document(path.read_bytes(), path.name)
    cases = await to_thread.run_sync(lambda: make_cases(document, operations=operations, examples=examples))
    outcomes: Counter[str] = Counter()
    told: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        async with open_prism(path) as url, open_api(document, path, url, folder) as (app, tools):
            for case in cases:
                operation = tools.get((case.method.upper(), case.path))
                arguments = to_arguments(operation, case) if operation is not None else None
                if operation is None or arguments is None:
                    outcomes["not comparable"] += 1
                    continue
                theirs = await to_thread.run_sync(_send_directly, case, url)
                ours, error = await _call(app, operation, arguments)
                if error == CLOSED:
                    # Documents let objects have more than they describe; tools take what is described.
                    outcomes["closed"] += 1
                elif ours < 400:
                    outcomes["accepted"] += 1
                elif ours == theirs:
                    outcomes["refused alike"] += 1
                elif theirs in (401, 403):
                    outcomes["not comparable"] += 1  # It has no key, and the mock looks no further.
                else:
                    outcomes["differ"] += 1
                    told.append(f"{operation.shown} ours {ours} theirs {theirs}: {arguments!r:.300} {error:.600}")
    return outcomes, told


@asynccontextmanager
async def open_api(
    document: Document, path: Path, url: str, folder: str
) -> AsyncIterator[tuple[App, dict[tuple[str, str], Operation]]]:
    """Open a gateway with the API, keys for all its security schemes, and its operations by method and path."""
    keys = {
        name: "dXNlcjpwYXNz:x"
        for name, scheme in read_schemes(document).items()
        if scheme.get("type") in ("apiKey", "http", "oauth2", "openIdConnect")
    }
    settings = ApiSettings(document=str(path), base=url, results="off", security=keys)
    config = Config(store=StoreSettings(url="sqlite::memory:"), project=folder)
    made = make_tools(document, "api")
    async with open_app(APIS.put(config, {"api": settings})) as app:
        yield app, {(tool.operation.method, tool.operation.path): tool.operation for tool in made.tools}


async def _call(app: App, operation: Operation, arguments: dict[str, Any]) -> tuple[int, str]:
    call = app.gateway.admit(caller=OPERATOR, name=f"api__{operation.name}", arguments=arguments)
    answer = await app.gateway.call(call)
    if not answer.is_error:
        return 200, ""
    error = json.loads(answer.payload)
    status = error.get("details", {}).get("status")
    issues = {issue["keyword"] for issue in error.get("details", {}).get("issues", ())}
    if issues and issues <= {"additionalProperties", "unevaluatedProperties"}:
        return UNANSWERED, CLOSED
    return (status if isinstance(status, int) else UNANSWERED), json.dumps(error)


def _send_directly(case: Any, url: str) -> int:
    """Send a case as schemathesis does, with credentials that prism accepts; any success is 200."""
    import requests

    options = case.as_transport_kwargs(base_url=url)
    headers = {name: value for name, value in options["headers"].items() if name.lower() != "authorization"}
    options["headers"] = {**headers, "Authorization": "Bearer x"}
    try:
        response = requests.request(timeout=30, allow_redirects=False, **options)
    except requests.RequestException:
        return UNANSWERED
    return 200 if response.status_code < 400 else response.status_code
