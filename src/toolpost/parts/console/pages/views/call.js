// One call: why it failed first, then where its time went, what the log has about it, and its place in the record.

import { get } from "/console/api.js";
import { parse, stringify } from "/console/exact.js";
import { ask } from "/console/gateway.js";
import { address, Badge, Code, Failure, html, Link, Message, ms, number, Time, time, toast, useLoaded, useStyle } from "/console/parts.js";
import { Lines } from "/console/views/lines.js";

export function Call({ id, go }) {
  const isStyled = useStyle("/console/views/incident.css");
  const [call, error] = useLoaded((signal) => get("/call", { id }, signal), [id]);
  // Where there is no decision trail, or it has not recorded this call, there is no proof.
  const [proof] = useLoaded(() => ask("GET", `/api/trail/prove?call=${encodeURIComponent(id)}`).catch(() => null), [id]);
  const back = html`<p class="crumbs"><${Link} to="/calls" go=${go}>Calls<//></p>`;
  if (error) return html`${back}<h1>Call</h1><${Failure} error=${error} />`;
  if (!call || !isStyled) return html`${back}<h1>Call</h1>`;
  const tool = `/tools/${encodeURIComponent(call.tool)}`;
  const source = call.isServer ? html`<${Link} to=${`/servers/${encodeURIComponent(call.source)}`} go=${go}>${call.source}<//>` : call.source;
  return html`
    ${back}
    <div class="row"><h1><${Link} to=${tool} go=${go}>${call.tool}<//></h1><${Badge} text=${call.outcome} />
      <span class="row end">
        <${Link} class="button" to=${address(tool, { arguments: call.content?.arguments })} go=${go}>Run again<//>
        <button type="button" onClick=${() => copy(command(call))}>Copy as command</button>
      </span>
    </div>
    <p class="dim meta">
      <span><${Time} at=${call.at_utc} /> by <${Link} to=${address("/calls", { caller: call.caller })} go=${go}>${call.caller}<//></span>
      <span>${call.isServer ? "server" : "plugin"} ${source}</span>
      <span>${ms(call.duration_ms)}</span>
      <${Link} to=${address("/calls", call.code ? { tool: call.tool, code: call.code } : { tool: call.tool })} go=${go}>${call.code ? "Calls that failed alike" : "All calls of this tool"}<//>
    </p>
    ${["error", "refused", "lost"].includes(call.outcome) ? html`<${Reason} call=${call} />` : null}
    <h2>Timeline</h2>
    ${call.steps
      ? html`<${Steps} call=${call} />`
      : html`<p class="dim">How long each step took is not known: it is kept for the latest 2,000 calls of a running gateway.</p>`}
    ${call.trace.length > 1 || !call.steps ? html`<h2>Calls of this trace</h2><${Trace} calls=${call.trace} id=${id} go=${go} />` : null}
    ${call.lines?.length ? html`<h2>Log <small class="beside"><${Link} to=${address("/logs", { call: id })} go=${go}>open in Logs<//></small></h2><${Lines} events=${call.lines} go=${go} isOfCall />` : null}
    ${call.content ? html`<h2>Kept for review</h2>
      <h3>Arguments</h3><${Code} label="Arguments" text=${pretty(call.content.arguments)} />
      <h3>Result</h3><${Code} label="Result" text=${call.content.result === null ? "the call did not end" : pretty(call.content.result)} />` : null}
    <h2>Record</h2>
    <dl class="facts">
      <dt>Arrived</dt><dd>${time(call.at_utc)} <span class="dim">${call.at_utc}</span></dd>
      <dt>Gateway</dt><dd><${Gateway} gateway=${call.gateway} /></dd>
      ${call.thread ? html`<dt>Conversation</dt><dd><${Link} to=${`/chat/${encodeURIComponent(call.thread)}`} go=${go}>${call.thread}<//></dd>` : null}
      <dt>Call id</dt><dd><code>${call.call_id}</code></dd>
      <dt>Trace id</dt><dd><code>${call.trace_id}</code></dd>
      <dt>Contents</dt><dd class="dim">${call.content ? "kept, see above" : html`Arguments and result are recorded as digests. <code>audit.sample</code> in toolpost.toml keeps some of them for review.`}</dd>
      ${proof ? html`<dt>Trail</dt><dd><button type="button" class="small" onClick=${() => save(`proof-${id}.json`, proof)}>Download a proof</button>
        <span class="dim"> that this call is in the decision trail; <code>toolpost trail verify --file proof-${id}.json</code> checks it without this gateway</span></dd>` : null}
    </dl>
    <details><summary>Digests and place in the chain</summary>
      <dl class="facts">
        <dt>Record</dt><dd>no. ${number(call.seq)} of the chain</dd>
        <dt>Its hash</dt><dd><code>${call.hash}</code></dd>
        <dt>Hash before</dt><dd><code>${call.previous}</code></dd>
        <dt>Contract</dt><dd><code>${call.contract || "none"}</code>, version ${call.schema_version}${call.tooling_version ? `, tooling ${call.tooling_version}` : ""}</dd>
        <dt>Arguments</dt><dd><code>${call.arguments}</code></dd>
        <dt>Result</dt><dd><code>${call.result ?? "none"}</code></dd>
      </dl>
    </details>
  `;
}

// Why a call failed, as the log of its gateway has it.
function Reason({ call }) {
  const { error } = call;
  if (!error) return html`<div class="failure"><p><strong>${call.code ?? "The call failed."}</strong></p><p class="why">${missing(call)}</p></div>`;
  return html`<section class="failure" aria-label="Error">
    <p><strong>${error.message ? html`<${Message} text=${error.message} />` : call.code ?? "It failed"}</strong></p>
    ${call.code ? html`<p class="why"><code>${call.code}</code></p>` : null}
    ${error.issues.length ? html`<ul class="issues">${error.issues.map((issue) => html`<li>
      <code>${issue.path || "(the whole value)"}</code> ${error.message?.includes(issue.message) && error.issues.length === 1 ? "" : html`<${Message} text=${issue.message} />`}${issue.expected === undefined ? "" : html` <span class="why">expected: <code>${text(issue.expected)}</code></span>`}
    </li>`)}</ul>` : null}
  </section>`;
}

function missing({ logIsKept, gateway, outcome }) {
  if (outcome === "lost") return "Its gateway ended while the tool ran: what became of it is not known.";
  if (gateway && !gateway.isHere) return `Its message is in the log of the gateway on ${gateway.host}, process ${gateway.pid}.`;
  if (!logIsKept) return "This gateway keeps no log (log.keep_mb, or a store in memory), so that its message is not known.";
  return "Its message has expired: the log does not have it (any more). log.keep_mb in toolpost.toml is how much is kept.";
}

function Gateway({ gateway }) {
  if (!gateway) return html`<span class="dim">not known: it ran before gateways were noted, or without a console</span>`;
  return html`${gateway.host}, process ${gateway.pid} ${gateway.isThis ? html`<span class="dim">(this one)</span>` : html`<span class="dim">started <${Time} at=${new Date(gateway.startedAt * 1000).toISOString()} /></span>`}`;
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// With the numbers as they were written.
function pretty(raw) {
  try {
    return stringify(parse(raw), 2);
  } catch {
    return raw;
  }
}

const quote = (value) => `'${value.replaceAll("'", `'\\''`)}'`;
const command = (call) => `toolpost call ${quote(call.tool)} ${quote(call.content?.arguments ?? "{}")} --url ${quote(location.origin)}`;

async function copy(value) {
  try {
    await navigator.clipboard.writeText(value);
    toast("Copied.");
  } catch {
    // Off localhost without TLS, a browser has no clipboard for pages.
    prompt("Copy this command:", value);
  }
}

function save(name, value) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const STEPS = {
  admission: ["Before the queue", "middleware and approvals, if there are any"],
  queue: ["Queue", "until the tool was free"],
  validation: ["Validation", "arguments against the schema"],
  server: ["Server", "the request and its answer"],
  function: ["Function", "the tool at work"],
  audit: ["Audit", "until the record was written; the answer waits for it"],
};

// The steps of one call, one after the other.
function Steps({ call }) {
  const end = Math.max(...call.steps.map((step) => step.startMs + step.durationMs), 0.001);
  return html`<ol class="timeline plain" aria-label="Steps of this call">
    ${call.steps.map(({ step, startMs, durationMs }) => html`<li key=${step}>
      <span class="step"><strong>${STEPS[step][0]}</strong> <small class="dim">${step === "server" ? `${call.source}: ` : ""}${STEPS[step][1]}</small></span>
      <${Bar} start=${startMs / end} length=${durationMs / end} isBad=${false} />
      <span class="number">${durationMs < 1 ? `${Math.round(durationMs * 1000)} µs` : ms(durationMs)}</span>
    </li>`)}
  </ol>`;
}

const Bar = ({ start, length, isBad }) => {
  const from = Math.min(99, start * 100);
  const style = { marginLeft: `${from}%`, width: `${Math.max(1, Math.min(100 - from, length * 100))}%` };
  return html`<span class="track" aria-hidden="true"><span class=${`bar-of ${isBad ? "bad-bar" : ""}`} style=${style}></span></span>`;
};

// The calls of one trace, each from its arrival to its end.
function Trace({ calls, id, go }) {
  const starts = calls.map((call) => Date.parse(call.at_utc));
  const first = Math.min(...starts);
  const last = Math.max(...calls.map((call, at) => starts[at] + call.duration_ms), first + 1);
  const scale = 1 / (last - first);
  return html`<ol class="timeline plain" aria-label="Calls of this trace">
    ${calls.map((call, at) => html`<li key=${call.seq} class=${call.call_id === id ? "chosen" : ""}>
      <${Link} to=${`/calls/${encodeURIComponent(call.call_id)}`} go=${go}>${call.tool}<//>
      <${Bar} start=${(starts[at] - first) * scale} length=${call.duration_ms * scale} isBad=${call.outcome !== "ok"} />
      <span class="number">${ms(call.duration_ms)}</span>
    </li>`)}
  </ol>`;
}
