// The progress of short calls on stdio, as the TypeScript SDK gets it. Prints one JSON object: the values of each call, and errors.
//
// node progress_client.mjs FOLDER v1|v2 legacy|modern TOOL CALLS COMMAND ARGUMENT...

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, version, era, tool, calls, command, ...args] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/node_modules/`));
const load = (name) => import(pathToFileURL(require.resolve(name)));

const info = { name: "ts", version };
const launch = { command, args, env: process.env };
let client, transport, call;
if (version === "v1") {
  const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
  client = new Client(info);
  transport = new StdioClientTransport(launch);
  call = (params, options) => client.callTool(params, undefined, options);
} else {
  const { Client } = await load("@modelcontextprotocol/client");
  const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
  client = new Client(info, { versionNegotiation: { mode: era === "modern" ? { pin: "2026-07-28" } : "legacy" } });
  transport = new StdioClientTransport(launch);
  call = (params, options) => client.callTool(params, options);
}
const errors = [];
client.onerror = (error) => errors.push(error.message);
await client.connect(transport);
const found = [];
for (let number = 0; number < Number(calls); number++) {
  const values = [];
  await call({ name: tool, arguments: { count: 3 } }, { onprogress: ({ progress }) => values.push(progress) });
  found.push(values);
}
console.log(JSON.stringify({ found, errors }));
await client.close();
process.exit(0);
