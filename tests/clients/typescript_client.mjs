// What a plugin offers, as the TypeScript SDK gets it. Prints one JSON object.
//
// node typescript_client.mjs FOLDER v1|v2 legacy|modern URL
// node typescript_client.mjs FOLDER v1|v2 legacy|modern COMMAND ARGUMENT...
//
// FOLDER has the node_modules. Version 1 of the SDK knows the handshake era only.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, version, era, target, ...args] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/node_modules/`));
const load = (name) => import(pathToFileURL(require.resolve(name)));

const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const asked = [];
const logs = [];
const changed = new Set();

const answers = {
  "elicitation/create": async ({ params }) => {
    asked.push(params.message);
    if (params.mode === "url") return { action: "accept" };
    const fields = params.requestedSchema.properties;
    if (fields.value) return { action: "accept", content: { value: fields.value.type === "boolean" ? true : "Ada" } };
    return { action: "accept", content: { name: "Ada", ...(fields.guests ? { guests: 3 } : {}) } };
  },
  "sampling/createMessage": async () => ({ role: "assistant", model: "m", content: { type: "text", text: "roses" } }),
  "roots/list": async () => ({ roots: [{ uri: "file:///home/ada" }] }),
};

async function connect() {
  const info = { name: "ts", version };
  if (version === "v1") {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
    const types = await load("@modelcontextprotocol/sdk/types.js");
    const client = new Client(info, { capabilities });
    client.setRequestHandler(types.ElicitRequestSchema, answers["elicitation/create"]);
    client.setRequestHandler(types.CreateMessageRequestSchema, answers["sampling/createMessage"]);
    client.setRequestHandler(types.ListRootsRequestSchema, answers["roots/list"]);
    client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => logs.push(params.level));
    client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => changed.add("tools"));
    client.setNotificationHandler(types.PromptListChangedNotificationSchema, () => changed.add("prompts"));
    client.setNotificationHandler(types.ResourceListChangedNotificationSchema, () => changed.add("resources"));
    client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) => changed.add(params.uri));
    const isUrl = target.startsWith("http");
    await client.connect(
      isUrl ? new StreamableHTTPClientTransport(new URL(target)) : new StdioClientTransport({ command: target, args, env: process.env }),
    );
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
  const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
  const client = new Client(info, { capabilities, versionNegotiation: { mode } });
  for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(method, answer);
  client.setNotificationHandler("notifications/message", ({ params }) => logs.push(params.level));
  client.setNotificationHandler("notifications/tools/list_changed", () => changed.add("tools"));
  client.setNotificationHandler("notifications/prompts/list_changed", () => changed.add("prompts"));
  client.setNotificationHandler("notifications/resources/list_changed", () => changed.add("resources"));
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => changed.add(params.uri));
  const isUrl = target.startsWith("http");
  await client.connect(
    isUrl ? new StreamableHTTPClientTransport(new URL(target)) : new StdioClientTransport({ command: target, args, env: process.env }),
  );
  return client;
}

const client = await connect();
const call = (name, given = {}, meta = undefined) =>
  client.callTool({ name: `offers__${name}`, arguments: given, ...(meta ? { _meta: meta } : {}) });
const data = async (name, given) => (await call(name, given)).structuredContent?.data;
const refusal = async (work) => work().then(() => null, (error) => error.code);
const until = async (condition) => {
  for (let i = 0; i < 100 && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, 50));
};

const found = {};
const tools = (await client.listTools()).tools;
found.tools = tools.length;
found.icons = tools.find((tool) => tool.name === "offers__image").icons.map((icon) => icon.src);
found.mixed = (await call("mixed")).content.map((block) => block.type);
found.image = (await call("image")).content.map((block) => block.type);
const measured = await call("measured");
found.measured = [measured.structuredContent, measured._meta["dev.example/by"]];
const broken = await call("broken");
found.broken = [broken.isError, broken.content.map((block) => block.type)];
found.refused = await refusal(() => call("refuse"));
found.resources = (await client.listResources()).resources.map((resource) => resource.uri).filter((uri) => uri.includes("logo"));
found.templates = (await client.listResourceTemplates()).resourceTemplates.map((template) => template.uriTemplate);
found.note = (await client.readResource({ uri: "offers://notes/today" })).contents[0].text;
found.missing = await refusal(() => client.readResource({ uri: "offers://nothing" }));
found.prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name).filter((name) => name.includes("summ"));
const prompt = await client.getPrompt({ name: "offers__summarize", arguments: { title: "today", words: "7" } });
found.prompt = prompt.messages[1].content.text;
const ref = { type: "ref/prompt", name: "offers__summarize" };
found.completed = (await client.complete({ ref, argument: { name: "tone", value: "w" } })).completion.values;
found.booked = await data("book");
found.thread = await data("book_in_thread");
found.atOnce = await data("by_schema");
found.paid = await data("pay");
found.folders = await data("folders");
found.who = await data("who");
found.private = (await client.readResource({ uri: "offers://private" })).contents[0].text;
found.personal = (await client.getPrompt({ name: "offers__personal" })).messages[0].content.text;
logs.length = 0;
const followed = "offers://notes/today";
if (era === "modern") {
  await call("logs", {}, { "io.modelcontextprotocol/logLevel": "info" });
  await client.listen({
    toolsListChanged: true,
    promptsListChanged: true,
    resourcesListChanged: true,
    resourceSubscriptions: [followed],
  });
} else {
  await client.setLoggingLevel("info");
  await call("logs");
  await client.subscribeResource({ uri: followed });
}
await call("write", { title: "today", text: "buy bread" });
for (const what of ["tools", "prompts", "resources"]) await call("change", { what });
await until(() => changed.size >= 4);
for (const what of ["tools", "prompts", "resources"]) await call("change", { what, add: false });
found.changed = [...changed].sort();
await until(() => logs.length >= 2);
found.logs = logs;
found.asked = asked;
console.log(JSON.stringify(found));
await client.close();
process.exit(0);
