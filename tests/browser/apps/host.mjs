// A minimal host of MCP Apps, on the bridge of the extension's own package. It shows the app of a tool, and sends what the app asks
// for to the one server that it knows, as hosts do.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { AppBridge, PostMessageTransport, getToolUiResourceUri, isToolVisibilityModelOnly } from "@modelcontextprotocol/ext-apps/app-bridge";

const HOST = { name: "host", version: "1.0.0" };
let client, tools;
window.calls = [];

window.connect = async (pin) => {
  const capabilities = { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } } };
  const versionNegotiation = pin ? { mode: { pin } } : undefined;
  client = new Client(HOST, { capabilities, versionNegotiation });
  await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", location.href)));
  ({ tools } = await client.listTools());
  return tools.map((tool) => tool.name);
};

// `isStrict`: as VS Code does, let an app call only what is listed, and give its page an origin of its own.
window.show = async (name, isStrict) => {
  const tool = tools.find((one) => one.name === name);
  const { contents: [page] } = await client.readResource({ uri: getToolUiResourceUri(tool) });
  const frame = document.createElement("iframe");
  frame.id = name;
  const ready = new Promise((resolve) => addEventListener("message", function listen(event) {
    if (event.source !== frame.contentWindow || event.data?.method !== "ui/notifications/sandbox-proxy-ready") return;
    removeEventListener("message", listen);
    resolve();
  }));
  frame.src = `http://sandbox.test/${isStrict ? "srcdoc" : "write"}`;
  document.body.append(frame);
  await ready;

  const bridge = new AppBridge(client, HOST, { serverTools: {}, serverResources: {} }, { hostContext: { toolInfo: { tool } } });
  const initialized = new Promise((resolve) => { bridge.oninitialized = resolve; });
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  const forward = bridge.oncalltool;
  bridge.oncalltool = (params, extra) => {
    window.calls.push(params.name);
    const called = tools.find((one) => one.name === params.name);
    if (isStrict && (!called || isToolVisibilityModelOnly(called))) throw new Error(`Tool not found on server: ${params.name}`);
    return forward(params, extra);
  };
  await bridge.sendSandboxResourceReady({ html: page.text, csp: page._meta?.ui?.csp });
  await initialized;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(await client.callTool({ name, arguments: {} }));
};
