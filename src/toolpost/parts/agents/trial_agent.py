"""An agent for tests: implements the Agent Client Protocol on stdio and does what each prompt says. Few imports, to start fast.

The last line of a prompt decides:

    echo                    the whole prompt, as it was received
    say TEXT                TEXT
    stream N [MS]           N words, one after the other, MS milliseconds apart
    think TEXT              a thought, then `thought`
    count                   how many prompts this session has had
    session                 the id of the session, and whether it was `new`, `loaded` or `resumed`
    call TOOL JSON          the answer of a tool of the gateway
    tools                   the names of the gateway's tools
    may KIND [TITLE]        asks for permission, and says the answer
    model                   the model that was chosen
    hang                    nothing, until it is cancelled
    ignore [MS] TEXT        nothing, cancelled or not; after MS milliseconds TEXT
    crash                   a word, then the end of the process
    garbage                 lines that are not messages, then `still here`
    flood                   lines that are not messages, without end
    fork                    starts a detached daemon, and says its process id
    fail                    an error of the protocol
    odd                     a stop reason that the protocol does not know

Options: `--exit` and `--hang` at the start, `--slow S` to take a while to start, `--no-http` to take MCP servers on stdio
alone, `--sessions FOLDER` to be able to load sessions, with `--resume` to resume them instead, `--models a,b`.
"""

import json
import os
import sys
import threading
import time
from typing import Any


class _Agent:
    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.sessions: dict[str, dict[str, Any]] = {}
        self.cancelled = threading.Event()
        self.answers: dict[int, Any] = {}
        self.answered = threading.Condition()
        self.writing = threading.Lock()
        self.next_id = 0

    def option(self, name: str) -> str | None:
        return self.options[self.options.index(name) + 1] if name in self.options else None

    # -- the protocol ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" not in message:
                with self.answered:
                    self.answers[message["id"]] = message
                    self.answered.notify_all()
            elif message["method"] == "session/cancel":
                self.cancelled.set()
            elif message["method"] == "session/prompt":
                self.cancelled.clear()
                threading.Thread(target=self.handle_prompt, args=(message,), daemon=True).start()
            elif "id" in message:
                self.respond(message["id"], self.handle_request(message["method"], message.get("params") or {}))

    def write(self, message: dict[str, Any]) -> None:
        raw = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self.writing:
            sys.stdout.buffer.write(raw)
            sys.stdout.buffer.flush()

    def respond(self, request: Any, result: Any) -> None:
        kind = "error" if isinstance(result, dict) and "code" in result else "result"
        self.write({"id": request, kind: result})

    def request(self, method: str, params: dict[str, Any]) -> Any:
        self.next_id += 1
        number = self.next_id
        self.write({"id": number, "method": method, "params": params})
        with self.answered:
            self.answered.wait_for(lambda: number in self.answers, 10)
            return self.answers.pop(number, {}).get("result")

    def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        if method == "initialize":
            able: dict[str, Any] = {"mcpCapabilities": {"http": "--no-http" not in self.options}}
            if "--sessions" in self.options:
                able["loadSession"] = "--resume" not in self.options
                able["sessionCapabilities"] = {"resume": {}} if "--resume" in self.options else {}
            return {"protocolVersion": 1, "agentCapabilities": able, "agentInfo": {"name": "script", "version": "1"}}
        if method == "session/new":
            return self.open(f"s-{os.getpid()}-{len(self.sessions)}", params, "new")
        if method in ("session/load", "session/resume"):
            if not self.is_known(params["sessionId"]):
                return {"code": -32002, "message": "there is no such session"}
            if method == "session/load":
                self.update(params["sessionId"], {"sessionUpdate": "agent_message_chunk", "content": _text("of old")})
            return self.open(params["sessionId"], params, "loaded" if method == "session/load" else "resumed")
        if method == "session/set_config_option":
            self.sessions[params["sessionId"]]["model"] = params["value"]
            return {"configOptions": []}
        return {"code": -32601, "message": f"{method} is not known"}

    def open(self, session: str, params: dict[str, Any], how: str) -> dict[str, Any]:
        meta = params.get("_meta") or {}
        self.sessions[session] = {
            "servers": params["mcpServers"],
            "how": how,
            "prompts": 0,
            "meta": meta,
            "model": None,
        }
        if folder := self.option("--sessions"):
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 (fewer imports, faster start)
            with open(os.path.join(folder, session), "w", encoding="utf-8"):  # noqa: PTH118, PTH123
                pass
        opened: dict[str, Any] = {"sessionId": session}
        if models := self.option("--models"):
            values = [{"value": name, "name": name} for name in models.split(",")]
            opened["configOptions"] = [
                {
                    "id": "m",
                    "name": "Model",
                    "category": "model",
                    "type": "select",
                    "currentValue": "",
                    "options": values,
                }
            ]
        return opened

    def is_known(self, session: str) -> bool:
        folder = self.option("--sessions")
        return folder is not None and os.path.exists(os.path.join(folder, session))  # noqa: PTH110, PTH118

    def update(self, session: str, update: dict[str, Any]) -> None:
        self.write({"method": "session/update", "params": {"sessionId": session, "update": update}})

    # -- prompts ---------------------------------------------------------------------------------------------------------

    def handle_prompt(self, message: dict[str, Any]) -> None:
        session = message["params"]["sessionId"]
        text = "".join(block.get("text", "") for block in message["params"]["prompt"])
        self.sessions[session]["prompts"] += 1
        word, _, rest = text.rstrip().rsplit("\n", 1)[-1].partition(" ")
        act = getattr(self, f"do_{word}", None)
        try:
            answer = act(session, rest, text) if act else f"I do not know `{word}`"
        except Exception as error:  # noqa: BLE001 (part of the answer, for the test to see)
            answer = f"failed: {type(error).__name__}: {error}"
        if isinstance(answer, str) and answer:
            self.say(session, answer)
        if isinstance(answer, dict):
            self.respond(message["id"], answer)
        else:
            self.respond(message["id"], {"stopReason": "cancelled" if self.cancelled.is_set() else "end_turn"})

    def say(self, session: str, text: str) -> None:
        self.update(session, {"sessionUpdate": "agent_message_chunk", "content": _text(text)})

    def do_echo(self, _session: str, _rest: str, text: str) -> str:
        return text

    def do_say(self, _session: str, rest: str, _prompt: str) -> str:
        return rest

    def do_stream(self, session: str, rest: str, _prompt: str) -> None:
        number, _, pause_ms = rest.partition(" ")
        for index in range(int(number)):
            if self.cancelled.wait(float(pause_ms or 0) / 1000):
                return
            self.say(session, f"word{index} ")

    def do_think(self, session: str, rest: str, _prompt: str) -> str:
        self.update(session, {"sessionUpdate": "agent_thought_chunk", "content": _text(rest)})
        return "thought"

    def do_count(self, session: str, _rest: str, _prompt: str) -> str:
        return str(self.sessions[session]["prompts"])

    def do_session(self, session: str, _rest: str, _prompt: str) -> str:
        return f"{session} {self.sessions[session]['how']}"

    def do_meta(self, session: str, _rest: str, _prompt: str) -> str:
        return json.dumps(self.sessions[session]["meta"])

    def do_model(self, session: str, _rest: str, _prompt: str) -> str:
        return str(self.sessions[session]["model"])

    def do_pid(self, _session: str, _rest: str, _prompt: str) -> str:
        return str(os.getpid())

    def do_may(self, session: str, rest: str, _prompt: str) -> str:
        kind, _, title = rest.partition(" ")
        call = {"toolCallId": "may", "kind": kind, "title": title or kind}
        options = [
            {"optionId": name, "name": name, "kind": name} for name in ("allow_always", "allow_once", "reject_once")
        ]
        answer = self.request(
            "session/request_permission", {"sessionId": session, "toolCall": call, "options": options}
        )
        return str(answer["outcome"].get("optionId", answer["outcome"]["outcome"]))

    def do_hang(self, _session: str, _rest: str, _prompt: str) -> None:
        self.cancelled.wait()

    def do_ignore(self, session: str, rest: str, _prompt: str) -> str:
        after_ms, _, answer = rest.partition(" ")
        self.say(session, "… ")
        time.sleep(float(after_ms or 3_600_000) / 1000)
        self.cancelled.clear()
        return answer

    def do_crash(self, session: str, _rest: str, _prompt: str) -> None:
        self.say(session, "before ")
        time.sleep(0.05)
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(3)

    def do_garbage(self, _session: str, _rest: str, _prompt: str) -> str:
        with self.writing:
            sys.stdout.buffer.write(
                b'loading...\n\xff\xfe\x00\n{"jsonrpc": "2.0", "id": \n[1, 2]\n{"id": 9999, "result": 1}\n'
            )
            sys.stdout.buffer.flush()
        self.write({"method": "session/update", "params": {"sessionId": "nobody's", "update": {"sessionUpdate": "?"}}})
        return "still here"

    def do_flood(self, _session: str, _rest: str, _prompt: str) -> None:
        while not self.cancelled.is_set():
            sys.stdout.buffer.write(b"blah\n" * 100)
            sys.stdout.buffer.flush()

    def do_fork(self, _session: str, _rest: str, _prompt: str) -> str:
        reads, writes = os.pipe()
        if os.fork() == 0:  # noqa: TID251 (a real agent may do so)
            os.setsid()
            if os.fork() == 0:  # noqa: TID251
                os.write(writes, str(os.getpid()).encode())
                time.sleep(600)
            os._exit(0)
        return os.read(reads, 32).decode()

    def do_fail(self, _session: str, _rest: str, _prompt: str) -> dict[str, Any]:
        return {"code": -32603, "message": "no can do"}

    def do_odd(self, _session: str, _rest: str, _prompt: str) -> dict[str, Any]:
        return {"stopReason": "because"}

    # -- tools -----------------------------------------------------------------------------------------------------------

    def do_call(self, session: str, rest: str, _prompt: str) -> str:
        name, _, arguments = rest.partition(" ")
        call = {
            "sessionUpdate": "tool_call",
            "toolCallId": "c1",
            "title": name,
            "kind": "other",
            "status": "in_progress",
        }
        self.update(session, {**call, "rawInput": json.loads(arguments or "{}")})
        params = {"name": name, "arguments": json.loads(arguments or "{}")}
        answer = self.ask_gateway(session, "tools/call", params)
        result = answer.get("result") or {}
        text = result["content"][0]["text"] if result.get("content") else json.dumps(answer.get("error"))
        status = "failed" if result.get("isError") or "error" in answer else "completed"
        content = [{"type": "content", "content": _text(text)}]
        self.update(
            session, {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": status, "content": content}
        )
        return text

    def do_tools(self, session: str, _rest: str, _prompt: str) -> str:
        listed = self.ask_gateway(session, "tools/list", {})
        return " ".join(tool["name"] for tool in listed["result"]["tools"])

    def ask_gateway(self, session: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        server = self.sessions[session]["servers"][0]
        version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        meta = {**version, "io.modelcontextprotocol/clientCapabilities": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return (
            _request_over_http(server, message)
            if server.get("type") == "http"
            else _request_over_stdio(server, message)
        )


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _request_over_http(server: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {header["name"]: header["value"] for header in server["headers"]}
    headers |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers |= {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": message["method"]}
    if "name" in message["params"]:
        headers["Mcp-Name"] = message["params"]["name"]
    request = Request(server["url"], json.dumps(message).encode(), headers)  # noqa: S310 (the gateway's URL)
    try:
        response = urlopen(request)  # noqa: S310
    except HTTPError as refused:
        response = refused
    with response:
        found: dict[str, Any] = json.loads(response.read())
        return found


def _request_over_stdio(server: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    import subprocess  # noqa: TID251 (a real agent starts such a server itself)

    env = {**os.environ, **{entry["name"]: entry["value"] for entry in server["env"]}}
    command = [server["command"], *server["args"]]
    given = json.dumps(message).encode() + b"\n"
    ended = subprocess.run(command, input=given, capture_output=True, env=env, check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def main() -> None:
    options = sys.argv[1:]
    if "--exit" in options:
        sys.stderr.write("cannot start like this\n")
        sys.exit(7)
    if "--hang" in options:
        time.sleep(3600)
    agent = _Agent(options)
    time.sleep(float(agent.option("--slow") or 0))
    agent.run()


if __name__ == "__main__":
    main()
