// What pages of lists share: tables of text, states as badges, times, details as JSON, looking again while somebody looks.

import { ask, element, guarded, visible } from "/kit/api.js";

// Read something: `get("/api/tasks", { status: "failed" })`. Values that are empty are left out.
export const get = (path, values = {}) =>
  guarded(() => ask("GET", `${path}?${new URLSearchParams(Object.entries(values).filter(([, value]) => value))}`));

// What follows `?` in the address of this page.
export const here = () => Object.fromEntries(new URLSearchParams(location.search));

const drawn = new Map(); // by section: the JSON that it shows

// Show a value in a section, unless it is the one that is shown: nothing is drawn again under a reader's eyes.
export function draw(section, value, make) {
  const text = JSON.stringify(value);
  if (drawn.get(section) === text) return;
  drawn.set(section, text);
  document.getElementById(section).replaceChildren(...make());
}

// A table of rows; a cell is text or an element. `empty` is said where there is no row.
export function table(label, columns, rows, empty) {
  if (!rows.length) return element("p", { class: "dim" }, empty);
  const head = element("tr", {}, ...columns.map((title) => element("th", { scope: "col" }, title)));
  const lines = rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell instanceof Node ? cell : visible(String(cell ?? ""))))));
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, made);
}

const KINDS = {
  good: ["done", "completed", "running", "executing", "working", "ok"],
  warn: ["queued", "waiting", "offered", "pending", "cancelled"],
  bad: ["dead", "blocked", "failed"],
};

export function badge(state) {
  const kind = Object.keys(KINDS).find((name) => KINDS[name].includes(state)) ?? "";
  return element("span", { class: `state ${kind}` }, state);
}

export function json(value, label) {
  return element("pre", { tabindex: "0", role: "region", "aria-label": label }, visible(JSON.stringify(value, null, 2)));
}

// A link that changes the address of this page, and nothing else.
export function link(text, values, go) {
  const made = element("a", { href: `?${new URLSearchParams(values)}` }, visible(text));
  made.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(values);
  });
  return made;
}

export const time = (iso) => (iso ? new Date(iso).toLocaleString([], { dateStyle: "short", timeStyle: "medium" }) : "–");

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  return whole < 3600 ? `${Math.floor(whole / 60)} min` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

// Run `look` at once, whenever the address changes, and every `ms` while the page is in sight. What fails is told in `.notice`, until
// it works again. `look` is given what follows `?`, and shows nothing once another look has begun (`isOver()`).
export function follow(look, ms) {
  const notice = document.querySelector(".notice");
  let latest = 0;
  const once = async () => {
    const mine = ++latest;
    try {
      await look(here(), () => mine !== latest);
      notice.hidden = true;
    } catch (error) {
      if (mine !== latest) return;
      notice.textContent = [error.message, error.hint].filter(Boolean).join(" ");
      notice.hidden = false;
    }
  };
  addEventListener("popstate", once);
  setInterval(() => document.hidden || once(), ms);
  once();
  return (values) => {
    const given = Object.entries(values).filter(([, value]) => value);
    history.pushState(null, "", given.length ? `?${new URLSearchParams(given)}` : location.pathname);
    once();
  };
}
