// The tools that the caller sees: all of them by name, or what an agent would be given for a query, with scores and reasons.

import { get } from "/console/api.js";
import { address, Badge, count, Empty, Failure, html, Link, number, Table, useEffect, useLoaded, useRef, useState } from "/console/parts.js";
import { Tool } from "/console/views/tool.js";
import { visible } from "/console/gateway.js";

const PAGE = 500;
const WAIT_MS = 200;

export function View(props) {
  const [name] = props.params;
  return name ? html`<${Tool} key=${name} name=${name} ...${props} />` : html`<${Tools} ...${props} />`;
}

function Tools({ query, go, session }) {
  const [text, setText] = useState(query.q ?? "");
  const timer = useRef(null);
  useEffect(() => setText(query.q ?? ""), [query.q]);
  const change = (changed, isTyped) => go(address("/tools", { ...query, ...changed }), { replace: isTyped });
  const type = (event) => {
    const value = event.target.value;
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ q: value.trim() }, true), WAIT_MS);
  };
  const [callers] = useLoaded(async (signal) => (session.isAdmin ? (await get("/callers", {}, signal)).callers : []), [session.isAdmin]);
  return html`
    <h1>Tools</h1>
    <div class="row filters" role="search">
      <input type="search" aria-label="Search as an agent would" placeholder="Search as an agent would ( / )" value=${text} onInput=${type} />
      ${query.q && callers?.length > 1
        ? html`<select aria-label="Search as" value=${query.caller ?? ""} onChange=${(event) => change({ caller: event.target.value })}>
            <option value="">as ${session.caller}</option>
            ${callers.filter((name) => name !== session.caller).map((name) => html`<option value=${name}>as ${visible(name)}</option>`)}
          </select>`
        : null}
    </div>
    ${query.q ? html`<${Found} query=${query} go=${go} />` : html`<${All} server=${query.server ?? ""} sort=${query.sort ?? ""} go=${go} change=${change} />`}
  `;
}

const NAME = (go) => ({
  name: "main",
  title: "Tool",
  width: "17rem",
  sort: (tool) => tool.name,
  cell: (tool) => html`<${Link} to=${`/tools/${encodeURIComponent(tool.name)}`} go=${go}>${visible(tool.name)}<//>`,
});
const DESCRIPTION = {
  name: "grow",
  title: "Description",
  cell: (tool) => html`<span title=${tool.description}>${visible(tool.title ? `${tool.title}: ${tool.description}` : tool.description)}</span>`,
};
const HINTS = { name: "side", title: "Hints", width: "11rem", cell: (tool) => html`<${Hints} annotations=${tool.annotations} />` };
// What a definition costs, in `tools/list` and in a search alike.
const TOKENS = { name: "number", title: "Tokens", width: "5.5rem", sort: (tool) => tool.tokens, cell: (tool) => number(tool.tokens) };

// All tools, page by page as they are scrolled to.
function All({ server, sort, go, change }) {
  const [state, setState] = useState({ tools: [], total: null });
  const [error, setError] = useState(null);
  const loading = useRef(null);
  const load = async (from, before) => {
    const key = `${server} ${from}`;
    if (loading.current === key) return;
    loading.current = key;
    try {
      const page = await get("/tools", { server, offset: from, limit: PAGE });
      if (loading.current !== key) return;
      // The tools may have changed between two pages: then what is shown is loaded from the beginning.
      const isChanged = from > 0 && page.etag !== before.etag;
      setState(isChanged ? { tools: [], total: null } : { ...page, tools: from ? [...before.tools, ...page.tools] : page.tools });
      setError(null);
    } catch (failure) {
      setError(failure);
    }
    if (loading.current === key) loading.current = null;
  };
  useEffect(() => {
    if (state.total === null) load(0, state);
  }, [state.total]);
  useEffect(() => {
    if (state.total !== null) load(0, state);
  }, [server]);
  const more = () => state.tools.length < state.total && load(state.tools.length, state);
  useEffect(() => {
    // An order is one of all tools, not of those that were scrolled to.
    if (sort && state.total !== null) more();
  }, [sort, state.tools.length]);
  if (error) return html`<${Failure} error=${error} />`;
  if (state.total === null) return html`<p class="dim" role="status">Loading…</p>`;
  if (!state.all) {
    return html`<${Empty} title="There are no tools yet">
      <p>Add a server with <code>toolpost add NAME -- COMMAND</code>, or on the page <${Link} to="/servers" go=${go}>Servers<//>; its tools are listed here when it has started.</p>
    <//>`;
  }
  return html`
    <div class="row">
      <label class="inline"><span>Server</span>
        <select value=${server} onChange=${(event) => change({ server: event.target.value })}>
          <option value="">all</option>
          ${state.servers.map((name) => html`<option value=${name}>${visible(name)}</option>`)}
        </select>
      </label>
      <span class="dim" role="status">${count(state.total, "tool")} · all ${number(state.all)} cost a model about ${number(state.tokens)} tokens</span>
    </div>
    <${Table} label="Tools" columns=${[NAME(go), DESCRIPTION, HINTS, TOKENS]} rows=${state.tools} keyOf=${(tool) => tool.name} onNear=${more} sort=${sort} onSort=${(sort) => change({ sort }, true)} />
  `;
}

// What an agent gets for a query.
function Found({ query, go }) {
  const [found, error] = useLoaded((signal) => get("/tools/search", { query: query.q, caller: query.caller }, signal), [query.q, query.caller]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!found) return html`<p class="dim" role="status">Searching…</p>`;
  const columns = [
    { name: "number", title: "Score", sort: (tool) => tool.score, cell: (tool) => tool.score.toFixed(2) },
    NAME(go),
    { name: "why wide", title: "Because of", cell: (tool) => html`<span title=${reasons(tool.why)}>${visible(reasons(tool.why)) || html`<span class="dim">${tool.score ? "its meaning" : "nothing: all tools are few enough"}</span>`}</span>` },
    DESCRIPTION,
    TOKENS,
  ];
  const tokens = found.tools.reduce((sum, tool) => sum + tool.tokens, 0);
  return html`
    <p class="dim" role="status">
      An agent gets these ${found.tools.length} of ${number(found.total)} tools, about ${number(tokens)} tokens${found.isReranked ? ", in the order of the reranker" : ""}.
      ${" "}${found.isWeak ? html`<${Badge} text="weak match" kind="warn" /> Perhaps none of them fits: name the action, its object and the service.` : `Confidence ${Math.round(found.confidence * 100)} %.`}
    </p>
    <${Table} label="Tools that fit" columns=${columns} rows=${found.tools} keyOf=${(tool) => tool.name} />
    ${found.more.length
      ? html`<details><summary>${found.more.length} more are named without their definitions</summary>
          <p>${found.more.map((name) => html`<${Link} to=${`/tools/${encodeURIComponent(name)}`} go=${go}>${visible(name)}<//> `)}</p>
        </details>`
      : null}
  `;
}

const reasons = (why) => why.map((each) => `${each.field}: ${each.words.join(", ")}`).join(" · ");

// The annotations that say what a call does.
export function Hints({ annotations }) {
  const found = [];
  if (annotations.readOnlyHint === true) found.push(html`<${Badge} text="read-only" kind="good" /> `);
  else if (annotations.destructiveHint === true) found.push(html`<${Badge} text="destructive" kind="bad" /> `);
  if (annotations.idempotentHint === true && annotations.readOnlyHint !== true) found.push(html`<${Badge} text="idempotent" /> `);
  if (annotations.openWorldHint === true) found.push(html`<${Badge} text="open world" /> `);
  return found;
}
