// Overview: what needs attention first, then how much is going on.

import { get } from "/console/api.js";
import { useEvents } from "/console/live.js";
import { Badge, Code, count, Empty, Failure, html, Link, Message, ms, Sparkline, useEffect, useLoaded, useState } from "/console/parts.js";

const AGAIN_MS = 10000; // figures change without events: minutes pass
const sum = (values) => values.reduce((total, value) => total + value, 0);

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
  const { total, servers, actionItems } = found;
  const calls = sum(total.calls);
  const isNew = !servers.length && !calls;
  return html`
    <h1>Overview</h1>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${isNew ? html`<${FirstSteps} go=${go} tools=${found.tools} isAdmin=${session.isAdmin} />` : null}
    <section aria-label="Needs attention">
      ${actionItems.length
        ? html`<h2>Needs attention</h2><ul class="attention">${actionItems.map((item) => html`<${Item} key=${item.title} item=${item} go=${go} />`)}</ul>`
        : isNew ? null : html`<p><${Badge} text="ok" /> Nothing needs attention.</p>`}
    </section>
    <h2>Last hour</h2>
    <div class="cards">
      <div class="card"><h3>Calls</h3><p class="figure">${calls}</p><p class="dim">${total.calls.at(-1)} in this minute${found.inFlight === null ? "" : ` · ${found.inFlight} in flight`}</p>
        <${Sparkline} values=${total.calls} label=${`Calls per minute: ${calls} in the last hour`} /></div>
      <div class="card"><h3>Failed</h3><p class="figure">${sum(total.failed)}</p><p class="dim"><${Link} to="/calls?outcome=error&age=1h" go=${go}>Show errors<//></p>
        <${Sparkline} values=${total.failed} label=${`Failed calls per minute: ${sum(total.failed)} in the last hour`} /></div>
      <div class="card"><h3>Mean duration</h3><p class="figure">${mean(total)}</p><p class="dim">of a call</p>
        <${Sparkline} values=${total.meanMs} label=${`Mean duration per minute: ${mean(total)}`} /></div>
      <div class="card"><h3>Tools</h3><p class="figure">${found.tools}</p><p class="dim"><${Link} to="/tools" go=${go}>Search and try them<//></p></div>
    </div>
    ${servers.length ? html`<h2>Servers</h2><ul class="cards plain">${servers.map((server) => html`<li class="card" key=${server.name}>
      <h3><${Link} to=${`/servers/${encodeURIComponent(server.name)}`} go=${go}>${server.name}<//> <${Badge} text=${server.state} /></h3>
      <${Activity} server=${server} />
    </li>`)}</ul>` : null}
  `;
}

function Activity({ server }) {
  const calls = sum(server.calls);
  if (!calls) return html`<p class="dim">No calls</p>`;
  return html`
    <p class="dim">${count(calls, "call")} · ${sum(server.failed)} failed · ${mean(server)}</p>
    <${Sparkline} values=${server.calls} label=${`Calls per minute of ${server.name}: ${calls} in the last hour`} />
    <${Sparkline} values=${server.meanMs} label=${`Mean duration of ${server.name}: ${mean(server)}`} />
  `;
}

function mean({ calls, meanMs }) {
  const all = sum(calls);
  return all ? ms(sum(meanMs.map((value, at) => value * calls[at])) / all) : "–";
}

// Views of the console are opened without loading the page again; pages of parts are pages of their own.
const isView = (path) => /^\/(tools|servers|contracts|calls)(\/|$)/.test(path);

function Item({ item, go }) {
  const name = html`<strong>${item.title}</strong>`;
  return html`<li class=${item.isUrgent ? "bad-item" : ""}>
    <p>${item.path ? (isView(item.path) ? html`<${Link} to=${item.path} go=${go}>${name}<//>` : html`<a href=${item.path}>${name}</a>`) : name}</p>
    ${item.text ? html`<p><${Message} text=${item.text} /></p>` : null}
    ${item.lines.length ? html`<${Code} label="Last output" text=${item.lines.join("\n")} />` : null}
    ${item.command ? html`<p class="dim">In a terminal: <code>${item.command}</code></p>` : null}
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
