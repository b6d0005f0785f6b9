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
import { ago, number, time as exact } from "/console/format.js";
import { visible } from "/console/gateway.js";
import { html, useEffect, useMemo, useRef, useState } from "/console/vendor/htm-preact.js";

export { bytes, count, ms, number, time } from "/console/format.js";
export { Table } from "/console/table.js";

// A link of the console: opened without loading the page again.
export function Link({ to, go, children, ...rest }) {
  return html`<a href=${to} onClick=${(event) => followLink(event, to, go)} ...${rest}>${children}</a>`;
}

// A click with a modifier opens a tab, as links do.
export function followLink(event, to, go) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  go(to);
}

// The address of a path with what follows `?`; values that are empty are left out.
export function address(path, query) {
  const given = Object.entries(query).filter(([, value]) => value);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

const KINDS = {
  good: ["ready", "busy", "ok", "healthy", "compatible", "sound", "done", "completed", "approved", "running", "executing", "working"],
  // Not "stopped": most servers are until they are called.
  warn: ["starting", "draining", "review", "cancelled", "suspicious", "changed", "refused", "waiting", "offered", "pending", "expired", "open"],
  bad: ["failed", "suspended", "error", "breaking", "lost", "quarantined", "broken", "dead", "blocked", "denied"],
};

// A short word with a color: the word alone says it too, for those who do not see the color.
export function Badge({ text, kind }) {
  const found = kind ?? Object.keys(KINDS).find((name) => KINDS[name].includes(text)) ?? "";
  return html`<span class=${`badge ${found}`}>${text}</span>`;
}

// How much has failed: nothing is quiet, anything has a color and a sign.
export function Failed({ value }) {
  return value ? html`<span class="bad failing"><span aria-hidden="true">✕ </span>${number(value)}</span>` : html`<span class="dim">0</span>`;
}

const TICK_MS = 10_000;

// A moment as seen from now, its exact time on hover.
export function Time({ at }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || tick((before) => before + 1), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return at ? html`<time datetime=${at} title=${`${exact(at)} · ${new Date(at).toISOString()}`}>${ago(at)}</time>` : html`<span class="dim">–</span>`;
}

const LINES = 24; // of a text, shown before it is unfolded

// Text as it is, with invisible characters made visible. Of a long one, the beginning (or the end: `isLog`) is shown first.
export function Code({ text, label, limit = 20000, isLog = false, isPlain = false }) {
  const [isOpen, setOpen] = useState(false);
  const whole = typeof text === "string" ? text : JSON.stringify(text, null, 2) ?? "";
  const cut = whole.length > limit;
  const lines = (cut ? whole.slice(0, limit) : whole).split("\n");
  const isFolded = !isOpen && lines.length > LINES + 4;
  const shown = (isFolded ? (isLog ? lines.slice(-LINES) : lines.slice(0, LINES)) : lines).join("\n");
  const more = isFolded ? html`<button type="button" class="fold" onClick=${() => setOpen(true)}>Show all ${number(lines.length)} lines</button>` : null;
  return html`<div class="code">
    <${Copy} text=${whole} />
    ${isLog ? more : null}
    <pre role="region" aria-label=${label ?? "Code"}>${isPlain ? shown : visible(shown)}${cut && !isFolded ? `\n… ${number(whole.length - limit)} more characters` : ""}</pre>
    ${isLog ? null : more}
  </div>`;
}

// A button that copies a text.
export function Copy({ text }) {
  const copy = async (event) => {
    const { parentElement } = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    } catch {
      // Off localhost without TLS, a browser has no clipboard for pages.
      getSelection().selectAllChildren(parentElement.querySelector("pre") ?? parentElement);
      toast("Selected: press Ctrl+C.");
    }
  };
  return html`<button type="button" class="copy" onClick=${copy}>Copy</button>`;
}

// A JSON value as a tree, whose branches open and close; small ones are open.
export function Json({ value, label, depth = 2 }) {
  const text = useMemo(() => JSON.stringify(value, null, 2) ?? "", [value]);
  return html`<div class="code"><${Copy} text=${text} /><div class="json-tree" role="region" aria-label=${label ?? "JSON"}><${Branch} value=${value} depth=${depth} /></div></div>`;
}

const MANY = 200; // entries of one branch that are shown before it is unfolded

function Branch({ name, value, depth }) {
  const [isAll, setAll] = useState(false);
  const [isOpen, setOpen] = useState(depth > 0);
  const key = name === undefined ? null : html`<span class="key">${visible(String(name))}</span>: `;
  if (value === null || typeof value !== "object") {
    const kind = value === null ? "null" : typeof value;
    return html`<div>${key}<span class=${`json-${kind}`}>${kind === "string" ? visible(JSON.stringify(value)) : String(value)}</span></div>`;
  }
  const entries = Object.entries(value);
  const [begin, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return html`<div>${key}${begin}${end}</div>`;
  const shown = isAll ? entries : entries.slice(0, MANY);
  return html`<details open=${isOpen} onToggle=${(event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}>
    <summary>${key}${begin}<span class="dim">${isOpen ? "" : ` ${number(entries.length)} ${end}`}</span></summary>
    ${isOpen ? html`<div class="branch">
      ${shown.map(([each, one]) => html`<${Branch} key=${each} name=${Array.isArray(value) ? undefined : each} value=${one} depth=${depth - 1} />`)}
      ${shown.length < entries.length ? html`<button type="button" class="fold" onClick=${() => setAll(true)}>Show all ${number(entries.length)}</button>` : null}
    </div>${end}` : null}
  </details>`;
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
      ${onClose ? html` <button type="button" class="small" onClick=${onClose}>Close</button>` : null}
    </p>
    ${error.stderr ? html`<${Code} text=${error.stderr} label="Last output" isLog />` : null}
  </div>`;
}

// A dialog that is open while it is rendered; `onClose` is called by Escape too.
export function Dialog({ title, onClose, children }) {
  const node = useRef(null);
  useEffect(() => {
    node.current.showModal();
    const cancel = (event) => (event.preventDefault(), onClose());
    node.current.addEventListener("cancel", cancel);
    // Closed before it is gone: the element that had the focus before gets it back.
    return () => node.current?.close();
  }, []);
  return html`<dialog ref=${node} class="wide" aria-label=${title}>
    <h2>${title}</h2>
    ${children}
  </dialog>`;
}

// Say something for a few seconds, at the edge of the window.
export function toast(text) {
  dispatchEvent(new CustomEvent("toast", { detail: text }));
}

const TOAST_MS = 4000;

// Where that is said: once, in the frame.
export function Toasts() {
  const [text, setText] = useState("");
  useEffect(() => {
    let timer = null;
    const say = ({ detail }) => {
      setText(detail);
      clearTimeout(timer);
      timer = setTimeout(() => setText(""), TOAST_MS);
    };
    addEventListener("toast", say);
    return () => (removeEventListener("toast", say), clearTimeout(timer));
  }, []);
  return html`<div class="toasts" aria-live="polite">${text ? html`<p>${text}</p>` : null}</div>`;
}

// A line over equal intervals, such as calls per minute, with its largest value; `from` and `to` name the ends of its axis.
export function Sparkline({ values, label, format = number, from, to, kind = "" }) {
  const top = Math.max(...values, 0);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(25 - (value / (top || 1)) * 23).toFixed(1)}`);
  return html`<figure class=${`spark ${kind}`}>
    <svg viewBox="0 0 100 26" preserveAspectRatio="none" role="img" aria-label=${label}>
      <line x1="0" y1="25.5" x2="100" y2="25.5" />
      ${top ? html`<polygon points=${`0,25 ${points.join(" ")} 100,25`} />` : null}
      <polyline points=${points.join(" ")} />
    </svg>
    <span class="top" aria-hidden="true">${top ? format(top) : ""}</span>
    ${from ? html`<figcaption aria-hidden="true"><span>${from}</span><span>${to ?? "now"}</span></figcaption>` : null}
  </figure>`;
}

// Two texts side by side, line by line: { kind: "same" | "gone" | "new" | "changed", old, new }.
export function Diff({ lines, label }) {
  return html`<div class="diff" role="region" aria-label=${label}><table><tbody>
    ${lines.map((line) => html`<tr class=${line.kind}>
      <td><span class="mark" aria-hidden="true">${line.old === null ? "" : line.kind === "same" ? " " : "−"}</span>${visible(line.old ?? "")}</td>
      <td><span class="mark" aria-hidden="true">${line.new === null ? "" : line.kind === "same" ? " " : "+"}</span>${visible(line.new ?? "")}</td>
    </tr>`)}
  </tbody></table></div>`;
}

// A value that is loaded: [value, error, reload]. Loaded again when one of `inputs` changes, and every `everyMs` while the page is seen.
export function useLoaded(load, inputs, everyMs = 0) {
  const [state, setState] = useState({ value: null, error: null });
  const [count, setCount] = useState(0);
  const again = () => setCount((before) => before + 1);
  useEffect(() => {
    const stop = new AbortController();
    let timer = null;
    const later = () => {
      if (everyMs && !stop.signal.aborted) timer = setTimeout(() => (document.hidden ? later() : again()), everyMs);
    };
    load(stop.signal).then(
      (value) => stop.signal.aborted || setState((before) => (isSame(before, value) ? before : { value, error: null })),
      (error) => stop.signal.aborted || setState((before) => ({ ...before, error })),
    ).finally(later);
    return () => (stop.abort(), clearTimeout(timer));
  }, [...inputs, count]);
  return [state.value, state.error, again];
}

// Whether nothing has changed: then nothing is drawn again under a reader's eyes.
const isSame = (before, value) => before.error === null && JSON.stringify(before.value) === JSON.stringify(value);

const styles = new Map(); // by address: the promise of a style sheet that a view brings

// Load the style sheet of a view; true once it is there.
export function useStyle(href) {
  const [isReady, setReady] = useState(false);
  useEffect(() => {
    if (!styles.has(href)) {
      styles.set(href, new Promise((resolve) => {
        const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href, onload: resolve, onerror: resolve });
        document.head.append(link);
      }));
    }
    styles.get(href).then(() => setReady(true));
  }, [href]);
  return isReady;
}
