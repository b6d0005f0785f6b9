// Lines of the log: time, level, whose it is, and what happened; a line opens to show all of its fields.

import { visible } from "/console/gateway.js";
import { Badge, Code, html, Json, Link, time, useState } from "/console/parts.js";

const KINDS = { warning: "warn", error: "bad", critical: "bad" };
const SHOWN = ["ts", "level", "logger", "event", "exception", "message", "line", "server", "plugin", "call", "trace", "caller", "tool", "thread"];

// `isOfCall`: all lines are of one call, whose ids need not be repeated.
export function Lines({ events, go, isOfCall = false, label = "Log" }) {
  return html`<ol class=${`plain lines ${isOfCall ? "of-call" : ""}`} aria-label=${label}>
    ${events.map((event) => html`<${Line} key=${keyOf(event)} event=${event} go=${go} isOfCall=${isOfCall} />`)}
  </ol>`;
}

// Two lines may be alike: then they need not be told apart.
const keyOf = (event) => `${event.ts} ${event.logger ?? ""} ${event.event} ${event.call ?? ""} ${event.line ?? ""}`;

function Line({ event, go, isOfCall }) {
  const [isOpen, setOpen] = useState(false);
  const owner = event.server ?? event.plugin;
  const isOutput = event.event === "output";
  const rest = Object.entries(event).filter(([name]) => !SHOWN.includes(name));
  return html`<li class=${KINDS[event.level] ?? ""}>
    <button type="button" class="line" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>
      <time datetime=${event.ts} title=${event.ts}>${moment(event.ts)}</time>
      <span class="level">${event.level === "info" || !event.level ? html`<span class="dim">${event.level ?? ""}</span>` : html`<${Badge} text=${event.level} kind=${KINDS[event.level] ?? ""} />`}</span>
      ${isOfCall ? null : html`<span class="owner dim">${visible(owner ?? "")}</span>`}
      <span class="what">${isOutput ? html`<code>${visible(event.line ?? "")}</code>` : html`<strong>${visible(event.event ?? "")}</strong>
        ${event.message ?? event.reason ? html` ${visible(String(event.message ?? event.reason))}` : null}
        ${rest.length ? html` <span class="dim">${visible(rest.filter(([name]) => name !== "reason" && name !== "issues").map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" "))}</span>` : null}`}</span>
    </button>
    ${isOpen ? html`<div class="opened">
      ${event.exception ? html`<${Code} label="Traceback" text=${event.exception} isLog />` : null}
      <${Json} label="Fields" value=${Object.fromEntries(Object.entries(event).filter(([name]) => name !== "exception"))} />
      <p class="row">
        ${event.call && !isOfCall ? html`<${Link} to=${`/calls/${encodeURIComponent(event.call)}`} go=${go}>Open the call<//>` : null}
        ${event.server ? html`<${Link} to=${`/servers/${encodeURIComponent(event.server)}`} go=${go}>Open the server<//>` : null}
        ${event.thread ? html`<${Link} to=${`/chat/${encodeURIComponent(event.thread)}`} go=${go}>Open the conversation<//>` : null}
      </p>
    </div>` : null}
  </li>`;
}

// The time of today alone; of another day, with its date.
function moment(iso) {
  const text = time(iso);
  const today = time(new Date().toISOString()).slice(0, 10);
  return text.startsWith(today) ? text.slice(11) : text;
}
