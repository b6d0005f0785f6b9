// Calls: the audit, as it grows and as it was. All filters are in the address.

import { get, post } from "/console/api.js";
import { number } from "/console/format.js";
import { useEvents } from "/console/live.js";
import { ask } from "/console/gateway.js";
import { Badge, Code, Empty, Failure, html, Link, ms, Table, Time, time, useEffect, useLoaded, useRef, useState } from "/console/parts.js";

const PAGE = 200;
const AGES = { "": "Any time", "15m": "Last 15 minutes", "1h": "Last hour", "24h": "Last day", "7d": "Last week" };
const MINUTES = { "15m": 15, "1h": 60, "24h": 1440, "7d": 10080 };

export function View({ params, query, go, session }) {
  return params[0]
    ? html`<${Call} key=${params[0]} id=${params[0]} go=${go} />`
    : html`<${List} query=${query} go=${go} session=${session} />`;
}

const since = (age) => (MINUTES[age] ? new Date(Date.now() - MINUTES[age] * 60000).toISOString() : undefined);

// A pattern of tool names as the audit reads it: `*` is any text, `?` any character.
const glob = (pattern) =>
  new RegExp(`^${pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, "[^]*").replace(/\?/g, "[^]")}$`, "u");

function matches(call, query) {
  return (
    (!query.tool || glob(query.tool).test(call.tool)) &&
    (!query.caller || call.caller === query.caller) &&
    (!query.code || call.code === query.code) &&
    (!query.outcome || call.outcome === query.outcome)
  );
}

function List({ query, go, session }) {
  const { tool = "", caller = "", code = "", outcome = "", age = "" } = query;
  const key = JSON.stringify([tool, caller, code, outcome, age]);
  const [found, setFound] = useState({ key: null, calls: [], next: null, codes: [], outcomes: [] });
  const [error, setError] = useState(null);
  const isLoading = useRef(false);
  const filters = { tool, caller, code, outcome, since: since(age), limit: PAGE };

  useEffect(() => {
    const stop = new AbortController();
    get("/calls", filters, stop.signal).then(
      (answer) => stop.signal.aborted || (setError(null), setFound({ key, ...answer })),
      (raised) => stop.signal.aborted || setError(raised),
    );
    return () => stop.abort();
  }, [key]);
  const more = async () => {
    if (isLoading.current || found.next === null || found.key !== key) return;
    isLoading.current = true;
    try {
      const answer = await get("/calls", { ...filters, before: found.next });
      setFound((now) => (now.key === key ? { ...now, calls: [...now.calls, ...answer.calls], next: answer.next } : now));
    } catch (raised) {
      setError(raised);
    } finally {
      isLoading.current = false;
    }
  };
  const isLive = useEvents({ calls: 1, tool }, (event) => {
    if (event.kind !== "calls") return;
    setFound((now) => {
      const newest = now.calls[0]?.seq ?? 0;
      const added = event.calls.filter((call) => call.seq > newest && matches(call, query)).reverse();
      return added.length && now.key === key ? { ...now, calls: [...added, ...now.calls] } : now;
    });
  });

  const put = (changes) => {
    const next = Object.entries({ tool, caller, code, outcome, age, ...changes }).filter(([, value]) => value);
    go(`/calls${next.length ? `?${new URLSearchParams(next)}` : ""}`, { replace: true });
  };
  const choice = (name, value, label, options) => html`<select aria-label=${label} value=${value} onChange=${(event) => put({ [name]: event.target.value })}>
    ${options.map(([key, text]) => html`<option value=${key}>${text}</option>`)}
  </select>`;
  const isFiltered = tool || caller || code || outcome || age;
  return html`
    <div class="row"><h1>Calls</h1><span class="dim" role="status">${isLive ? "live" : isLive === false ? "not connected" : ""}</span>
      ${session.isAdmin ? html`<span class="end"><${Verify} /></span>` : null}
    </div>
    <div class="row filters" role="search">
      <input type="search" aria-label="Tool" placeholder="Tool ( / )" title="A name or a pattern, such as time__*" value=${tool} onChange=${(event) => put({ tool: event.target.value.trim() })} />
      ${session.isAdmin ? html`<input aria-label="Caller" placeholder="Caller" value=${caller} onChange=${(event) => put({ caller: event.target.value.trim() })} />` : null}
      ${choice("outcome", outcome, "Outcome", [["", "Any outcome"], ...found.outcomes.map((one) => [one, one])])}
      ${choice("code", code, "Code", [["", "Any code"], ...found.codes.map((one) => [one, one])])}
      ${choice("age", age, "Time", Object.entries(AGES))}
    </div>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${found.key === key && !found.calls.length
      ? html`<${Empty} title=${isFiltered ? "No call matches" : "No calls yet"}>
          <p>${isFiltered ? "Take a filter away, or wait: calls appear here as they end." : "Connect a client (toolpost install), or try a tool on the page Tools. Calls appear here as they end."}</p>
        <//>`
      : html`<${Table} label="Calls" rows=${found.calls} keyOf=${(call) => call.seq} onNear=${more} columns=${columns(go)} />`}
  `;
}

const columns = (go) => [
  { name: "time", title: "Time", width: "7rem", cell: (call) => html`<${Time} at=${call.at_utc} />` },
  { name: "main grow", title: "Tool", cell: (call) => html`<${Link} to=${`/calls/${encodeURIComponent(call.call_id)}`} go=${go}>${call.tool}<//>` },
  { name: "side", title: "Outcome", width: "7rem", cell: (call) => html`<${Badge} text=${call.outcome} />` },
  { name: "error-code", title: "Code", width: "12rem", cell: (call) => (call.code ? html`<span class="bad">${call.code}</span>` : "") },
  { name: "number", title: "Duration", width: "6.5rem", cell: (call) => ms(call.duration_ms) },
  { name: "caller", title: "Caller", width: "12rem", cell: (call) => html`<span title=${call.caller}>${call.caller}</span>` },
  { name: "number wide", title: "No.", width: "6rem", cell: (call) => number(call.seq) },
];

// The button that verifies the whole chain, and what came of it.
function Verify() {
  const [state, setState] = useState({});
  const verify = async () => {
    setState({ isBusy: true });
    setState(await post("/calls/verify").then((verdict) => ({ verdict }), (error) => ({ error })));
  };
  const { verdict, error } = state;
  return html`<span role="status">
    ${error ? html`<span class="bad">${error.message}</span> ` : null}
    ${verdict ? html`${verdict.isEmpty
      ? "Nothing is recorded yet "
      : verdict.isIntact
        ? html`<${Badge} text="sound" /> all ${verdict.checked} records are intact `
        : html`<${Badge} text="broken" /> <strong class="bad">record ${verdict.broken_seq}: ${verdict.reason}</strong>; compare with a backup `}` : null}
  </span>
  <button type="button" disabled=${Boolean(state.isBusy)} onClick=${verify}>${state.isBusy ? "Verifying…" : "Verify the chain"}</button>`;
}

function Call({ id, go }) {
  const [call, error] = useLoaded((signal) => get("/call", { id }, signal), [id]);
  // Where there is no decision trail, or it has not recorded this call, there is no proof.
  const [proof] = useLoaded(() => ask("GET", `/api/trail/prove?call=${encodeURIComponent(id)}`).catch(() => null), [id]);
  if (error) return html`<p><${Link} to="/calls" go=${go}>All calls<//></p><h1>Call</h1><${Failure} error=${error} />`;
  if (!call) return html`<h1>Call</h1>`;
  return html`
    <p><${Link} to="/calls" go=${go}>All calls<//></p>
    <div class="row"><h1>${call.tool}</h1><${Badge} text=${call.outcome} />${call.code ? html`<code>${call.code}</code>` : null}</div>
    <p><${Link} to=${`/tools/${encodeURIComponent(call.tool)}`} go=${go}>Open the tool<//></p>
    <h2>Timeline</h2>
    ${call.steps
      ? html`<${Steps} call=${call} />`
      : html`<p class="dim">How long each step took is not known: it is kept for the latest 2,000 calls of a running gateway. The record has when the call arrived, and its duration.</p>`}
    ${call.trace.length > 1 || !call.steps ? html`<h2>Calls of this trace</h2><${Trace} calls=${call.trace} id=${id} go=${go} />` : null}
    <dl class="facts">
      <dt>Arrived</dt><dd>${time(call.at_utc)} <span class="dim">${call.at_utc}</span></dd>
      <dt>Duration</dt><dd>${ms(call.duration_ms)}, until its record began to be written</dd>
      <dt>Caller</dt><dd>${call.caller}</dd>
      <dt>Server or plugin</dt><dd>${call.source}</dd>
      <dt>Trace id</dt><dd><code>${call.trace_id}</code></dd>
      <dt>Call id</dt><dd><code>${call.call_id}</code></dd>
      <dt>Contract</dt><dd><code>${call.contract || "none"}</code>, version ${call.schema_version}${call.tooling_version ? `, tooling ${call.tooling_version}` : ""}</dd>
      <dt>Arguments</dt><dd><code>${call.arguments}</code></dd>
      <dt>Result</dt><dd><code>${call.result ?? "none"}</code></dd>
      <dt>Record</dt><dd>no. ${call.seq} of the chain, <code>${call.hash}</code></dd>
      <dt>Record before</dt><dd><code>${call.previous}</code></dd>
    </dl>
    ${proof ? html`<p><button type="button" onClick=${() => save(`proof-${id}.json`, proof)}>Download a proof</button>
      <span class="dim"> that this call is in the decision trail: <code>toolpost trail verify --file proof-${id}.json</code> checks it, without this gateway.</span></p>` : null}
    ${call.content
      ? html`<h2>Kept for review</h2><${Code} label="Arguments" text=${call.content.arguments} /><${Code} label="Result" text=${call.content.result ?? "the call did not end"} />`
      : html`<p class="dim">Arguments and results are recorded as digests. <code>audit.sample</code> in toolpost.toml keeps some of them for review.</p>`}
  `;
}

function save(name, value) {
  const address = URL.createObjectURL(new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
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
