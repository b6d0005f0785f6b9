// The bar on top of a part's page: all pages of this gateway, the theme, logging out. A page has `<header class="kit-bar" hidden>`, and
// calls `showBar()`. Which pages there are is asked for: a part that is absent has none, and no page needs another.

import { element, pages, theme, token } from "/kit/api.js";

const THEMES = { "": "System", light: "Light", dark: "Dark" };

export async function showBar() {
  const bar = document.querySelector(".kit-bar");
  const found = await pages();
  const links = found.map(({ title, path }) => {
    const isHere = path !== "/" && (location.pathname === path || location.pathname.startsWith(`${path}/`));
    return element("li", {}, element("a", { href: path, ...(isHere ? { "aria-current": "page" } : {}) }, title));
  });
  bar.replaceChildren(
    element("strong", {}, "Toolpost"),
    element("nav", { "aria-label": "Pages" }, element("ul", {}, ...links)),
    ...(token.get() ? [logout()] : []),
    themes(),
  );
  bar.hidden = false;
  // On a phone the links are one line that is scrolled.
  bar.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

function logout() {
  const button = element("button", { type: "button" }, "Log out");
  button.addEventListener("click", () => {
    token.forget();
    location.reload();
  });
  return button;
}

function themes() {
  const select = element("select", { "aria-label": "Theme" });
  for (const [value, title] of Object.entries(THEMES)) select.append(element("option", { value }, title));
  select.value = theme.get();
  select.addEventListener("change", () => theme.set(select.value));
  return select;
}
