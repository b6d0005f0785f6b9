// Servers: a list, and one with its live output. Changes of toolpost.toml are shown before they are made.

import { get, post } from "/console/api.js";
import { Change } from "/console/change.js";
import { useEvents } from "/console/live.js";
import { address, Badge, bytes, Code, count, Dialog, Empty, Failure, Hint, html, Link, Message, number, Sparkline, Table, Time, useLoaded, useState, useStyle } from "/console/parts.js";
import { matches } from "/console/table.js";

export function View({ params, query, go, session }) {
  return params[0]
    ? html`<${Server} key=${params[0]} name=${params[0]} go=${go} session=${session} />`
    : html`<${List} query=${query} go=${go} session=${session} />`;
}

function List({ query, go, session }) {
  const [states, setStates] = useState({});
  const [isAdding, setAdding] = useState(false);
  useEvents({}, (event) => event.kind === "servers" && setStates(event.states));
  const [loaded, error, reload] = useLoaded((signal) => get("/servers", {}, signal), [JSON.stringify(states)]);
  const servers = loaded?.servers ?? [];
  const put = (changes) => go(address("/servers", { ...query, ...changes }), { replace: true });
  const [busy, setBusy] = useState({}); // by server: what is being done with it
  const [failure, setFailure] = useState(null);
  const act = async (name, action) => {
    setBusy((before) => ({ ...before, [name]: action }));
    setFailure(null);
    await post("/server/act", { name, action }).catch(setFailure);
    setBusy(({ [name]: _, ...others }) => others);
    reload();
  };
  const shown = servers.filter((server) => matches(query.q ?? "", server.name, server.state, server.transport ?? ""));
  return html`
    <div class="row"><h1>Servers</h1>
      ${session.isAdmin ? html`<button type="button" class="primary end" onClick=${() => setAdding(true)}>Add a server</button>` : null}
    </div>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${failure ? html`<${Failure} error=${failure} onClose=${() => setFailure(null)} />` : null}
    ${loaded && !servers.length ? html`<${FirstSteps} isAdmin=${session.isAdmin} />` : null}
    ${servers.length ? html`
      <div class="row filters" role="search">
        <input type="search" aria-label="Filter" placeholder="Name, state, transport ( / )" value=${query.q ?? ""} onInput=${(event) => put({ q: event.target.value })} />
        <span class="dim" role="status">${count(shown.length, "server")}</span>
      </div>
      <${Table} label="Servers" columns=${session.isAdmin ? [...COLUMNS(go), ...(session.mayChange || !session.hasSession ? [actions(busy, act)] : [])] : COLUMNS(go).slice(0, 2)} rows=${shown} keyOf=${(server) => server.name}
        sort=${query.sort ?? ""} onSort=${(sort) => put({ sort })} />` : null}
    ${isAdding ? html`<${Add} onClose=${(isDone) => (setAdding(false), isDone && reload())} />` : null}
  `;
}

const COLUMNS = (go) => [
  { name: "main", title: "Server", sort: (server) => server.name, cell: (server) => html`<${Link} to=${`/servers/${encodeURIComponent(server.name)}`} go=${go}>${server.name}<//>` },
  { name: "side", title: "State", sort: (server) => server.state, cell: (server) => html`<${Badge} text=${server.state} />` },
  { name: "number", title: "Tools", sort: (server) => server.tools, cell: (server) => number(server.tools) },
  { name: "number", title: "Processes", sort: (server) => server.pids.length, cell: (server) => number(server.pids.length) },
  { name: "number", title: "Memory", sort: (server) => server.memoryBytes, cell: (server) => (server.memoryBytes ? bytes(server.memoryBytes) : html`<span class="dim">–</span>`) },
  { name: "number", title: "Restarts", sort: (server) => server.restarts, cell: (server) => number(server.restarts) },
  { name: "transport wide", title: "Transport", sort: (server) => server.transport, cell: (server) => server.transport },
  { name: "grow wrap", title: "Note", cell: (server) => noteOf(server) },
];

// What can be done with a server, beside it.
const actions = (busy, act) => ({
  name: "acts",
  title: "Actions",
  cell: (server) => {
    const isStopped = server.state === "stopped";
    const button = (action, label) => html`<button type="button" class="small" disabled=${Boolean(busy[server.name])} aria-label=${`${label} ${server.name}`} onClick=${() => act(server.name, action)}>
      ${busy[server.name] === action ? `${label}…` : label}
    </button>`;
    return isStopped || isDown(server.state) ? button("start", "Start") : html`${button("restart", "Restart")} ${button("stop", "Stop")}`;
  },
});

function noteOf(server) {
  if (server.lastError && isDown(server.state)) return html`<span class="bad"><${Message} text=${server.lastError} /></span>`;
  if (server.degraded) return html`<span class="bad">degraded: <${Message} text=${server.degraded} /></span>`;
  if (server.state === "stopped") return html`<span class="dim">${server.isHalted ? "stopped until you start it" : "starts when it is called"}</span>`;
  return "";
}

export function FirstSteps({ isAdmin }) {
  return html`<${Empty} title="No servers yet">
    <p>A server brings tools: a program that speaks MCP, or an address. ${isAdmin ? "Add one with the button above, or in a terminal:" : "Ask an administrator of this gateway to add one."}</p>
    ${isAdmin ? html`<${Code} label="Commands" text=${"toolpost import        # those of Claude, Cursor and VS Code\ntoolpost doctor        # what is missing on this machine"} />` : null}
  <//>`;
}

const isDown = (state) => state === "failed" || state === "suspended";

function Server({ name, go, session }) {
  const isStyled = useStyle("/console/views/incident.css");
  const [live, setLive] = useState(null);
  const [busy, setBusy] = useState("");
  const [failure, setFailure] = useState(null);
  const [isRemoving, setRemoving] = useState(false);
  const [isEditing, setEditing] = useState(false);
  const [server, error, reload] = useLoaded((signal) => get("/server", { name }, signal), [name, live?.state, session.mayChange]);
  const isLive = useEvents({ server: name }, (event) => event.kind === "server" && setLive(event));
  if (error && !server) return html`<h1>${name}</h1><${Failure} error=${error} />`;
  if (!server || !isStyled) return html`<h1>${name}</h1>`;
  const now = { ...server, ...live };
  const act = async (action) => {
    setBusy(action);
    setFailure(null);
    await post("/server/act", { name, action }).catch(setFailure);
    setBusy("");
    reload();
  };
  const button = (action, label, isOff) => html`<button type="button" disabled=${Boolean(busy) || isOff} onClick=${() => act(action)}>
    ${busy === action ? `${label}…` : label}
  </button>`;
  const isStopped = now.state === "stopped";
  return html`
    <p class="crumbs"><${Link} to="/servers" go=${go}>Servers<//></p>
    <div class="row"><h1>${name}</h1><span role="status"><${Badge} text=${now.state} /></span></div>
    ${failure ? html`<${Failure} error=${failure} onClose=${() => setFailure(null)} />` : null}
    <div class="row">
      ${button("start", "Start", !isStopped && !isDown(now.state))} ${button("restart", "Restart", isStopped)} ${button("stop", "Stop", isStopped)}
      ${server.takesLogin ? html`<a href=${`/login/${encodeURIComponent(name)}`}>Log in to it</a>` : null}
      <button type="button" class="danger end" onClick=${() => setRemoving(true)}>Remove</button>
    </div>
    ${isDown(now.state) ? html`<div class="failure">
      <p><strong>It is not available:</strong> <${Message} text=${now.lastError} /></p>
      <p><${Hint} text=${now.hint ?? "read its last output below, correct its settings, and start it again"} />. <code>toolpost doctor ${name}</code> tries each step.</p>
    </div>` : null}
    <dl class="facts">
      <dt>Process</dt><dd>${now.pids.length ? `${now.pids.join(", ")} · ${bytes(now.memoryBytes)}` : isStopped ? (now.isHalted ? "none: it was stopped, and stays so until you start it" : "none: the next call of one of its tools starts it") : "none"}</dd>
      <dt>Restarts</dt><dd>${number(now.restarts)}</dd>
      <dt>Speaks</dt><dd>${server.transport} ${server.version ?? ""}</dd>
      <dt>Tools</dt><dd>
        <${Link} to=${`/tools?server=${encodeURIComponent(name)}`} go=${go}>${count(server.tools, "tool")}<//>
        ${Object.keys(server.contracts).length ? html` · <${Link} to=${`/contracts?server=${encodeURIComponent(name)}`} go=${go}>${Object.keys(server.contracts).length} changed<//>` : null}
        ${server.refused.length ? ` · ${server.refused.length} refused` : ""}
      </dd>
      <dt>Calls</dt><dd><${Link} to=${`/calls?tool=${encodeURIComponent(`${name}__*`)}`} go=${go}>of its tools<//></dd>
      ${now.degraded ? html`<dt>Degraded</dt><dd class="bad"><${Message} text=${now.degraded} /></dd>` : null}
      ${now.lastError ? html`<dt>Last error</dt><dd><${Message} text=${now.lastError} /> <span class="dim">(<${Time} at=${now.lastErrorAt} />)</span></dd>` : null}
      ${server.tags.length ? html`<dt>Tags</dt><dd>${server.tags.join(", ")}</dd>` : null}
    </dl>
    ${server.refused.length ? html`<h2>Refused tools</h2><ul>${server.refused.map((one) => html`<li><code>${one.tool}</code> ${one.place}: ${one.reason}</li>`)}</ul>` : null}
    ${server.memory.some(Boolean) ? html`<h2>Memory</h2><${Sparkline} values=${[...server.memory, now.memoryBytes ?? 0]} format=${bytes}
      label=${`Memory of ${name}: now ${bytes(now.memoryBytes ?? 0)}`} from=${`${server.memory.length} min ago`} />` : null}
    <h2>Output <small class="beside dim">last lines of stderr${isLive === false ? ", not connected" : ""} · <${Link} to=${address("/logs", { server: name })} go=${go}>its log<//></small></h2>
    ${now.stderrTail.length
      ? html`<${Code} label="Output" text=${now.stderrTail.join("\n")} isLog />`
      : html`<p class="dim">Nothing since it was last started.</p>`}
    <div class="row part"><h2>Settings</h2>${server.settings ? html`<button type="button" class="small end" onClick=${() => setEditing(true)}>Edit settings</button>` : null}</div>
    ${server.settings ? html`<${Code} label="Settings" text=${server.settings} />` : session.mayChange ? html`<p class="dim">It is not in toolpost.toml.</p>` : html`<p class="dim">Shown to a browser that was opened with the secret.</p>`}
    ${isEditing ? html`<${Edit} name=${name} settings=${server.settings} onClose=${(isDone) => (setEditing(false), isDone && reload())} />` : null}
    ${isRemoving ? html`<${Change} title=${`Remove ${name}`} path="/servers" body=${{ remove: name }} verb="Remove it" isDangerous
      text="Its calls in flight still get their answers."
      onClose=${(isDone) => (setRemoving(false), isDone && go("/servers"))} />` : null}
  `;
}

const LISTS = ["args", "tags", "allow", "deny"];

// The settings of a server in a form; then what would change. Those with secrets are edited in the file.
function Edit({ name, settings, onClose }) {
  const isRemote = Boolean(settings.url);
  const [form, setForm] = useState(() => Object.fromEntries(EDITED.map((key) => [key, asText(key, settings[key])])));
  const [planned, setPlanned] = useState(null);
  const set = (key) => (event) => setForm({ ...form, [key]: event.target.value });
  const changes = Object.fromEntries(EDITED.filter((key) => form[key] !== asText(key, settings[key])).map((key) => [key, fromText(key, form[key])]));
  if (planned) {
    const isStarted = Object.keys(planned).some((key) => ["command", "args", "cwd", "url"].includes(key));
    return html`<${Change} title=${`Change ${name}`} path="/servers" body=${{ name, settings: planned }} verb="Change it" onClose=${onClose} onBack=${() => setPlanned(null)}
      text=${isStarted ? "It is started with its new settings first: if it does not start, nothing is changed." : "Its processes go on."} />`;
  }
  const field = (key, label, options = {}) => html`<label><span>${label}</span><input value=${form[key]} onInput=${set(key)} spellcheck=${false} ...${options} /></label>`;
  const area = (key, label, rows) => html`<label><span>${label}</span><textarea rows=${rows} value=${form[key]} onInput=${set(key)} spellcheck=${false}></textarea></label>`;
  return html`<${Dialog} title=${`Settings of ${name}`} onClose=${() => onClose(false)}>
    <form onSubmit=${(event) => (event.preventDefault(), setPlanned(changes))}>
      ${isRemote ? field("url", "Address", { type: "url", required: true }) : html`${field("command", "Command", { required: true })} ${area("args", "Arguments, one in each line", 4)} ${field("cwd", "Working directory; the project, if empty")}`}
      ${area("allow", "Tools to serve: a pattern in each line; all, if empty", 2)} ${area("deny", "Tools to leave out: a pattern in each line", 2)} ${area("tags", "Tags, one in each line", 2)}
      ${field("timeout_s", "Time limit of a call in seconds; that of the gateway, if empty", { type: "number", min: "0", step: "any" })}
      <label><span>Changed contracts</span><select value=${form.contracts} onChange=${set("contracts")}>
        <option value="">As the gateway</option><option value="observe">Report them (observe)</option><option value="enforce">Quarantine them (enforce)</option>
      </select></label>
      <p class="dim">Environment, headers and logins are edited in toolpost.toml: they have secrets.</p>
      <div class="row"><button type="submit" class="primary" disabled=${!Object.keys(changes).length}>Show what changes</button>
        <button type="button" onClick=${() => onClose(false)}>Cancel</button></div>
    </form>
  <//>`;
}

const EDITED = ["command", "args", "cwd", "url", "allow", "deny", "tags", "timeout_s", "contracts"];
const asText = (key, value) => (value === undefined || value === null ? "" : LISTS.includes(key) ? value.join("\n") : String(value));

// An empty field takes a setting back; null says so.
function fromText(key, text) {
  if (text.trim() === "") return null;
  if (LISTS.includes(key)) return lines(text);
  return key === "timeout_s" ? Number(text) : text.trim();
}

// A form or a pasted file; then what would change.
function Add({ onClose }) {
  const [form, setForm] = useState({ kind: "command", name: "", command: "", args: "", env: "", url: "", headers: "", text: "" });
  const [planned, setPlanned] = useState(null);
  const [keepSecrets, setKeepSecrets] = useState(false);
  const set = (key) => (event) => setForm({ ...form, [key]: event.target.value });
  if (planned) {
    return html`<${Change} title="Add to toolpost.toml" path="/servers" body=${{ ...planned, keepSecrets }} verb="Add" onClose=${onClose}
      text="New servers are started first: if one does not start, nothing is changed." onBack=${() => setPlanned(null)}>
      <label class="check"><input type="checkbox" checked=${keepSecrets} onChange=${(event) => setKeepSecrets(event.target.checked)} />
        Write secrets into the file, instead of names of variables</label>
    <//>`;
  }
  const submit = (event) => {
    event.preventDefault();
    setPlanned(form.kind === "text" ? { text: form.text } : { name: form.name, entry: entryOf(form) });
  };
  const field = (key, label, options = {}) => html`<label><span>${label}</span><input value=${form[key]} onInput=${set(key)} ...${options} /></label>`;
  const area = (key, label, rows) => html`<label><span>${label}</span><textarea rows=${rows} value=${form[key]} onInput=${set(key)} spellcheck=${false}></textarea></label>`;
  return html`<${Dialog} title="Add a server" onClose=${() => onClose(false)}>
    <form onSubmit=${submit}>
      <label><span>What it is</span><select value=${form.kind} onChange=${set("kind")}>
        <option value="command">A program on this machine</option>
        <option value="url">An address</option>
        <option value="text">A pasted .mcp.json</option>
      </select></label>
      ${form.kind === "text" ? area("text", "The file: { \"mcpServers\": { … } }", 10) : field("name", "Name", { required: true, pattern: "[A-Za-z0-9_\\-]+", placeholder: "github" })}
      ${form.kind === "command" ? html`${field("command", "Command", { required: true, placeholder: "npx" })} ${area("args", "Arguments, one in each line", 3)} ${area("env", "Environment, NAME=value in each line; ${VAR} is filled in", 2)}` : null}
      ${form.kind === "url" ? html`${field("url", "Address", { required: true, type: "url", placeholder: "https://example.com/mcp" })} ${area("headers", "Headers, Name: value in each line; ${VAR} is filled in", 2)}` : null}
      <div class="row"><button type="submit" class="primary">Show what changes</button>
        <button type="button" onClick=${() => onClose(false)}>Cancel</button></div>
    </form>
  <//>`;
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const pairs = (text, mark) =>
  Object.fromEntries(lines(text).map((line) => [line.split(mark)[0].trim(), line.split(mark).slice(1).join(mark).trim()]));

function entryOf(form) {
  if (form.kind === "url") return { url: form.url, headers: pairs(form.headers, ":") };
  return { command: form.command, args: lines(form.args), env: pairs(form.env, "=") };
}
