// Who may call, what each of them sees, how much it has called; callers that are made here, with a token that is shown once.

import { get, post } from "/console/api.js";
import { number } from "/console/format.js";
import { Badge, Code, count, Dialog, Failed, Failure, html, Link, ms, Table, Time, toast, useLoaded, useState } from "/console/parts.js";
import { visible } from "/console/gateway.js";

const AGES = { "1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days" };
const MODES = { full: "everything that it sees", readonly: "read-only tools", test: "servers with the tag test", minimal: "the tools in modes.minimal" };

export function View({ params, query, go, session }) {
  return params[0]
    ? html`<${One} key=${params[0]} name=${params[0]} go=${go} session=${session} />`
    : html`<${List} query=${query} go=${go} session=${session} />`;
}

const isAdministrator = (session) => session.role === "administrator";

function List({ query, go, session }) {
  const age = Object.hasOwn(AGES, query.age ?? "") ? query.age : "24h";
  const [isAdding, setAdding] = useState(false);
  const [found, error, reload] = useLoaded((signal) => get("/callers/usage", { age }, signal), [age]);
  const choose = (event) => go(`/callers?age=${event.target.value}`);
  const mayAdd = isAdministrator(session) && !session.isOpen;
  const columns = [
    { name: "main", title: "Caller", sort: (row) => row.caller, cell: (row) => html`<${Name} row=${row} go=${go} session=${session} />` },
    { name: "ways", title: "Known by", cell: (row) => row.ways?.join(", ") ?? "" },
    { name: "number", title: "Tools", sort: (row) => row.tools, cell: (row) => (row.tools === undefined ? "" : number(row.tools)) },
    { name: "limits grow", title: "Limited to", cell: (row) => (row.limits?.length ? html`<span title=${row.limits.join("; ")}>${visible(row.limits.join("; "))}</span>` : "") },
    { name: "number", title: "Calls", sort: (row) => row.calls ?? 0, cell: (row) => (row.calls ? html`<${Link} to=${`/calls?caller=${encodeURIComponent(row.caller)}`} go=${go}>${number(row.calls)}<//>` : "0") },
    { name: "number", title: "Failed", sort: (row) => row.failed ?? 0, cell: (row) => html`<${Failed} value=${row.failed ?? 0} />` },
    { name: "number", title: "Mean", sort: (row) => row.meanMs, cell: (row) => (row.calls ? ms(row.meanMs) : "–") },
    { name: "last", title: "Last call", sort: (row) => row.lastAt, cell: (row) => html`<${Time} at=${row.lastAt} />` },
  ];
  return html`
    <div class="row"><h1>Callers</h1>
      ${mayAdd ? html`<button type="button" class="primary end" onClick=${() => setAdding(true)}>New caller</button>` : null}
    </div>
    <div class="row">
      <label class="inline"><span>Calls of the</span>
        <select value=${age} onChange=${choose}>${Object.entries(AGES).map(([key, title]) => html`<option value=${key}>${title}</option>`)}</select>
      </label>
      ${found?.isCut ? html`<span class="dim">There were more calls than are counted here; these are the newest.</span>` : null}
    </div>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${found ? html`<${Table} label="Callers" columns=${columns} rows=${found.callers} keyOf=${(row) => row.caller} />` : html`<p class="dim" role="status">Loading…</p>`}
    ${session.isOpen ? html`<p class="dim">This gateway asks for no token: every program of this machine is the same caller. Set <code>TOOLPOST_TOKEN</code>, or add an administrator to <code>[callers]</code> in toolpost.toml, to give others a token of their own.</p>` : null}
    ${isAdding ? html`<${Add} onClose=${() => (setAdding(false), reload())} />` : null}
  `;
}

function Name({ row, go, session }) {
  const name = visible(row.caller);
  const isOne = row.isConfigured && isAdministrator(session);
  return html`${isOne || row.isStored ? html`<${Link} to=${`/callers/${encodeURIComponent(row.caller)}`} go=${go}>${name}<//>` : name}
    ${row.isAdmin ? html` <${Badge} text="administrator" />` : null}
    ${row.isShadowed ? html` <${Badge} text=${row.isConfigured ? "toolpost.toml wins" : "no effect"} kind="warn" />` : null}
    ${row.isConfigured || row.isStored ? null : html` <span class="dim">not configured by this name</span>`}`;
}

function One({ name, go, session }) {
  const [rows, error, reload] = useLoaded((signal) => get("/callers/usage", { age: "7d" }, signal), [name]);
  const row = rows?.callers.find((each) => each.caller === name);
  const [seen, failure] = useLoaded((signal) => (row?.isConfigured ? get("/callers/tools", { caller: name }, signal) : Promise.resolve(null)), [name, row?.isConfigured]);
  const [isRevoking, setRevoking] = useState(false);
  return html`
    <p class="crumbs"><${Link} to="/callers" go=${go}>Callers<//></p>
    <div class="row"><h1>${visible(name)}</h1>${row?.isAdmin ? html`<${Badge} text="administrator" />` : null}
      ${row?.isStored && isAdministrator(session) ? html`<button type="button" class="danger end" onClick=${() => setRevoking(true)}>Revoke</button>` : null}
    </div>
    ${error ?? failure ? html`<${Failure} error=${error ?? failure} />` : null}
    ${rows && !row ? html`<p>There is no caller of this name, and it has not called in the last 7 days.</p>` : null}
    ${row?.isShadowed ? html`<p><strong>${row.isConfigured ? "A caller of toolpost.toml has this name, and wins" : "It has no effect"}:</strong>
      ${row.isConfigured ? " the token that was made here is not accepted." : " this gateway asks for no token."}</p>` : null}
    ${row ? html`<dl class="facts">
      ${row.ways ? html`<dt>Known by</dt><dd>${row.ways.join(", ") || "–"}</dd>` : null}
      ${row.isStored ? html`<dt>Made</dt><dd><${Time} at=${row.madeAt} /> by ${visible(row.madeBy)}</dd>` : null}
      <dt>Limited to</dt><dd>${row.limits?.length ? visible(row.limits.join("; ")) : "nothing: it sees all tools"}</dd>
      <dt>Calls</dt><dd><${Link} to=${`/calls?caller=${encodeURIComponent(name)}`} go=${go}>${count(row.calls ?? 0, "call")}<//> in 7 days</dd>
    </dl>` : null}
    ${seen ? html`<h2>What it sees</h2><${Seen} seen=${seen} go=${go} />` : null}
    ${isRevoking ? html`<${Revoke} name=${name} onClose=${(isDone) => (setRevoking(false), isDone ? go("/callers") : reload())} />` : null}
  `;
}

// Servers and their tools; `go` makes links of these.
function Seen({ seen, go }) {
  if (!seen.total) return html`<p class="dim">Nothing.</p>`;
  return html`<p>${count(seen.total, "tool")} of ${count(seen.servers.length, "server")}:</p>
    ${seen.servers.map(({ name, tools }) => html`<details key=${name}><summary>${visible(name)} <span class="dim">${count(tools.length, "tool")}</span></summary>
      <ul>${tools.map((tool) => html`<li>${go ? html`<${Link} to=${`/tools/${encodeURIComponent(tool)}`} go=${go}>${visible(tool)}<//>` : visible(tool)}</li>`)}</ul>
    </details>`)}`;
}

function Revoke({ name, onClose }) {
  const [failure, setFailure] = useState(null);
  const revoke = () => post("/callers/remove", { name }).then(() => (toast(`${name} is revoked.`), onClose(true)), setFailure);
  return html`<${Dialog} title=${`Revoke ${name}?`} onClose=${() => onClose(false)}>
    <p>Its token is refused from now on, here and at the other gateways of the store, and what it has open ends. A token cannot be brought back.</p>
    ${failure ? html`<${Failure} error=${failure} />` : null}
    <div class="row">
      <button type="button" class="danger" onClick=${revoke}>Revoke it</button>
      <button type="button" onClick=${() => onClose(false)}>Cancel</button>
    </div>
  <//>`;
}

const words = (text) => text.split(/[\s,]+/).filter(Boolean);

// A name and limits, with a preview of what they show; then the token, once.
function Add({ onClose }) {
  const [form, setForm] = useState({ name: "", isAll: true, servers: [], patterns: "", tags: "", mode: "full" });
  const [token, setToken] = useState("");
  const [failure, setFailure] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [all] = useLoaded((signal) => post("/callers/preview", {}, signal), []);
  const set = (key) => (event) => setForm({ ...form, [key]: event.target.value });
  const toggle = (name) => setForm({ ...form, servers: form.servers.includes(name) ? form.servers.filter((each) => each !== name) : [...form.servers, name] });
  const limits = {
    tools: form.isAll ? null : [...form.servers.map((name) => `${name}__*`), ...words(form.patterns)],
    tags: words(form.tags).length ? words(form.tags) : null,
    mode: form.mode,
  };
  const [seen, error] = useLoaded((signal) => post("/callers/preview", limits, signal), [JSON.stringify(limits)]);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFailure(null);
    try {
      setToken((await post("/callers/add", { name: form.name.trim(), ...limits })).token);
    } catch (raised) {
      setFailure(raised);
    }
    setBusy(false);
  };
  if (token) {
    return html`<${Dialog} title=${`The token of ${form.name.trim()}`} onClose=${onClose}>
      <p>It is shown this once, and stored nowhere. Clients send it as <code>Authorization: Bearer …</code> to <code>${location.origin}/mcp</code>.</p>
      <${Code} label="Token" text=${token} isPlain />
      <div class="row"><button type="button" class="primary" onClick=${onClose}>I have copied it</button></div>
    <//>`;
  }
  return html`<${Dialog} title="New caller" onClose=${onClose}>
    <form onSubmit=${submit}>
      <label><span>Name</span><input required maxlength="64" pattern="[A-Za-z0-9][A-Za-z0-9._@\\-]*" title="letters, digits, ., _, @ and -" autocomplete="off" value=${form.name} onInput=${set("name")} /></label>
      <fieldset><legend>It sees</legend>
        <label class="check"><input type="radio" name="sees" checked=${form.isAll} onChange=${() => setForm({ ...form, isAll: true })} /> all servers, also those that are added later</label>
        <label class="check"><input type="radio" name="sees" checked=${!form.isAll} onChange=${() => setForm({ ...form, isAll: false })} /> only these:</label>
        ${form.isAll ? null : html`
          ${(all?.servers ?? []).map(({ name, tools }) => html`<label class="check" key=${name}><input type="checkbox" checked=${form.servers.includes(name)} onChange=${() => toggle(name)} /> ${visible(name)} <span class="dim">${count(tools.length, "tool")}</span></label>`)}
          <label><span>Further patterns of tools</span><input placeholder="github__get_* !github__delete_*" autocomplete="off" value=${form.patterns} onInput=${set("patterns")} /></label>`}
      </fieldset>
      <label><span>Only servers with one of these tags (optional)</span><input autocomplete="off" value=${form.tags} onInput=${set("tags")} /></label>
      <label><span>It may call</span><select value=${form.mode} onChange=${set("mode")}>${Object.entries(MODES).map(([mode, title]) => html`<option value=${mode}>${title}</option>`)}</select></label>
      <div role="status" aria-label="Preview">${error ? html`<${Failure} error=${error} />` : seen ? html`<${Seen} seen=${seen} />` : null}</div>
      ${failure ? html`<${Failure} error=${failure} />` : null}
      <div class="row">
        <button type="submit" class="primary" disabled=${isBusy || Boolean(error)}>Make the token</button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}
