(function (server, listed) {
  // An app knows its server's own names. The gateway lists many servers, so what the app sends gets the listed names here, where
  // it is certain whose app it is, and what it is told of its tool gets the server's own name.
  var host = window.parent, prefix = server + "__", own = {};
  if (host === window) return;
  Object.keys(listed).forEach(function (name) { own[listed[name]] = name; });
  function has(names, name) { return Object.prototype.hasOwnProperty.call(names, name); }
  function qualify(message) {
    var params = message && message.jsonrpc === "2.0" && message.params, changed = {};
    if (!params) return message;
    if (message.method === "tools/call" && typeof params.name === "string") {
      if (has(listed, params.name)) changed.name = listed[params.name];
      else if (params.name.indexOf(prefix) !== 0) changed.name = prefix + params.name;
    } else if (/^resources\//.test(message.method) && /^ui:\/\//.test(params.uri)) {
      if (params.uri.indexOf("ui://" + prefix) !== 0) changed.uri = "ui://" + prefix + params.uri.slice(5);
    }
    return Object.assign({}, message, { params: Object.assign({}, params, changed) });
  }
  function post(message) {
    return host.postMessage.apply(host, [qualify(message)].concat([].slice.call(arguments, 1)));
  }
  var shown = new Proxy(host, {
    get: function (target, key) { return key === "postMessage" ? post : target[key]; }
  });
  function restore(event) {
    if (event.source !== host) return;
    // Apps compare the source of a message with their parent.
    Object.defineProperty(event, "source", { value: shown });
    var data = event.data || {}, about = (data.result && data.result.hostContext) || data.params || {};
    var tool = about.toolInfo && about.toolInfo.tool;
    if (!tool || typeof tool.name !== "string") return;
    if (has(own, tool.name)) tool.name = own[tool.name];
    else if (tool.name.indexOf(prefix) === 0) tool.name = tool.name.slice(prefix.length);
  }
  try {
    Object.defineProperty(window, "parent", { value: shown, configurable: true });
    window.addEventListener("message", restore, true);
  } catch (error) {
    // The gateway knows a name that one server alone has.
    console.warn("This app's calls have its server's own names:", error);
  }
})
