// An answer as it grows: what is said, thought and used, in the order in which it happened.

import { element, render } from "/views/chat/markdown.js";

const MARKS = { running: "▸", done: "✓", failed: "✗" };

export class Answer {
  constructor() {
    this.body = element("div", { class: "body" });
    this.node = element("article", { class: "assistant waiting" }, this.body);
    this.tools = new Map();
    this.part = null;
    this.isDrawn = true;
  }

  take(event) {
    if (event.type === "text") this.say(event.text);
    else if (event.type === "thought") this.think(event.text);
    else if (event.type === "tool") this.use(event);
  }

  say(text) {
    if (this.part?.kind !== "text") this.begin("text", element("div", { class: "body" }));
    this.part.text += text;
    if (!this.isDrawn) return;
    // Many pieces come between two frames: they are drawn once.
    this.isDrawn = false;
    const part = this.part;
    requestAnimationFrame(() => {
      this.isDrawn = true;
      part.node.replaceChildren(render(part.text));
      if (this.part !== part && this.part?.kind === "text") this.part.node.replaceChildren(render(this.part.text));
      this.node.dispatchEvent(new Event("grown", { bubbles: true }));
    });
  }

  think(text) {
    if (this.part?.kind !== "thought") this.begin("thought", element("p", { class: "thought" }));
    this.part.text += text;
    this.part.node.textContent = this.part.text;
  }

  begin(kind, node) {
    this.part = { kind, text: "", node };
    this.body.append(node);
  }

  use(event) {
    let known = this.tools.get(event.id);
    if (!known) {
      const summary = element("summary");
      known = { node: element("details", { class: "tool" }, summary), summary, given: element("pre"), got: element("pre") };
      known.node.append(known.given, known.got);
      this.tools.set(event.id, known);
      this.part = null;
      this.body.append(known.node);
    }
    known.name = event.tool || known.name;
    if (event.arguments !== undefined && event.arguments !== null) known.given.textContent = shown(event.arguments);
    if (event.result) known.got.textContent = event.result;
    known.node.className = `tool ${event.state}`;
    known.summary.replaceChildren(
      element("span", { class: "mark" }, MARKS[event.state] ?? "·"),
      element("strong", {}, known.name),
      ` ${known.given.textContent.replaceAll(/\s+/g, " ")}`,
    );
  }

  // What was said before is there at once.
  recall(text) {
    if (text) this.body.append(element("div", { class: "body" }, render(text)));
    this.node.classList.remove("waiting");
  }

  whole(text) {
    this.body.replaceChildren(render(text));
  }

  end(ended) {
    this.node.classList.remove("waiting");
    const said = [...this.body.children].some((child) => child.className === "body");
    if (ended.text && !said) this.body.append(element("div", { class: "body" }, render(ended.text)));
    else if (this.part?.kind === "text") this.part.node.replaceChildren(render(this.part.text));
    const note = noteOf(ended);
    if (note) this.node.append(note);
  }
}

export function noteOf({ state, error, reason }) {
  if (state === "failed") {
    const note = element("div", { class: "note bad" }, [error?.message, error?.hint].filter(Boolean).join(" "));
    if (error?.stderr) note.append(element("pre", {}, error.stderr));
    return note;
  }
  if (state === "cancelled" || state === "interrupted") return element("p", { class: "note" }, `(${state})`);
  if (reason === "limit") return element("p", { class: "note" }, "(the agent has said all that it may in one turn)");
  return null;
}

function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
