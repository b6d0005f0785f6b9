"""A server with extensions, as plain JSON on stdio: `extending.py ERA LOG OPTIONS`, a file of JSON.

Every message that it gets is a line of the log. Its tool `do` and its methods do the same; what comes last in a method's name
says what. It reads on while it waits for an answer, so that it sees cancellations.
"""

import json
import sys
from pathlib import Path
from typing import Any

STATELESS = "2026-07-28"


class Extending:
    def __init__(self, era: str, log: str, options: dict[str, Any]) -> None:
        self.is_stateless = era == "modern"
        self.log = Path(log)
        self.options = options
        self.waiting: dict[str, Any] = {}
        """The request that waits for the client's answer, by the id of ours."""
        self.capabilities = {"tools": {}, **options.get("capabilities", {})}

    def send(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def answer(self, asked: Any, result: dict[str, Any]) -> None:
        if asked["method"] == "tools/call" and "resultType" not in result:
            result = {"content": [{"type": "text", "text": json.dumps(result)}]}
        era = {"resultType": "complete"} if self.is_stateless else {}
        self.send({"id": asked["id"], "result": {**era, **result}})

    def take(self, message: Any) -> None:
        method = message.get("method")
        if method is None:
            asked = self.waiting.pop(message["id"])
            self.answer(asked, {"answered": message.get("result"), "error": message.get("error")})
        elif "id" in message:
            self.handle(message, method, message.get("params") or {})

    def handle(self, asked: Any, method: str, params: dict[str, Any]) -> None:
        info = {"name": "extending", "version": "1"}
        greeting: dict[str, Any] = {"capabilities": self.capabilities, **self.options.get("greeting", {})}
        tool = {"name": "do", "inputSchema": {"type": "object"}, **self.options.get("tool", {})}
        if method == "initialize":
            self.answer(asked, {"protocolVersion": "2025-11-25", "serverInfo": info, **greeting})
        elif method == "server/discover" and self.is_stateless:
            meta = {"io.modelcontextprotocol/serverInfo": info}
            self.answer(asked, {"supportedVersions": [STATELESS], "_meta": meta, **greeting})
        elif method == "tools/list":
            self.answer(asked, {"tools": [tool]})
        elif method == "resources/list" and "resources" in self.capabilities:
            self.answer(asked, {"resources": [{"uri": uri, "name": uri} for uri in self.options.get("uris", [])]})
        elif method == "resources/read":
            self.answer(asked, {"contents": [{"uri": params["uri"], "text": self.options.get("name", "")}]})
        elif method in self.options.get("answers", {}):
            self.answer(asked, self.options["answers"][method])
        elif method == "ping":
            self.answer(asked, {})
        else:
            what = params.get("arguments", {}).get("what") if method == "tools/call" else method.rpartition("/")[2]
            self.act(asked, str(what), params)

    def act(self, asked: Any, what: str, params: dict[str, Any]) -> None:
        if what == "echo":
            self.answer(asked, {"server": self.options.get("name", ""), "params": params, "x-odd": None})
        elif what == "tell":
            self.send({"method": "notifications/vendor/event", "params": {"secret": params.get("secret", "s")}})
            self.answer(asked, {"told": True})
        elif what == "announce":
            self.send({"method": "notifications/vendor/list_changed"})
            self.answer(asked, {"told": True})
        elif what == "flood":
            for number in range(3_000):
                self.send({"method": "notifications/vendor/event", "params": {"number": number}})
            self.answer(asked, {"told": True})
        elif what == "ask" and self.is_stateless:
            answers = params.get("inputResponses") or {}
            request = {"q": {"method": "vendor/question", "params": {"n": 1}}}
            if answers:
                self.answer(asked, {"answered": answers["q"], "error": None})
            else:
                self.answer(asked, {"resultType": "input_required", "inputRequests": request, "requestState": "s"})
        elif what == "ask":
            self.waiting[f"q-{asked['id']}"] = asked
            self.send({"id": f"q-{asked['id']}", "method": "vendor/question", "params": {"n": 1}})
        elif what != "never":
            self.send({"id": asked["id"], "error": {"code": -32601, "message": "Method not found"}})


def main() -> None:
    era, log, options = sys.argv[1:]
    server = Extending(era, log, json.loads(Path(options).read_text()))
    for line in sys.stdin:
        with server.log.open("a") as file:
            file.write(line)
        server.take(json.loads(line))


if __name__ == "__main__":
    main()
