// The same call for a terminal and for a program. Each is run by a test, as it is copied.

import { hasOwn, stringify, typeOf } from "./exact.js";

const REVISION = "2026-07-28";

const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

// `toolpost call`, through the gateway that serves this page.
export function asCommand(tool, value, { origin, needsToken }) {
  const token = needsToken ? "TOOLPOST_TOKEN=… " : "";
  return `${token}toolpost call ${quote(tool.name)} ${quote(stringify(value, 0))} --url ${quote(origin)}`;
}

export function asCurl(tool, value, { origin, needsToken }) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": { name: "curl", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const params = { name: tool.name, arguments: value, _meta: meta };
  const headers = [
    "Content-Type: application/json",
    "Accept: application/json, text/event-stream",
    `MCP-Protocol-Version: ${REVISION}`,
    "Mcp-Method: tools/call",
    `Mcp-Name: ${headerText(tool.name)}`,
    ...mirrored(tool.definition?.inputSchema, value),
  ];
  const lines = [
    `curl -sS ${quote(`${origin}/mcp`)}`,
    ...headers.map((header) => `-H ${quote(header)}`),
    // In double quotes: the shell puts the token in.
    ...(needsToken ? ['-H "Authorization: Bearer $TOOLPOST_TOKEN"'] : []),
    `--data-binary ${quote(stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }, 0))}`,
  ];
  return lines.join(" \\\n  ");
}

export function asPython(tool, value, { origin, needsToken }) {
  const call = `client.call_tool(${pythonText(tool.name)}, ${pythonValue(value, "        ")})`;
  const url = pythonText(`${origin}/mcp`);
  if (!needsToken) {
    return [
      "import asyncio",
      "",
      "from mcp import Client  # pip install mcp",
      "",
      "",
      "async def main() -> None:",
      `    async with Client(${url}) as client:`,
      `        result = await ${call}`,
      "        print(result.model_dump_json(indent=2, by_alias=True, exclude_none=True))",
      "",
      "",
      "asyncio.run(main())",
    ].join("\n");
  }
  return [
    "import asyncio",
    "import os",
    "",
    "import httpx2",
    "from mcp import Client  # pip install mcp",
    "from mcp.client.streamable_http import streamable_http_client",
    "",
    "",
    "async def main() -> None:",
    '    headers = {"Authorization": f"Bearer {os.environ[\'TOOLPOST_TOKEN\']}"}',
    "    async with httpx2.AsyncClient(headers=headers, timeout=None) as http:",
    `        async with Client(streamable_http_client(${url}, http_client=http)) as client:`,
    `            result = await ${call}`,
    "            print(result.model_dump_json(indent=2, by_alias=True, exclude_none=True))",
    "",
    "",
    "asyncio.run(main())",
  ].join("\n");
}

// A header has printable ASCII; anything else goes as base64, as the protocol has it.
function headerText(text) {
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?base64?")) return text;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;
}

// Arguments that the schema mirrors into headers (`x-mcp-header`).
function mirrored(schema, value) {
  const found = [];
  for (const [name, part] of Object.entries(schema?.properties ?? {})) {
    if (!hasOwn(value, name) || typeOf(part ?? null) !== "object") continue;
    const header = part["x-mcp-header"];
    if (typeof header === "string") {
      const text = typeof value[name] === "string" ? value[name] : stringify(value[name], 0);
      found.push(`Mcp-Param-${header}: ${headerText(text)}`);
    } else found.push(...mirrored(part, value[name]));
  }
  return found;
}

// A text of JSON is a text of Python too, but for half of a surrogate pair, which both write alike.
const pythonText = (text) => JSON.stringify(text);

function pythonValue(value, indent) {
  const inner = `${indent}    `;
  const type = typeOf(value);
  if (type === "null") return "None";
  if (type === "boolean") return value ? "True" : "False";
  if (type === "string") return pythonText(value);
  if (type === "array") {
    if (!value.length) return "[]";
    return `[\n${value.map((item) => `${inner}${pythonValue(item, inner)},\n`).join("")}${indent}]`;
  }
  if (type !== "object") return stringify(value, 0);
  const entries = Object.entries(value);
  if (!entries.length) return "{}";
  return `{\n${entries.map(([name, each]) => `${inner}${pythonText(name)}: ${pythonValue(each, inner)},\n`).join("")}${indent}}`;
}
