// Conversations: their list, the one that is open, and what is said in it.
//
// The messages are elements of the page itself, not of the view's component: a long answer grows by pieces, many in each frame.

import { ask, events, guarded, guardedEvents, html, Unreachable, useEffect, useRef, useStyle } from "/console/kit.js";
import { Answer, noteOf } from "/views/chat/answer.js";
import { element } from "/views/chat/markdown.js";

const path = (thread) => `/api/threads/${encodeURIComponent(thread)}`;
const LOOK_MS = 3000;

export function View(props) {
  return useStyle("/views/chat/chat.css") ? html`<${Chat} ...${props} />` : html`<h1>Chat</h1>`;
}

function Chat({ params, go }) {
  const root = useRef(null);
  const chat = useRef(null);
  const thread = params[0] ?? null;
  useEffect(() => {
    // Addresses used to have the conversation behind `#`.
    const old = decodeURIComponent(location.hash.slice(1));
    if (old) go(`/chat/${encodeURIComponent(old)}`, { replace: true });
    chat.current = openChat(root.current, go, old || thread);
    return () => chat.current.close();
  }, []);
  useEffect(() => chat.current.show(thread), [thread]);
  return html`<div class="chat" ref=${root}>
    <aside class="side" aria-label="Conversations">
      <div class="row"><h1>Chat</h1><button id="new" type="button" class="end">New chat</button></div>
      <p id="no-threads" hidden>No conversations yet. They are listed here, and kept.</p>
      <ol id="threads"></ol>
    </aside>
    <div class="talk">
      <header id="talk-head"><h2 id="title">New chat</h2><select id="agent" aria-label="Who answers"></select></header>
      <section id="messages" aria-live="polite" aria-label="Messages"></section>
      <p id="notice" role="alert" hidden></p>
      <form id="say">
        <textarea id="text" rows="1" placeholder="Say something" aria-label="Message"></textarea>
        <button id="send" type="submit">Send</button>
        <button id="cancel" type="button" hidden>Cancel</button>
      </form>
    </div>
  </div>`;
}

// What to do about an error. Of a gateway that is away: nothing that was said is lost.
const hintOf = (error) =>
  error instanceof Unreachable ? "What was said is kept: reload the page once the gateway runs again." : error.hint;

const EXAMPLE = `# Claude Code, as it is logged in on the gateway's machine
[agents.claude]
kind = "claude"

# or any program that speaks the Agent Client Protocol
[agents.gemini]
command = "gemini"
args = ["--experimental-acp"]`;

// Bring the elements below `root` to life, with a conversation or the beginning of one; returns how to show another, and how to end.
function openChat(root, go, first) {
  const $ = (id) => root.querySelector(`#${id}`);
  let open = first; // the id of the open conversation, null for one that has not begun
  let hearing = null; // stops listening to it
  let turn = null; // the turn that is shown as it comes, null before it has begun
  let seen = 0; // the number of its last message that is shown
  let agents = [];
  let listed = 0; // how often the conversations were asked for
  let isClosed = false;

  async function start() {
    agents = (await guarded(() => ask("GET", "/api/agents"))).agents;
    $("agent").replaceChildren(...agents.map((agent) => element("option", { value: agent.name }, agent.name)));
    $("agent").hidden = agents.length < 2;
    $("text").disabled = $("send").disabled = !agents.length;
    await visit(first);
  }

  // What stands where nothing was said yet: how to begin, or how to add an agent where there is none to begin with.
  function empty() {
    const parts = agents.length
      ? [
          element("h3", {}, "Nothing was said here yet"),
          element("p", {}, "Write a message below. The agent answers, and uses the tools of this gateway."),
        ]
      : [
          element("h3", {}, "No agent is configured"),
          element("p", {}, "An agent is the program that answers. Add one to the gateway's toolpost.toml:"),
          element("pre", { tabindex: "0" }, element("code", {}, EXAMPLE)),
          element("p", {}, "Then install the extra agents, if it is not there (pip install 'toolpost[agents]'), and restart toolpost serve."),
        ];
    return element("div", { class: "empty body" }, ...parts);
  }

  async function list() {
    const mine = ++listed;
    const { threads } = await guarded(() => ask("GET", "/api/threads?limit=100"));
    if (mine !== listed) return; // a later one is on its way, or was quicker
    $("no-threads").hidden = threads.length > 0;
    $("threads").replaceChildren(
      ...threads.map((thread) => {
        const button = element("button", { type: "button", title: thread.title }, thread.title || "(no messages yet)");
        if (thread.running?.length) button.className = "running";
        if (thread.id === open) button.setAttribute("aria-current", "true");
        button.addEventListener("click", () => go(`/chat/${encodeURIComponent(thread.id)}`));
        return element("li", {}, button);
      }),
    );
  }

  // Shows a conversation, or the beginning of one.
  async function visit(wanted) {
    hearing?.abort();
    tell("");
    setBusy(false);
    open = wanted;
    $("messages").replaceChildren(...(wanted ? [] : [empty()]));
    $("title").textContent = "New chat";
    $("agent").value = agents.find((agent) => agent.isDefault)?.name ?? "";
    if (wanted) {
      await show(wanted).catch(failed);
      scroll(true);
      ask("POST", "/api/prewarm", { threadId: wanted }).catch(() => {});
    }
    await list();
    $("text").focus();
  }

  async function show(wanted) {
    // Made before anything is waited for: what is said or opened meanwhile ends it, and is not replaced by what was there before.
    hearing = new AbortController();
    const mine = hearing;
    const thread = await guarded(() => ask("GET", path(wanted)));
    if (mine.signal.aborted) return;
    $("title").textContent = thread.title || "New chat";
    if (thread.agent) $("agent").value = thread.agent;
    // Listen first, then look: nothing falls between.
    const heard = thread.running?.length ? events("GET", `${path(wanted)}/events`, undefined, mine.signal) : null;
    const first = heard?.next();
    const { messages, turns } = await kept(thread);
    if (mine.signal.aborted) return;
    seen = messages.at(-1)?.seq ?? 0;
    $("messages").replaceChildren(...(messages.length || heard ? shown(messages, turns) : [empty()]));
    scroll();
    if (heard) follow(wanted, heard, first, mine).catch(failed);
  }

  // What was said in a conversation, and what became of each message.
  async function kept(thread) {
    const after = Math.max(0, thread.messages - 200);
    const [{ messages }, { turns }] = await Promise.all([
      ask("GET", `${path(thread.id)}/messages?after=${after}&limit=200`),
      ask("GET", `${path(thread.id)}/turns?limit=200`),
    ]);
    return { messages, turns };
  }

  // A turn that ended badly says so, below its answer or in its place.
  function shown(messages, turns) {
    const ends = new Map(turns.map((turn) => [turn.id, turn]));
    const answered = new Set(messages.filter((message) => message.role !== "user").map((message) => message.turn));
    return messages.flatMap((message) => {
      const end = ends.get(message.turn) ?? {};
      if (message.role !== "user") return [said(message, end)];
      const note = answered.has(message.turn) ? null : noteOf(end);
      return note ? [said(message), element("article", { class: "assistant" }, note)] : [said(message)];
    });
  }

  // A turn that was running before we came: what came of it so far, then all that comes.
  async function follow(thread, heard, first, mine) {
    const answer = new Answer();
    const { turns } = await ask("GET", `${path(thread)}/turns?limit=5`);
    const running = turns.find((turn) => turn.state === "running");
    if (!running) {
      mine.abort();
      const now = await kept(await ask("GET", path(thread)));
      $("messages").replaceChildren(...shown(now.messages, now.turns));
      return;
    }
    turn = running.id;
    if (running.partial) answer.say(running.partial);
    $("messages").append(answer.node);
    setBusy(true);
    try {
      for (let next = await first; !next.done; next = await heard.next()) {
        const event = next.value;
        if (event.type !== "ended") answer.take(event);
        else {
          // What was said while we were not there is in the end alone.
          if (event.text) answer.whole(event.text);
          answer.part = null;
          answer.end({ ...event, text: "" });
          seen = event.seq ?? seen;
          break;
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      return;
    }
    mine.abort();
    setBusy(false);
    await list();
  }

  // Shows what others have said meanwhile: what was scheduled, or another tab. It is asked for, and only while somebody looks: a
  // stream for each tab would soon use up the six connections that a browser has for one host.
  async function look() {
    const here = open;
    const isBusy = () => open !== here || isClosed || document.hidden || !$("cancel").hidden;
    if (!here || isBusy()) return;
    const thread = await ask("GET", path(here));
    if (isBusy() || (thread.messages === seen && !thread.running?.length)) return;
    await show(here);
    await list();
  }

  function said(message, end = {}) {
    if (message.role === "user") return element("article", { class: "user" }, message.text);
    const answer = new Answer();
    for (const [number, used] of (message.details?.tools ?? []).entries()) answer.use({ id: number, ...used });
    answer.recall(message.text);
    const note = noteOf({ ...message.details, ...end });
    if (note) answer.node.append(note);
    return answer.node;
  }

  async function say(text) {
    const answer = new Answer();
    turn = null;
    tell("");
    setBusy(true);
    $("messages").querySelector(".empty")?.remove();
    $("messages").append(element("article", { class: "user" }, text), answer.node);
    scroll(true);
    const chosen = $("agent").value || null;
    if (!open) {
      open = (await guarded(() => ask("POST", "/api/threads", { agent: chosen }))).id;
      go(`/chat/${encodeURIComponent(open)}`, { replace: true });
    }
    const here = open;
    hearing?.abort();
    hearing = new AbortController();
    const mine = hearing;
    const body = { text, agent: chosen, onDisconnect: "continue" };
    let hasEnded = false;
    try {
      for await (const event of guardedEvents("POST", `${path(here)}/messages`, body, mine.signal)) {
        if (event.type === "started") list().then(() => ($("title").textContent = currentTitle() ?? text.slice(0, 80)), () => {});
        hasEnded ||= event.type === "ended";
        turn = event.turn ?? turn;
        seen = event.seq ?? seen;
        if (event.type === "ended") answer.end(event);
        else answer.take(event);
        scroll();
      }
      if (!hasEnded) throw new Unreachable("The connection to the gateway broke.");
    } catch (error) {
      if (error.name === "AbortError") return;
      answer.end({ state: "failed", error: { message: error.message, hint: hintOf(error) } });
    }
    answer.node.classList.remove("waiting");
    if (open === here) setBusy(false);
    await list();
  }

  function currentTitle() {
    return root.querySelector("#threads [aria-current]")?.textContent;
  }

  function setBusy(isBusy) {
    $("send").hidden = isBusy;
    $("cancel").hidden = !isBusy;
  }

  function tell(text) {
    $("notice").textContent = text;
    $("notice").hidden = !text;
  }

  function failed(error) {
    if (error.name === "AbortError") return;
    setBusy(false);
    tell([error.message, hintOf(error)].filter(Boolean).join(" "));
  }

  // Stays at the end, unless somebody has scrolled up to read.
  function scroll(isForced = false) {
    if (!root.isConnected) return;
    const box = document.scrollingElement;
    if (isForced || box.scrollHeight - box.scrollTop - box.clientHeight < 120) box.scrollTop = box.scrollHeight;
  }

  $("messages").addEventListener("grown", () => scroll());
  $("new").addEventListener("click", () => {
    if (open) go("/chat");
    else visit(null).catch(failed);
  });
  $("cancel").addEventListener("click", () =>
    // One that has just ended need not be cancelled.
    guarded(() => ask("POST", `${path(open)}/cancel`, { turn })).catch((error) => error.status === 404 || failed(error)),
  );
  $("say").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("text").value.trim();
    if (!text || $("send").hidden) return;
    $("text").value = "";
    $("text").style.height = "";
    // Once the page has loaded: what it shows then replaces all messages. And one after the other: two messages written while it
    // loads would each begin a conversation.
    lastSaid = lastSaid.then(() => say(text)).catch(failed);
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      $("say").requestSubmit();
    } else if (event.key === "Escape" && !$("cancel").hidden) $("cancel").click();
  });
  $("text").addEventListener("input", () => {
    $("text").style.height = "auto";
    $("text").style.height = `${$("text").scrollHeight + 2}px`;
  });

  const timer = setInterval(() => look().catch(() => {}), LOOK_MS);
  let lastSaid = start().catch(failed); // done once the page has loaded and the last message was answered
  return {
    show: (wanted) => wanted === open || visit(wanted).catch(failed),
    close() {
      isClosed = true;
      hearing?.abort();
      clearInterval(timer);
    },
  };
}
