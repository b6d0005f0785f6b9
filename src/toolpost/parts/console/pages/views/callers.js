// Who may call, what each of them sees, and how much it has called.

import { get } from "/console/api.js";
import { number } from "/console/format.js";
import { Badge, Failed, Failure, html, Link, ms, Table, Time, useLoaded } from "/console/parts.js";
import { visible } from "/console/gateway.js";

const AGES = { "1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days" };

export function View({ query, go, session }) {
  const age = Object.hasOwn(AGES, query.age ?? "") ? query.age : "24h";
  const [found, error] = useLoaded((signal) => get("/callers/usage", { age }, signal), [age]);
  const choose = (event) => go(`/callers?age=${event.target.value}`);
  const columns = [
    { name: "main", title: "Caller", sort: (row) => row.caller, cell: (row) => html`${visible(row.caller)} ${row.isAdmin ? html`<${Badge} text="administrator" />` : null}${row.isConfigured ? null : html`<span class="dim">not configured by this name</span>`}` },
    { name: "ways", title: "Known by", cell: (row) => row.ways?.join(", ") ?? "" },
    { name: "number", title: "Tools", sort: (row) => row.tools, cell: (row) => (row.tools === undefined ? "" : number(row.tools)) },
    { name: "limits grow", title: "Limited to", cell: (row) => (row.limits?.length ? html`<span title=${row.limits.join("; ")}>${visible(row.limits.join("; "))}</span>` : "") },
    { name: "number", title: "Calls", sort: (row) => row.calls ?? 0, cell: (row) => (row.calls ? html`<${Link} to=${`/calls?caller=${encodeURIComponent(row.caller)}`} go=${go}>${number(row.calls)}<//>` : "0") },
    { name: "number", title: "Failed", sort: (row) => row.failed ?? 0, cell: (row) => html`<${Failed} value=${row.failed ?? 0} />` },
    { name: "number", title: "Mean", sort: (row) => row.meanMs, cell: (row) => (row.calls ? ms(row.meanMs) : "–") },
    { name: "last", title: "Last call", sort: (row) => row.lastAt, cell: (row) => html`<${Time} at=${row.lastAt} />` },
  ];
  return html`
    <h1>Callers</h1>
    <div class="row">
      <label class="inline"><span>Calls of the</span>
        <select value=${age} onChange=${choose}>${Object.entries(AGES).map(([key, title]) => html`<option value=${key}>${title}</option>`)}</select>
      </label>
      ${found?.isCut ? html`<span class="dim">There were more calls than are counted here; these are the newest.</span>` : null}
    </div>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${found ? html`<${Table} label="Callers" columns=${columns} rows=${found.callers} keyOf=${(row) => row.caller} />` : html`<p class="dim" role="status">Loading…</p>`}
    ${session.isOpen ? html`<p class="dim">This gateway asks for no token: every program of this machine is the same caller. Give each a token with <code>[callers.NAME]</code> in toolpost.toml.</p>` : null}
  `;
}
