// The frame: navigation, the router, the theme, the command palette. Each view is a module of its own, loaded when it is first opened;
// parts bring views as the console does.
//
// A module exports `View({ params, query, go, session })`: `params` is what the path has behind the view's own, `query` what follows
// `?`, and `go(path, { replace })` opens another one. Addresses can be shared: everything that a view shows is in them.

import { get, leave, token, useSecret } from "/console/api.js";
import { noteProblem, theme } from "/console/gateway.js";
import { endSignIn } from "/console/who.js";
import { Palette } from "/console/palette.js";
import { Empty, Failure, followLink, html, Link, render, Toasts, useEffect, useState } from "/console/parts.js";

const GROUPS = { observe: "Observe", tools: "Tools", products: "Products", administration: "Administration" };
const inGroups = (views) => Object.keys(GROUPS).flatMap((group) => views.filter((view) => view.group === group));
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

// The view of an address among those there are, and its parameters: `/servers/github` is the view `/servers` with ["github"].
function route(views) {
  const path = location.pathname.replace(/\/+$/, "") || "/";
  const view = views.find((each) => path === each.path || (each.path !== "/" && path.startsWith(`${each.path}/`))) ?? null;
  const rest = view ? path.slice(view.path.length) : path;
  return { view, params: rest.split("/").filter(Boolean).map(decode), query: Object.fromEntries(new URLSearchParams(location.search)) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function go(path, { replace = false } = {}) {
  const isElsewhere = path.split(/[?#]/)[0] !== location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
  if (isElsewhere && !replace) {
    scrollTo(0, 0);
    // A reader of the screen goes on with what is new, and not with the link that is gone.
    document.getElementById("main")?.focus({ preventScroll: true });
  }
}

const loaded = new Map(); // by its address: the promise of a view's module

function App() {
  const [views, setViews] = useState(null);
  const [, setMoves] = useState(0);
  const [shown, setShown] = useState(null); // { view, View } once its module is loaded
  const [session, setSession] = useState(null);
  const [failure, setFailure] = useState(null);
  const [isMenuOpen, setMenuOpen] = useState(false);
  const [isSearching, setSearching] = useState(false);

  const refresh = () => get("/session").then(setSession, setFailure);
  useEffect(() => {
    const moved = () => {
      setMoves((before) => before + 1);
      setMenuOpen(false);
      setSearching(false);
    };
    const onKey = (event) => {
      if (event.key.toLowerCase() === "k" && (isMac ? event.metaKey : event.ctrlKey) && !event.shiftKey && !event.altKey) {
        event.preventDefault();
        setSearching((before) => !before);
      } else focusSearch(event);
    };
    addEventListener("popstate", moved);
    addEventListener("keydown", onKey);
    addEventListener("session", refresh);
    begin().then(refresh, (error) => (setFailure(error), refresh()));
    get("/views").then((found) => setViews(inGroups(found.views)), setFailure);
    return () => {
      removeEventListener("popstate", moved);
      removeEventListener("keydown", onKey);
      removeEventListener("session", refresh);
    };
  }, []);
  const at = route(views ?? []);
  const { view } = at;
  useEffect(() => {
    if (!views) return;
    document.title = `${at.params[0] && view ? `${at.params[0]} · ` : ""}${view?.title ?? "Nothing here"} · Toolpost`;
  }, [view, at.params[0], views]);
  useEffect(() => {
    if (!view) return;
    if (!loaded.has(view.module)) loaded.set(view.module, import(view.module));
    loaded.get(view.module).then((module) => setShown({ view, View: module.View }), (error) => (loaded.delete(view.module), setFailure(error)));
  }, [view]);

  const isReady = session && view && shown?.view === view;
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="bar">
      <button type="button" class="menu" aria-expanded=${String(isMenuOpen)} aria-controls="nav" onClick=${() => setMenuOpen(!isMenuOpen)}>Menu</button>
      <button type="button" class="search-all" onClick=${() => setSearching(true)}><span>Search or jump to…</span> <kbd>${isMac ? "⌘K" : "Ctrl K"}</kbd></button>
      <span class="who">${session ? html`<strong>${session.person ?? session.caller}</strong>${session.person ? html`<span class="badge">${session.role}</span>` : session.mayChange ? "" : html`<span class="badge">reading</span>`} <span class="dim host">${location.host}</span>` : ""}</span>
    </header>
    <nav id="nav" class=${isMenuOpen ? "open" : ""} aria-label="Pages">
      <p class="brand"><${Link} to="/" go=${go}>Toolpost<//></p>
      ${Object.entries(GROUPS).map(([name, title]) => {
        const own = (views ?? []).filter((each) => each.group === name);
        return own.length ? html`<p class="group" id=${`group-${name}`}>${title}</p><ul aria-labelledby=${`group-${name}`}>
          ${own.map((each) => html`<li><a href=${each.path} aria-current=${each === view ? "page" : undefined} onClick=${(event) => followLink(event, each.path, go)}>${each.title}</a></li>`)}
        </ul>` : null;
      })}
      <div class="end">
        <${ThemeSwitch} />
        ${session?.hasSession || (session && token.get()) ? html`<button type="button" onClick=${() => leave(session).catch(setFailure)}>Log out</button>` : null}
      </div>
    </nav>
    <main id="main" tabindex="-1">
      ${failure ? html`<${Failure} error=${failure} onClose=${() => setFailure(null)} />` : null}
      ${isReady
        ? html`<${shown.View} key=${view.path} params=${at.params} query=${at.query} go=${go} session=${session} refresh=${refresh} />`
        : views && session && !view ? html`<${Nothing} views=${views} onSearch=${() => setSearching(true)} />` : html`<p class="dim" role="status">Loading…</p>`}
    </main>
    ${isSearching && views ? html`<${Palette} views=${views} session=${session} go=${go} onClose=${() => setSearching(false)} />` : null}
    <${Toasts} />
  `;
}

// What an address shows where nothing is: what there is.
function Nothing({ views, onSearch }) {
  return html`<h1>Nothing is at this address</h1>
    <${Empty} title=${decode(location.pathname)}>
      <p>It may be mistyped, or belong to a part that this gateway does not have. There is:</p>
      <ul>${views.map((each) => html`<li><${Link} to=${each.path} go=${go}>${each.title}<//></li>`)}</ul>
      <p><button type="button" onClick=${onSearch}>Search tools, servers and calls</button></p>
    <//>`;
}

function ThemeSwitch() {
  const [chosen, setChosen] = useState(theme.get());
  const choose = (event) => (theme.set(event.target.value), setChosen(event.target.value));
  return html`<select class="theme" aria-label="Theme" value=${chosen} onChange=${choose}>
    <option value="">System</option>
    <option value="light">Light</option>
    <option value="dark">Dark</option>
  </select>`;
}

// `/` puts the cursor into the search field of the view.
function focusSearch(event) {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = document.querySelector("main input[type=search]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

// The secret is in the part of the address that is sent to no server. It is removed from the address before it is used: nobody who
// copies the address copies it.
async function begin() {
  const problem = endSignIn();
  if (problem) {
    noteProblem(problem);
    throw new Error(problem);
  }
  const found = /^#secret=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  await useSecret(found[1]);
}

render(html`<${App} />`, document.getElementById("app"));
