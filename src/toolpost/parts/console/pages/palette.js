// The command palette (Ctrl-K): views, servers, callers and tools by their names, calls by their ids.

import { get } from "/console/api.js";
import { html, useEffect, useMemo, useRef, useState } from "/console/parts.js";
import { matches } from "/console/table.js";
import { visible } from "/console/gateway.js";

const WAIT_MS = 150;
const MOST = 8; // of a kind
const CALL = /^[\w.]+-[0-9a-f]+$/; // as the gateway makes ids

// Tools whose names have the words, then those that an agent would be given for them.
async function findTools(words, signal) {
  const [named, found] = await Promise.all([get("/tools", { named: words.replaceAll(" ", "_"), limit: MOST }, signal), get("/tools/search", { query: words }, signal)]);
  const tools = new Map([...named.tools, ...found.tools].map((tool) => [tool.name, tool]));
  return [...tools.values()].slice(0, MOST).map(({ name, title, description }) => ({ kind: "Tool", title: name, note: title || description, to: `/tools/${encodeURIComponent(name)}` }));
}

export function Palette({ views, session, go, onClose }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const [known, setKnown] = useState([]); // servers and callers
  const [tools, setTools] = useState([]);
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
    const cancel = (event) => (event.preventDefault(), onClose());
    const { current } = dialog;
    current.addEventListener("cancel", cancel);
    const quiet = () => null; // what cannot be searched is left out
    get("/servers").then(({ servers }) => setKnown((before) => [...before, ...servers.map(({ name, state }) => ({ kind: "Server", title: name, note: state, to: `/servers/${encodeURIComponent(name)}` }))]), quiet);
    if (session?.isAdmin) {
      get("/callers").then(({ callers }) => setKnown((before) => [...before, ...callers.map((name) => ({ kind: "Caller", title: name, note: "its calls", to: `/calls?caller=${encodeURIComponent(name)}` }))]), quiet);
    }
    return () => current.close();
  }, []);
  const words = text.trim();
  useEffect(() => {
    setChosen(0);
    if (!words) return setTools([]);
    const stop = new AbortController();
    const timer = setTimeout(() => findTools(words, stop.signal).then(setTools, () => {}), WAIT_MS);
    return () => (clearTimeout(timer), stop.abort());
  }, [words]);
  const items = useMemo(() => {
    const named = [...views.map(({ title, path }) => ({ kind: "View", title, note: path, to: path })), ...known];
    const fit = (kind) => named.filter((each) => each.kind === kind && matches(words, each.title)).slice(0, kind === "View" && !words ? views.length : MOST);
    return [
      ...(CALL.test(words) ? [{ kind: "Call", title: words, note: "open this call", to: `/calls/${encodeURIComponent(words)}` }] : []),
      ...fit("View"),
      ...(words ? [...fit("Server"), ...fit("Caller"), ...tools, { kind: "Search", title: words, note: "find tools as an agent would", to: `/tools?q=${encodeURIComponent(words)}` }] : []),
    ];
  }, [words, known, tools, views]);
  const open = (item) => {
    dialog.current.close(); // while it is open, nothing else takes the focus
    onClose();
    go(item.to);
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = (chosen + step + items.length) % items.length;
      setChosen(next);
      document.getElementById(`found-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && items[chosen]) {
      event.preventDefault();
      open(items[chosen]);
    }
  };
  return html`<dialog ref=${dialog} class="palette" aria-label="Search" onClick=${(event) => event.target === dialog.current && onClose()}>
    <input type="text" role="combobox" aria-label="Search views, servers, tools, callers and calls" aria-expanded="true" aria-controls="found" aria-autocomplete="list"
      aria-activedescendant=${items.length ? `found-${chosen}` : undefined} placeholder="Servers, tools, callers, views, or the id of a call" autocomplete="off" spellcheck=${false} autofocus
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKey} />
    <ul id="found" role="listbox" aria-label="Found">
      ${items.map((item, at) => html`<li id=${`found-${at}`} role="option" aria-selected=${String(at === chosen)} onMouseMove=${() => setChosen(at)} onClick=${() => open(item)}>
        <span class="kind">${item.kind}</span> <span class="title">${visible(item.title)}</span> <span class="dim note">${visible(item.note ?? "")}</span>
      </li>`)}
    </ul>
    <p class="dim keys"><kbd>↑</kbd> <kbd>↓</kbd> choose · <kbd>Enter</kbd> open · <kbd>Esc</kbd> close</p>
  </dialog>`;
}
