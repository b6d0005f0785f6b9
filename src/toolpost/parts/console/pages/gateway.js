// Requests to the gateway, which say who this browser is (`who.js`), and the dialogs that ask for it.

import { borrowToken, findProvider, sessionSecret, signIn, signInAgain, token } from "/console/who.js";

export { sessionSecret, token };

// The gateway answered, and refused. `hint` says what to do, `details` is what the error object has besides.
export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the gateway answered with ${status}`);
    this.status = status;
    this.code = error?.code;
    this.hint = error?.hint;
    this.details = error?.details ?? {};
    this.stderr = error?.stderr;
  }
}

// Nothing answers, or no longer.
export class Unreachable extends Error {
  hint = "Start it with `toolpost serve`; this page goes on by itself.";
}

const orUnreachable = (message) => (error) => {
  throw error.name === "AbortError" ? error : new Unreachable(message);
};

async function request(method, path, body, accept, signal) {
  // `X-Toolpost` cannot be sent by a page of another origin unasked: it proves that this page sent the request.
  const headers = { Accept: accept, "X-Toolpost": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (sessionSecret.get()) headers["X-Toolpost-Session-Secret"] = sessionSecret.get();
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const given = { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" };
  const answer = await fetch(path, given).catch(orUnreachable("The gateway cannot be reached."));
  if (!answer.ok) throw new Refused(answer.status, (await answer.json().catch(() => ({}))).error);
  return answer;
}

// Send a request and return its JSON. Raises Refused and Unreachable.
export async function ask(method, path, body, signal) {
  return (await request(method, path, body, "application/json", signal)).json();
}

// Yield the data of server-sent events, each parsed as JSON: by `parse`, for those who need its numbers as they are written.
export async function* events(method, path, body, signal, parse = JSON.parse) {
  const answer = await request(method, path, body, "text/event-stream", signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(orUnreachable("The connection to the gateway broke."));
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (data) yield parse(data);
    }
  }
}

let asking = null; // the promise of the dialog that is open: requests that are refused at once share it

// Run `work`, and ask for what the gateway refuses it without: a token or a person, the secret that lets a browser change things, a
// person once more.
export async function guarded(work) {
  for (;;) {
    try {
      return await withToken(work);
    } catch (error) {
      const needs = error instanceof Refused ? error.details.needs : null;
      if (needs === "secret" ? !(await askForSecret(error.details.at)) : needs === "sign-in" ? !(await askToSignInAgain(error)) : true) throw error;
    }
  }
}

let whyNot = ""; // why nobody was signed in, for the next dialog
export const noteProblem = (text) => (whyNot = text);

async function withToken(work) {
  for (;;) {
    const used = token.get();
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 401) throw error;
      // Another request may have asked for it while this one was on its way.
      if (token.get() !== used) continue;
      asking ??= askWhoItIs(used).finally(() => (asking = null));
      await asking;
    }
  }
}

async function askWhoItIs(used) {
  const isBorrowed = await borrowToken();
  if (isBorrowed) return;
  token.forget();
  const provider = await findProvider();
  const given = await prompt({
    title: provider ? "Sign in" : "This gateway asks for a token",
    text: `${provider ? "Or give a token: it" : "It"} is kept in the tabs of this gateway, and forgotten when you close the last of them.`,
    label: "Token",
    problem: whyNot || (used ? "That is not the token of any caller here." : ""),
    other: provider ? { label: `Sign in with ${provider}`, act: signIn } : null,
  });
  whyNot = "";
  if (given) token.set(given);
}

let signsInAgain = null;

// Have a person sign in once more; false if they close the dialog.
function askToSignInAgain(error) {
  signsInAgain ??= prompt({
    title: error.message,
    text: "It lasts longer than your session. The provider opens in another tab; this page stays as it is.",
    other: { label: "Sign in again", act: signInAgain },
  }).then((result) => result === "done").finally(() => (signsInAgain = null));
  return signsInAgain;
}

let asksForSecret = null;

// Ask for the secret until one is right; false if the dialog is closed without one. `at` is the path that takes it.
function askForSecret(at) {
  asksForSecret ??= (async () => {
    for (let problem = ""; ; ) {
      const given = await prompt({
        title: "Changes need the secret of this gateway",
        text: "Paste the address that toolpost serve printed, or that toolpost console --no-browser prints.",
        label: "Address or secret",
        problem,
      });
      if (!given) return false;
      try {
        await useSecret(given.split("#secret=").at(-1), at);
        return true;
      } catch (error) {
        problem = `${error.message} ${error.hint ?? ""}`;
      }
    }
  })().finally(() => (asksForSecret = null));
  return asksForSecret;
}

// Exchange a secret for the cookie. What this browser may do has changed then: pages that show it are told by the event.
export async function useSecret(secret, at) {
  sessionSecret.set((await withToken(() => ask("POST", at, { secret }))).sessionSecret);
  dispatchEvent(new Event("session"));
}

// Like `events`, for what changes something: what refuses the request is raised, and asked for, with its first event.
export async function* guardedEvents(...request) {
  const { happening, first } = await guarded(async () => {
    const happening = events(...request);
    return { happening, first: await happening.next() };
  });
  if (!first.done) yield first.value;
  yield* happening;
}

// Ask for one text in a dialog; returns "" if it is closed without one. Without a `label` there is no text. `other` is a button beside
// it, { label, act }: "done" is returned when `act` is done, and what it raises is shown.
export function prompt({ title, text, label, problem = "", kind = "password", other = null }) {
  const input = label ? element("input", { type: kind, autocomplete: "off", "aria-label": label, placeholder: label }) : "";
  const alert = element("p", { class: "problem", role: "alert" }, problem);
  const button = other ? element("button", { type: "button", class: "primary" }, other.label) : "";
  const dialog = element(
    "dialog",
    { class: "kit-prompt", "aria-label": title },
    element(
      "form",
      { method: "dialog" },
      element("h2", {}, title),
      ...(label ? [button, element("p", {}, text)] : [element("p", {}, text), button]),
      input,
      alert,
      label ? element("button", { type: "submit", ...(other ? {} : { class: "primary" }) }, "Go on") : "",
    ),
  );
  // The policy allows no form to be sent, and `method="dialog"` counts as one in some browsers.
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close("given");
  });
  if (other) {
    button.addEventListener("click", () => {
      alert.replaceChildren();
      other.act().then(() => dialog.close("done"), (error) => alert.replaceChildren(error.message));
    });
  }
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "given" ? input.value.trim() : dialog.returnValue === "done" ? "done" : "");
    });
  });
}

// Make an element. Children are elements or text, and text only ever becomes text.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Write characters that are not seen, or that turn the direction of what follows, as their code points: they could hide something.
export function visible(text) {
  return text.replace(/[^\P{C}\n\t]|\p{Z}/gu, (found) =>
    found === " " ? found : `\\u{${found.codePointAt(0).toString(16)}}`,
  );
}

// The theme: what the system prefers, unless one was chosen on some page.
export const theme = {
  get: () => localStorage.getItem("toolpost.theme") ?? "",
  set(value) {
    if (value) localStorage.setItem("toolpost.theme", value);
    else localStorage.removeItem("toolpost.theme");
    theme.apply();
  },
  apply() {
    document.documentElement.dataset.theme = theme.get();
  },
};
theme.apply();
