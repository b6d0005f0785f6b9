// Approvals: rounds that wait for votes, what each is about, and two buttons. Text only ever becomes text.

import { Badge, Code, Empty, Failure, html, Json, read, Refused, Time, useEffect, useRef, useState, useStyle, visible, write } from "/console/kit.js";

const LOOK_MS = 2000;
const PARTS_LIMIT = 25; // parts of the list that are asked for: 20,000 rounds may be open, and one part looks at 1,000
const DECIDED_LIMIT = 20; // decided rounds that stay on the page

export function View() {
  const isStyled = useStyle("/views/approvals/approvals.css");
  const [rounds, setRounds] = useState(null); // those that are shown: open ones, and those decided meanwhile
  const [caller, setCaller] = useState("");
  const [away, setAway] = useState(null); // why the gateway gave no answer
  const [failure, setFailure] = useState(null); // of a vote; told until the next one
  const shown = useRef([]);
  const put = (made) => setRounds((shown.current = made));

  useEffect(() => {
    const stop = new AbortController();
    let timer = null;
    const look = async () => {
      try {
        const found = await list(stop.signal);
        const made = await merge(shown.current, found.rounds, stop.signal);
        if (stop.signal.aborted) return;
        setCaller(found.caller);
        if (JSON.stringify(made) !== JSON.stringify(shown.current) || !made.length) put(made);
        setAway(null);
      } catch (error) {
        if (stop.signal.aborted) return;
        setAway(error);
      }
      timer = setTimeout(look, LOOK_MS);
    };
    look();
    return () => (stop.abort(), clearTimeout(timer));
  }, []);

  const vote = async (round, choice) => {
    try {
      const cast = await write("/api/approvals/vote", { round_id: round.round_id, choice });
      setFailure(null);
      put(shown.current.map((each) => (each.round_id === round.round_id ? cast.round : each)));
      return true;
    } catch (error) {
      setFailure(told(error));
      return false;
    }
  };
  if (!isStyled) return html`<h1>Approvals</h1>`;
  const isQuiet = rounds && !rounds.some(isOpen);
  return html`
    <div class="row"><h1>Approvals</h1>${caller ? html`<span class="dim">You vote as ${visible(caller)}</span>` : null}</div>
    ${failure ?? away ? html`<${Failure} error=${failure ?? told(away)} />` : null}
    ${isQuiet ? html`<${Empty} title="No call waits for your vote"><p>A round appears here when a call needs approval.</p><//>` : null}
    <section class="rounds" aria-label="Rounds">
      ${(rounds ?? []).map((round) => html`<${Round} key=${round.round_id} round=${round} caller=${caller} vote=${vote} />`)}
    </section>
  `;
}

const isOpen = (round) => round.status === "open";
const told = (error) => (error instanceof Refused ? error : { message: "The gateway cannot be reached. This page tries again." });

// All rounds that wait, the newest first: a part of the answer may be empty, and others behind it.
async function list(signal) {
  let { caller, rounds, next } = await read("/api/approvals", {}, signal);
  for (let part = 1; next !== null && part < PARTS_LIMIT; part += 1) {
    const more = await read("/api/approvals", { before: next }, signal);
    rounds = rounds.concat(more.rounds);
    next = more.next;
  }
  return { caller, rounds };
}

// What is shown next. The newest round is at the end: what comes must not move a button under the pointer. One that is gone was
// decided or has expired: it stays, and says so.
async function merge(before, waiting, signal) {
  const found = new Map(waiting.map((round) => [round.round_id, round]));
  const made = [];
  for (const round of before) {
    if (found.has(round.round_id)) made.push(found.get(round.round_id));
    else made.push(isOpen(round) ? await read("/api/approvals/round", { id: round.round_id }, signal) : round);
    found.delete(round.round_id);
  }
  made.push(...[...found.values()].reverse());
  const decided = made.filter((round) => !isOpen(round));
  const old = new Set(decided.slice(0, Math.max(0, decided.length - DECIDED_LIMIT)));
  return made.filter((round) => !old.has(round));
}

function Round({ round, caller, vote }) {
  const isCall = round.kind === "call";
  const definition = round.shown.definition ?? {};
  return html`<article class=${`card round ${round.status}`} data-round=${round.round_id}>
    <div class="row"><h2>${visible(isCall ? round.tool : "Proposal")}</h2><${Badge} text=${round.status} /><span class="dim end">round ${round.round_id}</span></div>
    <p class="facts-of">Requested by <strong>${visible(round.requested_by)}</strong>; ${round.needed} of ${visible(round.voters.join(", "))} must approve; expires <${Time} at=${round.expires_at} />.</p>
    ${isCall
      ? html`<div class="arguments"><${Code} text=${JSON.stringify(round.shown.arguments, null, 2)} label="Arguments" /></div>
          ${definition.description ? html`<p class="description">${visible(definition.description)}</p>` : null}
          <details><summary>Contract of the tool</summary>
            <p><code>${round.subject.contract}</code></p>
            <div class="contract-of"><${Json} value=${definition} label="Contract" depth=${3} /></div>
          </details>`
      : html`<div class="arguments"><${Code} text=${round.shown.text ?? round.shown.digest} label="Proposal" /></div>`}
    <p class="tally dim">${visible(tally(round))}</p>
    ${isOpen(round) ? html`<${Buttons} round=${round} caller=${caller} vote=${vote} />` : null}
  </article>`;
}

function tally(round) {
  const parts = [`${round.level}, ${round.status}: ${round.approvals.length} of ${round.needed} approvals`];
  if (round.approvals.length) parts.push(`approved by ${round.approvals.join(", ")}`);
  if (round.denials.length) parts.push(`denied by ${round.denials.join(", ")}`);
  for (const vote of round.votes) if (vote.cast_by) parts.push(`${vote.cast_by} voted for ${vote.voter}`);
  if (round.equivocators.length) parts.push(`two votes, both void: ${round.equivocators.join(", ")}`);
  return parts.join(" · ");
}

function Buttons({ round, caller, vote }) {
  const [isBusy, setBusy] = useState(false);
  const mine = round.votes.filter((each) => each.voter === caller);
  if (!round.voters.includes(caller)) return html`<p class="dim">You may see this round, and not vote in it.</p>`;
  if (mine.length) return html`<p class="dim">You voted: ${mine.map((each) => each.choice).join(" and ")}.</p>`;
  // Two different votes are void: the second button must not be reached by a double click.
  const cast = async (choice) => {
    setBusy(true);
    if (!(await vote(round, choice))) setBusy(false);
  };
  return html`<div class="row votes">
    <button type="button" class="primary approve" disabled=${isBusy} onClick=${() => cast("approve")}>Approve</button>
    <button type="button" class="danger deny" disabled=${isBusy} onClick=${() => cast("deny")}>Deny</button>
  </div>`;
}
