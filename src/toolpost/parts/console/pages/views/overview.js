// Overview: what needs attention first, then the last hour against the hour before, in all, by server and by tool.

import { get } from "/console/api.js";
import { ms, number, percent } from "/console/format.js";
import { useEvents } from "/console/live.js";
import { address, Badge, Code, Empty, Failure, html, Link, Message, Sparkline, Table, Time, useEffect, useLoaded, useState, useStyle } from "/console/parts.js";

const AGAIN_MS = 10000; // figures change without events: minutes pass

export function View({ go, session }) {
  const isStyled = useStyle("/console/views/incident.css");
  const [count, setCount] = useState(0);
  const again = () => setCount((before) => before + 1);
  useEvents({ calls: 1 }, again);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || again(), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const [found, error] = useLoaded((signal) => get("/overview", {}, signal), [count]);
  if (error && !found) return html`<h1>Overview</h1><${Failure} error=${error} />`;
  if (!found || !isStyled) return html`<h1>Overview</h1>`;
  const { total, servers, topTools, actionItems } = found;
  const isNew = !servers.length && !total.now.calls && !total.before.calls;
  return html`
    <h1>Overview</h1>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${isNew ? html`<${FirstSteps} go=${go} tools=${found.tools} isAdmin=${session.isAdmin} />` : null}
    <section aria-label="Needs attention">
      ${actionItems.length
        ? html`<h2>Needs attention</h2><ul class="attention">${actionItems.map((item) => html`<${Item} key=${item.title} item=${item} go=${go} />`)}</ul>`
        : isNew ? null : html`<p><${Badge} text="ok" /> Nothing needs attention.</p>`}
    </section>
    <h2>Last hour <small class="dim">against the hour before${found.isSampled ? "; figures of an even part of the calls" : ""}</small></h2>
    <div class="cards figures">
      <${Card} title="Calls" value=${number(total.now.calls)} before=${number(total.before.calls)}
        note=${`${number(total.calls.at(-1))} in this minute${found.inFlight === null ? "" : ` · ${number(found.inFlight)} in flight`}`} values=${total.calls} label="Calls per minute" />
      <${Card} title="Failed" value=${rate(total.now)} before=${rate(total.before)} isBad=${total.now.failed > 0} sign=${isWorse(total) ? "▲" : "✕"}
        note=${html`<${Link} to="/calls?outcome=error&age=1h" go=${go}>${number(total.now.failed)} ${total.now.failed === 1 ? "call" : "calls"}<//>`} values=${total.failed} label="Failed calls per minute" />
      <${Card} title="Duration, p95" value=${ms(total.now.p95Ms)} before=${ms(total.before.p95Ms)}
        note=${`p50 ${ms(total.now.p50Ms)} · p99 ${ms(total.now.p99Ms)}`} values=${total.p95Ms} format=${ms} label="p95 of durations per minute" />
      <${Card} title="Tools" value=${number(found.tools)} note=${html`<${Link} to="/tools" go=${go}>Search and try them<//>`} />
    </div>
    ${servers.length ? html`<h2>Servers</h2>
      <${Table} label="Servers" columns=${[SERVER(go), ...HOURS]} rows=${servers} keyOf=${(row) => row.name} />` : null}
    ${topTools.length ? html`<h2>Tools <small class="dim">${found.toolsCalled > topTools.length ? `the ${topTools.length} of ${number(found.toolsCalled)} that failed most, or took longest` : "called in this hour"}</small></h2>
      <${Table} label="Tools" columns=${[TOOL(go), ...HOURS]} rows=${topTools} keyOf=${(row) => row.tool} />` : null}
  `;
}

const share = ({ calls, failed }) => (calls ? failed / calls : 0);
const rate = (hour) => percent(hour.failed, hour.calls);
// Without calls before, there is nothing to be worse than.
const isWorse = ({ now, before }) => now.failed > 0 && before.calls > 0 && share(now) > 1.5 * share(before);

function Card({ title, value, before, note, values, label, isBad, sign, format = number }) {
  return html`<div class="card">
    <h3>${title}</h3>
    <p><span class=${isBad ? "figure bad" : "figure"}>${isBad ? html`<span aria-hidden="true">${sign} </span>` : null}${value}</span> ${before === undefined ? null : html`<span class="dim before">before: ${before}</span>`}</p>
    <p class="dim">${note}</p>
    ${values ? html`<${Sparkline} values=${values} label=${`${label}: now ${format(values.at(-1))}`} format=${format} kind=${isBad ? "bad" : ""} from="1 h ago" />` : null}
  </div>`;
}

const SERVER = (go) => ({
  name: "main",
  title: "Server",
  sort: (row) => row.name,
  cell: (row) => html`<${Link} to=${`/servers/${encodeURIComponent(row.name)}`} go=${go}>${row.name}<//> <${Badge} text=${row.state} />`,
});
const TOOL = (go) => ({
  name: "main",
  title: "Tool",
  sort: (row) => row.tool,
  cell: (row) => html`<${Link} to=${address("/calls", { tool: row.tool })} go=${go}>${row.tool}<//>`,
});
const HOURS = [
  { name: "number", title: "Calls", sort: (row) => row.now.calls, cell: (row) => number(row.now.calls) },
  { name: "number wide dim", title: "before", sort: (row) => row.before.calls, cell: (row) => number(row.before.calls) },
  { name: "number", title: "Failed", sort: (row) => share(row.now), cell: (row) => html`<${Rate} row=${row} />` },
  { name: "number wide dim", title: "before", sort: (row) => share(row.before), cell: (row) => rate(row.before) },
  { name: "number", title: "p50", sort: (row) => row.now.p50Ms, cell: (row) => ms(row.now.p50Ms) },
  { name: "number", title: "p95", sort: (row) => row.now.p95Ms, cell: (row) => ms(row.now.p95Ms) },
  { name: "number wide dim", title: "before", sort: (row) => row.before.p95Ms, cell: (row) => ms(row.before.p95Ms) },
  { name: "number", title: "p99", sort: (row) => row.now.p99Ms, cell: (row) => ms(row.now.p99Ms) },
];

function Rate({ row }) {
  const { failed } = row.now;
  if (!failed) return html`<span class="dim">0</span>`;
  return html`<span class="bad failing"><span aria-hidden="true">${isWorse(row) ? "▲" : "✕"} </span>${rate(row.now)}</span> <span class="dim">${number(failed)}</span>`;
}

// Views of the console are opened without loading the page again; a login is a page of its own.
const isView = (path) => !path.startsWith("/login/");

function Item({ item, go }) {
  const action = item.action || "Open";
  const kind = item.isUrgent ? "button primary" : "button";
  return html`<li class=${item.isUrgent ? "bad-item" : ""}>
    <p class="head"><strong>${item.title}</strong>${item.since ? html`<span class="dim">began <${Time} at=${item.since} /></span>` : null}</p>
    ${item.text ? html`<p><${Message} text=${item.text} /></p>` : null}
    ${item.lines.length ? html`<${Code} label="Last output" text=${item.lines.join("\n")} isLog />` : null}
    <p class="do">${item.path ? (isView(item.path) ? html`<${Link} class=${kind} to=${item.path} go=${go}>${action}<//>` : html`<a class=${kind} href=${item.path}>${action}</a>`) : null}
      ${item.command ? html`<span class="dim">in a terminal: <code>${item.command}</code></span>` : null}</p>
  </li>`;
}

function FirstSteps({ go, tools, isAdmin }) {
  return html`<${Empty} title="First steps">
    <ol>
      ${isAdmin ? html`<li><${Link} to="/servers" go=${go}>Add a server<//>, or import those of your clients: <code>toolpost import</code></li>` : null}
      ${tools ? html`<li><${Link} to="/tools" go=${go}>Try a tool<//>: there ${tools === 1 ? "is one" : `are ${tools}`} already.</li>` : null}
      <li>Have a client use this gateway: <code>toolpost install</code> knows Claude, Cursor and VS Code. Any other client connects to
        <code> ${location.origin}/mcp</code></li>
      <li>Write down what the tools promise: <code>toolpost lock</code></li>
    </ol>
  <//>`;
}
