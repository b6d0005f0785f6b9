// The gateway, asked: every request shows the token, if there is one; a turn is heard event by event.

const KEY = "toolpost.token";

export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the gateway answered with ${status}`);
    this.status = status;
    this.hint = error?.hint;
  }
}

// Nobody is there, or not any more.
export class Unreachable extends Error {
  hint = "What was said is kept: reload the page once the gateway runs again.";
}

const orUnreachable = (message) => (error) => {
  throw error.name === "AbortError" ? error : new Unreachable(message);
};

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

async function request(method, path, body, accept, signal) {
  const headers = { Accept: accept };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const given = { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" };
  const answer = await fetch(path, given).catch(orUnreachable("The gateway cannot be reached."));
  if (!answer.ok) throw new Refused(answer.status, (await answer.json().catch(() => ({}))).error);
  return answer;
}

export async function ask(method, path, body) {
  return (await request(method, path, body, "application/json")).json();
}

export async function* events(method, path, body, signal) {
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
      if (data) yield JSON.parse(data);
    }
  }
}
