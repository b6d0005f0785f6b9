// Small components that all views use. Text of servers, tools and callers is only ever passed as a child, and so stays text.

export {
  html,
  render,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "/console/vendor/htm-preact.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "/console/vendor/htm-preact.js";
import { visible } from "/kit/api.js";

// A link of the console: opened without loading the page again.
export function Link({ to, go, children, ...rest }) {
  const click = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${to} onClick=${click} ...${rest}>${children}</a>`;
}

const KINDS = {
  good: ["ready", "busy", "ok", "healthy", "compatible", "sound"],
  // Not "stopped": most servers are until they are called.
  warn: ["starting", "draining", "review", "cancelled", "suspicious", "changed", "refused"],
  bad: ["failed", "suspended", "error", "breaking", "lost", "quarantined", "broken"],
};

// A short word with a color: the word alone says it too, for those who do not see the color.
export function Badge({ text, kind }) {
  const found = kind ?? Object.keys(KINDS).find((name) => KINDS[name].includes(text)) ?? "";
  return html`<span class=${`badge ${found}`}>${text}</span>`;
}

// Text as it is, with invisible characters made visible.
export function Code({ text, label, limit = 20000 }) {
  const shown = typeof text === "string" ? text : JSON.stringify(text, null, 2) ?? "";
  const cut = shown.length > limit;
  return html`<pre class="code" tabindex="0" role="region" aria-label=${label ?? "Code"}>${visible(cut ? shown.slice(0, limit) : shown)}${cut ? `\n… ${shown.length - limit} more characters` : ""}</pre>`;
}

// A message of the gateway, which puts names and commands in backticks, with these as code.
export function Message({ text }) {
  return visible(String(text)).split(/`([^`\n]+)`/).map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
}

// A hint that follows a message: the gateway writes it as a clause.
export const Hint = ({ text }) => (text ? html`<${Message} text=${text[0].toUpperCase() + text.slice(1)} />` : null);

// What stands where there is nothing: what it means, and what to do next.
export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}

// An error: the fact, then what to do.
export function Failure({ error, onClose }) {
  return html`<div class="failure" role="alert">
    <p>
      <strong><${Message} text=${error.message ?? error} /></strong> <${Hint} text=${error.hint} />
      ${onClose ? html` <button type="button" onClick=${onClose}>Close</button>` : null}
    </p>
    ${error.stderr ? html`<${Code} text=${error.stderr} label="Last output" />` : null}
  </div>`;
}

// A dialog that is open while it is rendered; `onClose` is called by Escape too.
export function Dialog({ title, onClose, children }) {
  const node = useRef(null);
  useEffect(() => {
    node.current.showModal();
    const cancel = (event) => (event.preventDefault(), onClose());
    node.current.addEventListener("cancel", cancel);
    return () => node.current?.removeEventListener("cancel", cancel);
  }, []);
  return html`<dialog ref=${node} class="wide" aria-label=${title}>
    <h2>${title}</h2>
    ${children}
  </dialog>`;
}

// A line over equal intervals, such as calls per minute.
export function Sparkline({ values, label }) {
  const top = Math.max(1, ...values);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(24 - (value / top) * 22).toFixed(1)}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 100 26" preserveAspectRatio="none" role="img" aria-label=${label}>
    <polyline points=${points} />
  </svg>`;
}

const ROW = 34; // pixels: as in style.css

// A table of which only the rows in sight exist, so that 100,000 of them scroll as 20 do.
//
// `columns` are { name, title, cell(row) }, `rows` any array; `onNear` is called when its end comes into sight, to load more.
export function Table({ columns, rows, keyOf, label, onNear, rowClass = () => "", height = "70vh" }) {
  const box = useRef(null);
  const [range, setRange] = useState({ first: 0, last: 40 });
  const look = () => {
    const { scrollTop, clientHeight } = box.current;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - 10);
    const last = Math.ceil((scrollTop + clientHeight) / ROW) + 10;
    setRange((before) => (before.first === first && before.last === last ? before : { first, last }));
    if (onNear && last >= rows.length) onNear();
  };
  useLayoutEffect(look, [rows.length]);
  const shown = rows.slice(range.first, range.last);
  const gap = (count) => (count > 0 ? html`<tr aria-hidden="true" class="gap" style=${{ height: `${count * ROW}px` }}><td colspan=${columns.length}></td></tr>` : null);
  return html`<div class="table" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label=${label} style=${{ maxHeight: height }}>
    <table aria-rowcount=${rows.length + 1}>
      <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.name}>${column.title}</th>`)}</tr></thead>
      <tbody>
        ${gap(range.first)}
        ${shown.map((row, at) => html`<tr key=${keyOf(row)} aria-rowindex=${range.first + at + 2} class=${rowClass(row)}>
          ${columns.map((column) => html`<td class=${column.name}>${column.cell(row)}</td>`)}
        </tr>`)}
        ${gap(rows.length - Math.min(rows.length, range.last))}
      </tbody>
    </table>
  </div>`;
}

// Two texts side by side, line by line: { kind: "same" | "gone" | "new" | "changed", old, new }.
export function Diff({ lines, label }) {
  return html`<div class="diff" tabindex="0" role="region" aria-label=${label}><table><tbody>
    ${lines.map((line) => html`<tr class=${line.kind}>
      <td><span class="mark" aria-hidden="true">${line.old === null ? "" : line.kind === "same" ? " " : "−"}</span>${visible(line.old ?? "")}</td>
      <td><span class="mark" aria-hidden="true">${line.new === null ? "" : line.kind === "same" ? " " : "+"}</span>${visible(line.new ?? "")}</td>
    </tr>`)}
  </tbody></table></div>`;
}

// A value that is loaded: [value, error, reload]. Loaded again when one of `inputs` changes.
export function useLoaded(load, inputs) {
  const [state, setState] = useState({ value: null, error: null });
  const [count, setCount] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    load(stop.signal).then(
      (value) => stop.signal.aborted || setState({ value, error: null }),
      (error) => stop.signal.aborted || setState((before) => ({ ...before, error })),
    );
    return () => stop.abort();
  }, [...inputs, count]);
  return [state.value, state.error, () => setCount((before) => before + 1)];
}

export const time = (iso) => (iso ? new Date(iso).toLocaleString([], { dateStyle: "short", timeStyle: "medium" }) : "–");
export const count = (number, noun) => `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;
export const bytes = (size) => (size === null || size === undefined ? "–" : `${(size / 1024 / 1024).toFixed(1)} MiB`);
export const ms = (value) => (value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(1)} ms`);
