// Calls: the audit, as it grows and as it was. All filters are in the address.

import { get, post } from "/console/api.js";
import { number } from "/console/format.js";
import { useEvents } from "/console/live.js";
import { Badge, Empty, Failure, html, Link, ms, Table, Time, useEffect, useRef, useState } from "/console/parts.js";
import { Call } from "/console/views/call.js";

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
