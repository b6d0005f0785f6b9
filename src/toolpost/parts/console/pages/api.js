// The console's API.

import { ask as send, events as stream, guarded, guardedEvents, sessionSecret, Refused, token, Unreachable, useSecret as exchange } from "/console/gateway.js";
import { forgetToken } from "/console/who.js";

export { Refused, token, Unreachable };
export const API = "/api/console";

const query = (values) => {
  const given = Object.entries(values ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

// Read something: `get("/calls", { tool: "time__*" })`.
export const get = (path, values, signal) => guarded(() => send("GET", `${API}${path}${query(values)}`, undefined, signal));

// Change something. Asks for the secret where one is needed.
export const post = (path, body = {}, signal) => guarded(() => send("POST", `${API}${path}`, body, signal));

// The same at any path of the gateway, for views of other parts: `read("/api/bus/tasks", { state: "dead" })`.
export const read = (path, values, signal) => guarded(() => send("GET", `${path}${query(values)}`, undefined, signal));
export const write = (path, body = {}, signal) => guarded(() => send("POST", path, body, signal));

// Call a tool, and yield what happens until its result. Aborting `signal` cancels the call.
export const callTool = (call, signal, parse) => guardedEvents("POST", `${API}/call`, call, signal, parse);

// Yield what happens, as JSON values, until `signal` is aborted. The connection is made again when it breaks; `onState` is told
// whether there is one.
export async function* follow(path, values, signal, onState = () => {}) {
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 8000)) {
    try {
      for await (const event of await guarded(async () => stream("GET", `${API}${path}${query(values)}`, undefined, signal))) {
        onState(true);
        wait = 500;
        yield event;
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error instanceof Refused && error.status === 401) await get("/session");
      else if (error instanceof Refused && error.status !== 429 && error.status !== 503) throw error;
    }
    onState(false);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

// Exchange a secret for the cookie.
export const useSecret = (secret) => exchange(secret, `${API}/session`);

// End what this browser may do, here and in the gateway, and forget the token, in other tabs too.
export async function leave(session) {
  if (session.hasSession) await post("/session/end");
  sessionSecret.forget();
  forgetToken();
  location.reload();
}
