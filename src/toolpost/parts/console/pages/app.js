// The frame: navigation, the router, the theme, what holds for the whole page. Each view is a module of its own, loaded when it is
// first opened.
//
// A view exports `View({ params, query, go, session })`: `params` is what the path has behind the view's name, `query` what follows
// `?`, and `go(path, { replace })` opens another one. Addresses can be shared: everything that a view shows is in them.

import { get, leave, token, useSecret } from "/console/api.js";
import { Failure, html, render, useEffect, useState } from "/console/parts.js";
import { pages as listPages, theme } from "/kit/api.js";

const VIEWS = [
  { name: "overview", title: "Overview", path: "/" },
  { name: "tools", title: "Tools", path: "/tools" },
  { name: "servers", title: "Servers", path: "/servers" },
  { name: "contracts", title: "Contracts", path: "/contracts" },
  { name: "calls", title: "Calls", path: "/calls" },
  { name: "callers", title: "Callers", path: "/callers" },
];

// The view of an address, and its parameters: `/servers/github` is the view `servers` with ["github"].
function route() {
  const [first, ...params] = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  const view = VIEWS.find((each) => each.path === `/${first ?? ""}`) ?? VIEWS[0];
  return { view, params, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

export function go(path, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}

const loaded = new Map(); // by name: the promise of a view's module

function App() {
  const [at, setAt] = useState(route);
  const [shown, setShown] = useState(null); // { view, View } once its module is loaded
  const [session, setSession] = useState(null);
  const [failure, setFailure] = useState(null);
  const [pages, setPages] = useState([]);
  const [isMenuOpen, setMenuOpen] = useState(false);

  const refresh = () => get("/session").then(setSession, setFailure);
  useEffect(() => {
    const moved = () => {
      setAt(route());
      setMenuOpen(false);
    };
    addEventListener("popstate", moved);
    addEventListener("keydown", onKey);
    addEventListener("session", refresh);
    begin().then(refresh, (error) => (setFailure(error), refresh()));
    listPages().then((found) => setPages(found.filter((page) => !VIEWS.some((view) => view.path === page.path))), () => {});
    return () => {
      removeEventListener("popstate", moved);
      removeEventListener("keydown", onKey);
      removeEventListener("session", refresh);
    };
  }, []);
  useEffect(() => {
    const { view } = at;
    document.title = `${at.params[0] ? `${at.params[0]} · ` : ""}${view.title} · Toolpost`;
    if (!loaded.has(view.name)) loaded.set(view.name, import(`/console/views/${view.name}.js`));
    loaded.get(view.name).then((module) => setShown({ view, View: module.View }), setFailure);
  }, [at]);

  const link = ({ title, path }, current) => html`<li>
    <a href=${path} aria-current=${current ? "page" : undefined} onClick=${(event) => follow(event, path)}>${title}</a>
  </li>`;
  const isReady = session && shown?.view === at.view;
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="bar">
      <button type="button" class="menu" aria-expanded=${String(isMenuOpen)} aria-controls="nav" onClick=${() => setMenuOpen(!isMenuOpen)}>
        Menu
      </button>
      <strong>Toolpost</strong>
      <span class="who">${session ? `${session.caller}${session.mayChange ? "" : " · reading"} · ${location.host}` : ""}</span>
      ${session?.hasSession || (session && token.get()) ? html`<button type="button" onClick=${() => leave(session).catch(setFailure)}>Log out</button>` : null}
      <${ThemeSwitch} />
    </header>
    <nav id="nav" class=${isMenuOpen ? "open" : ""} aria-label="Pages">
      <ul>${VIEWS.map((view) => link(view, view === at.view))}</ul>
      ${pages.length ? html`<ul aria-label="Pages of parts">${pages.map((page) => html`<li><a href=${page.path}>${page.title}</a></li>`)}</ul>` : null}
    </nav>
    <main id="main" tabindex="-1">
      ${failure ? html`<${Failure} error=${failure} onClose=${() => setFailure(null)} />` : null}
      ${isReady
        ? html`<${shown.View} key=${at.view.name} params=${at.params} query=${at.query} go=${go} session=${session} refresh=${refresh} />`
        : html`<p class="dim" role="status">Loading…</p>`}
    </main>
  `;
}

// A click with a modifier opens a tab, as links do.
function follow(event, path) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  go(path);
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
function onKey(event) {
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
  const found = /^#secret=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  await useSecret(found[1]);
}

render(html`<${App} />`, document.getElementById("app"));
