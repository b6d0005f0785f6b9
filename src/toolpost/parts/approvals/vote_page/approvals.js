// The page: rounds that wait for votes, what each is about, and two buttons. Text only ever becomes text.

import { ask, element, guarded, Refused, visible } from "/kit/api.js";
import { showBar } from "/kit/bar.js";

const LOOK_MS = 2000;
const PARTS_LIMIT = 25; // parts of the list that are asked for: 20,000 rounds may be open, and one part looks at 1,000
const DECIDED_LIMIT = 20; // decided rounds that stay on the page

const $ = (id) => document.getElementById(id);
const kept = new Map(); // by round id: its article, and the JSON that it shows

// A vote that failed is told until the next one; that the gateway is away, until it is back.
function tell(error, about) {
  if (!error && $("notice").dataset.about !== about) return;
  $("notice").dataset.about = about;
  $("notice").hidden = !error;
  if (!error) return;
  const message = error instanceof Refused ? error.message : "The gateway cannot be reached. This page tries again.";
  $("notice").textContent = error.hint ? `${message} ${error.hint}` : message;
}

// All rounds that wait, the newest first: a part of the answer may be empty, and others behind it.
async function list() {
  let { caller, rounds, next } = await ask("GET", "/api/approvals");
  for (let part = 1; next !== null && part < PARTS_LIMIT; part += 1) {
    const more = await ask("GET", `/api/approvals?before=${encodeURIComponent(next)}`);
    rounds = rounds.concat(more.rounds);
    next = more.next;
  }
  return { caller, rounds };
}

async function look() {
  const { caller, rounds } = await guarded(list);
  $("who").textContent = `You vote as ${caller} · ${location.host}`;
  const open = new Set(rounds.map((round) => round.round_id));
  // The newest at the end: what comes must not move a button under the pointer.
  for (const round of rounds.reverse()) show(round, caller);
  // A round that is gone was decided or has expired: it stays, and says so.
  for (const [id, shown] of kept) {
    if (!open.has(id) && shown.isOpen) show(await ask("GET", `/api/approvals/round?id=${encodeURIComponent(id)}`), caller);
  }
  forgetOldest();
  $("none").hidden = open.size > 0;
}

function forgetOldest() {
  const decided = [...kept].filter(([, shown]) => !shown.isOpen);
  for (const [id, shown] of decided.slice(0, Math.max(0, decided.length - DECIDED_LIMIT))) {
    shown.article.remove();
    kept.delete(id);
  }
}

function show(round, caller) {
  const text = JSON.stringify(round);
  const before = kept.get(round.round_id);
  if (before?.text === text) return;
  const article = render(round, caller);
  if (before) {
    const wasOpen = before.article.querySelector("details")?.open;
    if (wasOpen) article.querySelector("details").open = true;
    before.article.replaceWith(article);
  } else {
    $("rounds").append(article);
  }
  kept.set(round.round_id, { article, text, isOpen: round.status === "open" });
}

function render(round, caller) {
  const title = round.kind === "call" ? round.tool : "Proposal";
  const made = element("article", { class: `round ${round.status}`, "data-round": round.round_id });
  made.append(
    element("h2", {}, `${title} `, element("small", {}, `round ${round.round_id}`)),
    element("p", {}, `Requested by ${round.requested_by}; ${round.needed} of ${round.voters.join(", ")} must approve, until ${round.expires_at}.`),
    ...subject(round),
    element("p", { class: "tally" }, tally(round)),
  );
  if (round.status === "open") made.append(buttons(round, caller));
  return made;
}

function subject(round) {
  if (round.kind !== "call") return [element("pre", { class: "arguments" }, visible(round.shown.text ?? round.shown.digest))];
  const definition = round.shown.definition ?? {};
  return [
    element("pre", { class: "arguments" }, visible(JSON.stringify(round.shown.arguments, null, 2))),
    element("p", { class: "description" }, visible(definition.description ?? "")),
    element(
      "details",
      {},
      element("summary", {}, "Contract of the tool"),
      element("p", {}, element("code", {}, round.subject.contract)),
      element("pre", { class: "contract" }, visible(JSON.stringify(definition, null, 2))),
    ),
  ];
}

function tally(round) {
  const parts = [`${round.level}, ${round.status}: ${round.approvals.length} of ${round.needed} approvals`];
  if (round.approvals.length) parts.push(`approved by ${round.approvals.join(", ")}`);
  if (round.denials.length) parts.push(`denied by ${round.denials.join(", ")}`);
  for (const vote of round.votes) if (vote.cast_by) parts.push(`${vote.cast_by} voted for ${vote.voter}`);
  if (round.equivocators.length) parts.push(`two votes, both void: ${round.equivocators.join(", ")}`);
  return parts.join(" · ");
}

function buttons(round, caller) {
  const mine = round.votes.filter((vote) => vote.voter === caller);
  if (!round.voters.includes(caller)) return element("p", { class: "note" }, "You may see this round, and not vote in it.");
  if (mine.length) return element("p", { class: "note" }, `You voted: ${mine.map((vote) => vote.choice).join(" and ")}.`);
  const made = element("p", { class: "buttons" });
  for (const [choice, label] of [["approve", "Approve"], ["deny", "Deny"]]) {
    const button = element("button", { type: "button", class: choice }, label);
    button.addEventListener("click", () => vote(round, choice, caller, made));
    made.append(button);
  }
  return made;
}

async function vote(round, choice, caller, form) {
  // Two different votes are void: the second button must not be reached by a double click.
  for (const button of form.children) button.disabled = true;
  try {
    const cast = await guarded(() => ask("POST", "/api/approvals/vote", { round_id: round.round_id, choice }));
    tell(null, "vote");
    show(cast.round, caller);
  } catch (error) {
    tell(error, "vote");
    for (const button of form.children) button.disabled = false;
  }
}

async function watch() {
  for (;;) {
    try {
      await look();
      tell(null, "gateway");
    } catch (error) {
      tell(error, "gateway");
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

showBar().catch(() => {}); // votes need no bar
watch();
