// Who this browser is to the gateway: the token of this tab, or a person who is signed in. A second tab needs no second login.
//
// A token is in the storage of one tab, and gone with it. A tab without one asks the others, over a channel that pages of this
// origin alone can use: those of other ports of this host cannot. A person's session is a cookie, which all tabs have, and a
// secret, which they share.

const KEY = "toolpost.token";
const ASIDE = "toolpost.aside"; // set in a tab that was logged out: it takes no token from the others
const ANSWER_MS = 400; // how long the other tabs are waited for

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set(value) {
    sessionStorage.setItem(KEY, value);
    sessionStorage.removeItem(ASIDE);
  },
  forget: () => sessionStorage.removeItem(KEY),
};

// What the console sends with its cookies. Other ports of this host get the cookies too, but cannot read this.
export const sessionSecret = {
  get: () => localStorage.getItem("toolpost.sessionSecret"),
  set: (value) => localStorage.setItem("toolpost.sessionSecret", value),
  forget: () => localStorage.removeItem("toolpost.sessionSecret"),
};

const tabs = new BroadcastChannel("toolpost");
const refused = new Set(); // tokens that the gateway did not take from this tab: another tab may still have one of them

tabs.addEventListener("message", ({ data }) => {
  if (data.wants === "token" && token.get()) tabs.postMessage({ token: token.get() });
  if (data.leaves && data.leaves === token.get()) {
    token.forget();
    sessionStorage.setItem(ASIDE, "1");
    location.reload();
  }
});

// Take the token of another tab; false if there is none, or it is one that was refused.
export function borrowToken() {
  if (token.get()) refused.add(token.get());
  if (sessionStorage.getItem(ASIDE)) return Promise.resolve(false);
  return heard(({ token: given }) => {
    if (!given || refused.has(given)) return false;
    token.set(given);
    return true;
  }, { wants: "token" }, ANSWER_MS);
}

// Resolve with true when `take` has taken a message of another tab, with false after `wait` if there is one.
function heard(take, question, wait) {
  return new Promise((resolve) => {
    const end = (result) => {
      tabs.removeEventListener("message", hear);
      clearTimeout(timer);
      resolve(result);
    };
    const hear = ({ data }) => take(data) && end(true);
    const timer = wait ? setTimeout(end, wait, false) : null;
    tabs.addEventListener("message", hear);
    if (question) tabs.postMessage(question);
  });
}

// Forget the token here and in the tabs that have the same one.
export function forgetToken() {
  if (token.get()) tabs.postMessage({ leaves: token.get() });
  token.forget();
  sessionStorage.setItem(ASIDE, "1");
}

const PATH = "/api/console/sign-in";
const DONE = "#signed-in";

// The name of the provider at which people sign in; null without one.
export const findProvider = () =>
  fetch(PATH, { cache: "no-store" }).then(async (answer) => (answer.ok ? (await answer.json()).provider : null), () => null);

// Begin to sign in; returns the address at the provider. The secret of the session is made here, and the gateway is told its hash: a session that
// another page began is of no use in this browser.
async function begin(to, fresh) {
  if (!sessionSecret.get()) sessionSecret.set(hex(crypto.getRandomValues(new Uint8Array(24))));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(sessionSecret.get()));
  const body = JSON.stringify({ sessionSecretHash: hex(new Uint8Array(digest)), to, fresh });
  const headers = { "X-Toolpost": "1", "Content-Type": "application/json" };
  const answer = await fetch(PATH, { method: "POST", headers, body });
  const found = await answer.json();
  if (!answer.ok) throw new Error([found.error.message, found.error.hint].filter(Boolean).join(" "));
  return found.location;
}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

// Sign in, and come back to this address. Never resolves: the page is left.
export async function signIn() {
  const here = location.pathname + location.search;
  location.assign(await begin(here.length > 1000 ? "/" : here, false));
  return new Promise(() => {});
}

// Sign in once more, in another tab, so that what is on this page stays; resolves when that is done. To be called by a click.
export async function signInAgain() {
  const tab = open("about:blank");
  const isDone = heard((data) => data.signedIn, null, 0);
  try {
    const target = await begin(`/${DONE}`, true);
    if (tab) tab.location = target;
    else location.assign(target);
  } catch (error) {
    tab?.close();
    throw error;
  }
  await isDone;
}

// What a sign-in has left in the address when it leads back here: nothing, or why nobody was signed in.
export function endSignIn() {
  const found = /^#(?:signed-in|sign-in=([a-z]+))$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", location.pathname + location.search);
  if (found[1]) return PROBLEMS[found[1]] ?? PROBLEMS.over;
  tabs.postMessage({ signedIn: true });
  close(); // works in a tab that a page opened
  return "";
}

const PROBLEMS = {
  over: "This sign-in is over, or was begun in another browser. Try it again.",
  refused: "The provider did not sign you in. The log of the gateway has the reason.",
  role: "You are known to the provider, but none of your groups has a role here. An administrator can give it one in [console.roles].",
  fresh: "The provider did not ask you again, or does not say when you signed in (auth_time).",
};
