// Truncated results, as the TypeScript SDK gets them: it validates structured content against the listed schema. Prints JSON.
//
// node typescript_client.mjs FOLDER v1|v2 legacy|modern URL

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, version, era, url] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/node_modules/`));
const load = (name) => import(pathToFileURL(require.resolve(name)));

const name = version === "v1" ? ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/streamableHttp.js"] : ["@modelcontextprotocol/client", "@modelcontextprotocol/client"];
const { Client } = await load(name[0]);
const { StreamableHTTPClientTransport } = await load(name[1]);
const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
const client = new Client({ name: "ts", version }, version === "v1" ? {} : { versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
await client.listTools();
const seen = [];
for (const tool of ["bulk__rows", "bulk__exact", "bulk__text", "bulk__patterned"]) {
  const answer = await client.callTool({ name: tool, arguments: { count: 3000 } });
  const { truncated } = answer._meta["dev.toolpost/meta"];
  const whole = await client.readResource({ uri: truncated.uri });
  const page = await client.callTool({ name: "results__read", arguments: { id: truncated.id, limit: 100 } });
  seen.push([tool, answer.isError, answer.structuredContent !== undefined, whole.contents[0].text.length > 20000 || tool === "bulk__patterned", page.structuredContent.next_offset > 50]);
}
console.log(JSON.stringify(seen));
await client.close();
