// Overview: what needs attention first, then the last hour against the hour before, in all, by server and by tool.

import { get } from "/console/api.js";
import { useEvents } from "/console/live.js";
import { Badge, Code, count, Empty, Failure, html, Link, Message, ms, Sparkline, time, useEffect, useLoaded, useState } from "/console/parts.js";

const AGAIN_MS = 10000; // figures change without events: minutes pass

export function View({ go, session }) {
  const [count, setCount] = useState(0);
  const again = () => setCount((before) => before + 1);
  useEvents({ calls: 1 }, again);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || again(), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const [found, error] = useLoaded((signal) => get("/overview", {}, signal), [count]);
  if (error && !found) return html`<h1>Overview</h1><${Failure} error=${error} />`;
  if (!found) return html`<h1>Overview</h1>`;
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
      <${Card} title="Failed" value=${rate(total.now)} before=${rate(total.before)} isBad=${isWorse(total)}
        note=${html`<${Link} to="/calls?outcome=error&age=1h" go=${go}>${number(total.now.failed)} calls<//>`} values=${total.failed} label="Failed calls per minute" />
      <${Card} title="95 % are answered within" value=${duration(total.now.p95Ms)} before=${duration(total.before.p95Ms)}
        note=${`half within ${duration(total.now.p50Ms)} · 99 % within ${duration(total.now.p99Ms)}`} values=${total.p95Ms} label="95th percentile of durations per minute" />
      <${Card} title="Tools" value=${number(found.tools)} note=${html`<${Link} to="/tools" go=${go}>Search and try them<//>`} />
    </div>
    ${servers.length ? html`<h2>Servers</h2><${Hours} label="Servers" go=${go} rows=${servers.map((server) => ({ ...server, to: `/servers/${encodeURIComponent(server.name)}` }))} />` : null}
    ${topTools.length ? html`<h2>Tools <small class="dim">${found.toolsCalled > topTools.length ? `the ${topTools.length} of ${number(found.toolsCalled)} that failed most, or took longest` : "called in this hour"}</small></h2>
      <${Hours} label="Tools" go=${go} rows=${topTools.map((tool) => ({ ...tool, name: tool.tool, to: `/calls?tool=${encodeURIComponent(tool.tool)}` }))} />` : null}
  `;
}

const number = (value) => value.toLocaleString("en-US");
const duration = (value) => (value === null ? "–" : ms(value));
const share = ({ calls, failed }) => (calls ? failed / calls : 0);
const rate = (hour) => (hour.calls ? `${(share(hour) * 100).toFixed(share(hour) && share(hour) < 0.1 ? 1 : 0)} %` : "–");
const isWorse = ({ now, before }) => now.failed > 0 && share(now) > 2 * share(before);

function Card({ title, value, before, note, values, label, isBad }) {
  return html`<div class="card">
    <h3>${title}</h3>
    <p><span class=${isBad ? "figure bad" : "figure"}>${value}</span> ${before === undefined ? null : html`<span class="dim">before: ${before}</span>`}</p>
    <p class="dim">${note}</p>
    ${values ? html`<${Sparkline} values=${values} label=${`${label}: now ${values.at(-1)}`} />` : null}
  </div>`;
}

// The figures of some servers or tools, of both hours.
function Hours({ rows, label, go }) {
  return html`<div class="table" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr><th scope="col">Name</th><th scope="col" class="number">Calls</th><th scope="col" class="number">Before</th><th scope="col" class="number">Failed</th><th scope="col" class="number">Before</th>
      <th scope="col" class="number">p50</th><th scope="col" class="number">p95</th><th scope="col" class="number">Before</th><th scope="col" class="number">p99</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.name}>
      <td><${Link} to=${row.to} go=${go}>${row.name}<//> ${row.state ? html`<${Badge} text=${row.state} />` : null}</td>
      <td class="number">${number(row.now.calls)}</td><td class="number dim">${number(row.before.calls)}</td>
      <td class=${`number ${isWorse(row) ? "bad" : ""}`}>${isWorse(row) ? "▲ " : ""}${number(row.now.failed)} (${rate(row.now)})</td><td class="number dim">${rate(row.before)}</td>
      <td class="number">${duration(row.now.p50Ms)}</td><td class="number">${duration(row.now.p95Ms)}</td><td class="number dim">${duration(row.before.p95Ms)}</td><td class="number">${duration(row.now.p99Ms)}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

// Views of the console are opened without loading the page again; pages of parts are pages of their own.
const isView = (path) => /^\/(tools|servers|contracts|calls|callers|logs)([/?]|$)/.test(path);

function Item({ item, go }) {
  const open = (text) => (isView(item.path) ? html`<${Link} to=${item.path} go=${go}>${text}<//>` : html`<a href=${item.path}>${text}</a>`);
  return html`<li class=${item.isUrgent ? "bad-item" : ""}>
    <p><strong>${item.title}</strong>${item.since ? html` <span class="dim">since ${time(item.since)}</span>` : null}</p>
    ${item.text ? html`<p><${Message} text=${item.text} /></p>` : null}
    ${item.lines.length ? html`<${Code} label="Last output" text=${item.lines.join("\n")} />` : null}
    <p>${item.path ? open(item.action || "Open") : null}${item.command ? html` <span class="dim">or in a terminal: <code>${item.command}</code></span>` : null}</p>
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
