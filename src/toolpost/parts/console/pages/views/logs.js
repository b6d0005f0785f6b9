// Logs: what gateways have logged and servers have written, as it comes and as it was. All filters are in the address.

import { get } from "/console/api.js";
import { useEvents } from "/console/live.js";
import { address, Empty, Failure, html, time, useEffect, useRef, useState, useStyle } from "/console/parts.js";
import { Lines } from "/console/views/lines.js";

const PAGE = 200;
const KEPT = 2000; // lines that stay on the page while new ones come
const LEVELS = { "": "Any level", info: "Info and above", warning: "Warning and above", error: "Error" };
const FILTERS = ["server", "caller", "call", "level"];

export function View({ query, go, session }) {
  const isStyled = useStyle("/console/views/incident.css");
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, query[name] ?? ""]));
  const key = JSON.stringify(wanted);
  const [found, setFound] = useState({ key: null, events: [], next: null });
  const [error, setError] = useState(null);
  const [isPaused, setPaused] = useState(false);
  const [waiting, setWaiting] = useState([]); // lines that came while the page was paused, newest first
  const isLoading = useRef(false);

  useEffect(() => {
    const stop = new AbortController();
    setWaiting([]);
    get("/logs", { ...wanted, limit: PAGE }, stop.signal).then(
      (answer) => stop.signal.aborted || (setError(null), setFound({ key, ...answer })),
      (raised) => stop.signal.aborted || setError(raised),
    );
    return () => stop.abort();
  }, [key, session.mayChange]);

  const more = async () => {
    if (isLoading.current || !found.next || found.key !== key) return;
    isLoading.current = true;
    try {
      const answer = await get("/logs", { ...wanted, limit: PAGE, before: found.next });
      setFound((now) => (now.key === key ? { ...now, events: [...now.events, ...answer.events], next: answer.next, isCut: answer.isCut } : now));
    } catch (raised) {
      setError(raised);
    } finally {
      isLoading.current = false;
    }
  };
  const follow = { logs: 1, ...Object.fromEntries(Object.entries(wanted).filter(([, value]) => value).map(([name, value]) => [`log.${name}`, value])) };
  const isLive = useEvents(follow, (event) => {
    if (event.kind !== "logs") return;
    const added = [...event.events].reverse();
    if (isPausedNow.current) setWaiting((before) => [...added, ...before].slice(0, KEPT));
    else setFound((now) => ({ ...now, events: [...added, ...now.events].slice(0, Math.max(KEPT, now.events.length)) }));
  });
  const isPausedNow = useRef(false);
  isPausedNow.current = isPaused;
  const pause = () => {
    if (isPaused) {
      setFound((now) => ({ ...now, events: [...waiting, ...now.events] }));
      setWaiting([]);
    }
    setPaused(!isPaused);
  };

  const put = (changes) => go(address("/logs", { ...wanted, ...changes }), { replace: true });
  const field = (name, label, type = "text") => html`<input type=${type} aria-label=${label} placeholder=${label + (type === "search" ? " ( / )" : "")} value=${wanted[name]} onChange=${(event) => put({ [name]: event.target.value.trim() })} />`;
  const isFiltered = FILTERS.some((name) => wanted[name]);
  const isLoaded = found.key === key;
  const oldest = found.events.at(-1)?.ts;
  return !isStyled ? html`<h1>Logs</h1>` : html`
    <div class="row"><h1>Logs</h1>
      <span class="dim" role="status">${isPaused ? `paused${waiting.length ? `, ${waiting.length} new` : ""}` : isLive ? "live" : isLive === false ? "not connected" : ""}</span>
      ${found.mayRead && found.isKept ? html`<button type="button" class="small end" aria-pressed=${String(isPaused)} onClick=${pause}>${isPaused ? "Go on" : "Pause"}</button>` : null}
    </div>
    <div class="row filters" role="search">
      ${field("server", "Server or plugin", "search")}
      ${session.isAdmin ? field("caller", "Caller") : null}
      ${field("call", "Call id")}
      <select aria-label="Level" value=${wanted.level} onChange=${(event) => put({ level: event.target.value })}>
        ${Object.entries(LEVELS).map(([value, title]) => html`<option value=${value}>${title}</option>`)}
      </select>
    </div>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${isLoaded && !found.isKept ? html`<${Empty} title="No log is kept">
      <p>The store of this gateway is in memory, or <code>log.keep_mb</code> is 0. Set <code>log.keep_mb</code> and a <code>store.url</code> in toolpost.toml to keep one.</p>
    <//>` : isLoaded && !found.mayRead ? html`<${Empty} title="The log is for the person at the terminal">
      <p>Servers may write anything into it. <code>toolpost console</code> opens this page with the secret that shows it; <code>toolpost logs</code> shows it in a terminal.</p>
    <//>` : isLoaded && !found.events.length ? html`<${Empty} title=${isFiltered ? "No line matches" : "Nothing is logged yet"}>
      <p>${isFiltered ? "Take a filter away, or wait: lines appear here as they are written." : "Lines appear here as they are written."}</p>
    <//>` : null}
    <${Lines} events=${found.events} go=${go} />
    ${isLoaded && found.next ? html`<p class="row"><button type="button" onClick=${more}>Show lines before${oldest ? ` ${time(oldest)}` : ""}</button>
      ${found.isCut ? html`<span class="dim">Only a part of the log was searched.</span>` : null}</p>` : null}
  `;
}
