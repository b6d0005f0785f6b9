"""A plugin with an app, whose button calls a tool that models do not see."""

from toolpost import Plugin

PAGE = """<!doctype html>
<button id="more">one more</button> <output id="count">?</output> <span id="about"></span>
<script>
  let next = 0;
  const waiting = new Map();
  const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const ask = (method, params) => new Promise((done) => {
    waiting.set(++next, done);
    send({ id: next, method, params });
  });
  const show = (result) => { document.getElementById("count").value = result.structuredContent.count; };
  addEventListener("message", ({ source, data }) => {
    if (source !== parent) return;
    if (data.method === "ui/notifications/tool-result") show(data.params);
    waiting.get(data.id)?.(data.result);
  });
  document.getElementById("more").onclick = async () => show(await ask("tools/call", { name: "add", arguments: {} }));
  ask("ui/initialize", { protocolVersion: "2026-01-26", appInfo: { name: "counter", version: "1" }, appCapabilities: {} })
    .then((host) => {
      document.getElementById("about").textContent = host.hostContext.toolInfo.tool.name;
      send({ method: "ui/notifications/initialized", params: {} });
    });
</script>
"""

plugin = Plugin("counter", style="plain")
page = plugin.app("ui://counter/page.html", PAGE, csp={"connectDomains": ["https://example.com"]}, prefers_border=True)
counted = {"count": 0}


@plugin.tool(app=page)
async def show() -> dict[str, int]:
    """Show the counter."""
    return dict(counted)


@plugin.tool(visibility=["app"])
async def add() -> dict[str, int]:
    """Count one more."""
    counted["count"] += 1
    return dict(counted)
