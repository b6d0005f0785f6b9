// The bus: who works on what, what waits, what became of each task. It shows, and changes nothing.

import { address, Badge, count, duration, Empty, Failure, html, Json, Link, number, read, Table, Time, useEffect, useLoaded, useState, visible } from "/console/kit.js";

const LOOK_MS = 2000;
const STATES = ["active", "finished", "done", "dead", "blocked", "cancelled"];
const COUNTS = { queued: "", waiting: "", running: "", dead: "bad", blocked: "bad" };

export function View({ query, go }) {
  const { state = "", task: id = "" } = query;
  const [pages, setPages] = useState(1);
  useEffect(() => setPages(1), [state]);
  const [board, error] = useLoaded((signal) => read("/api/bus", {}, signal), [], LOOK_MS);
  const [list] = useLoaded((signal) => listTasks(state, pages, signal), [state, pages], LOOK_MS);
  const to = (changes) => address("/bus", { ...query, ...changes });
  const open = (task) => html`<${Link} to=${to({ task })} go=${go}>${visible(task)}<//>`;
  return html`
    <h1>Bus</h1>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${board ? html`<p role="status">${Object.entries(COUNTS).map(([name, kind], at) => html`${at ? " · " : ""}<span class=${board.counts[name] ? kind : "dim"}>${number(board.counts[name] ?? 0)} ${name}</span>`)}</p>` : null}
    ${id ? html`<${Task} key=${id} id=${id} open=${open} close=${to({ task: "" })} go=${go} />` : null}
    ${board ? html`<${Board} board=${board} open=${open} />` : null}
    <div class="row"><h2 id="tasks-title">Tasks</h2>
      <label class="inline"><span>Show</span><select value=${state} onChange=${(event) => go(to({ state: event.target.value }))}>
        <option value="">all tasks</option>${STATES.map((each) => html`<option value=${each}>${each}</option>`)}
      </select></label>
    </div>
    ${list ? html`<${Tasks} list=${list} state=${state} open=${open} />` : null}
    ${list?.next ? html`<button type="button" onClick=${() => setPages(pages + 1)}>Show more</button>` : null}
  `;
}

async function listTasks(state, pages, signal) {
  let found = { tasks: [], next: null };
  for (let page = 0; page < pages; page += 1) {
    const part = await read("/api/bus/tasks", { state, cursor: found.next }, signal);
    found = { tasks: [...found.tasks, ...part.tasks], next: part.next_cursor ?? null };
    if (!found.next) break;
  }
  return found;
}

function Board({ board, open }) {
  const { workers, queue, troubled } = board;
  const none = (text) => html`<p class="dim">${text}</p>`;
  return html`
    ${troubled.length ? html`
      <h2>Needs a person</h2>
      <p class="dim">These tasks have failed. Run one again with <code>toolpost bus retry TASK</code>.</p>
      <${Table} label="Needs a person" rows=${troubled} keyOf=${(one) => one.bead_id} columns=${[
        { name: "main", title: "Task", cell: (one) => open(one.bead_id), sort: (one) => one.bead_id },
        { name: "side", title: "State", cell: (one) => html`<${Badge} text=${one.state} />`, sort: (one) => one.state },
        { name: "grow wrap", title: "Reason", cell: (one) => visible(one.reason ?? "") },
      ]} />` : null}
    <h2>Workers</h2>
    ${workers.length ? html`<${Table} label="Workers" rows=${workers} keyOf=${(one) => one.name} columns=${[
      { name: "main", title: "Worker", cell: (one) => visible(one.name), sort: (one) => one.name },
      { name: "side", title: "State", cell: (one) => html`<${Badge} text=${one.status} />`, sort: (one) => one.status },
      { name: "number", title: "Since", cell: (one) => duration(one.seconds), sort: (one) => one.seconds },
      { name: "grow", title: "Task", cell: (one) => (one.task ? open(one.task) : "") },
      { name: "number", title: "Attempt", cell: (one) => one.attempt ?? "", sort: (one) => one.attempt },
      { name: "number", title: "Lease left", cell: (one) => (one.lease_seconds_left === undefined ? "" : duration(one.lease_seconds_left)), sort: (one) => one.lease_seconds_left },
    ]} />` : none(html`No worker is registered. An agent becomes one with the tool <code>bus__register_worker</code>; its client starts <code>toolpost bus connect</code>.`)}
    <h2>Queue</h2>
    ${queue.length ? html`<${Table} label="Queue" rows=${queue} keyOf=${(one) => one.bead_id} columns=${[
      { name: "main grow", title: "Task", cell: (one) => open(one.bead_id), sort: (one) => one.bead_id },
      { name: "number", title: "Priority", cell: (one) => one.priority ?? "", sort: (one) => one.priority },
      { name: "number", title: "Age", cell: (one) => (one.age_seconds === undefined ? "" : duration(one.age_seconds)), sort: (one) => one.age_seconds },
      { name: "number", title: "Attempts", cell: (one) => one.attempt || "", sort: (one) => one.attempt },
      { name: "number", title: "Again in", cell: (one) => (one.retry_in_seconds ? duration(one.retry_in_seconds) : ""), sort: (one) => one.retry_in_seconds },
    ]} />` : none("Nothing waits for a worker.")}
  `;
}

function Tasks({ list, state, open }) {
  if (!list.tasks.length) {
    return html`<${Empty} title=${state ? "No task is in this state." : "No task has been submitted."}>
      <p>${state ? "Choose another state above." : html`Submit one with the tool <code>bus__submit_task</code>, or with <code>toolpost bus submit TASK</code>.`}</p>
    <//>`;
  }
  return html`<${Table} label="Tasks" rows=${list.tasks} keyOf=${(one) => one.bead_id} columns=${[
    { name: "main", title: "Task", cell: (one) => open(one.bead_id), sort: (one) => one.bead_id },
    { name: "side", title: "State", cell: (one) => html`<${Badge} text=${one.state} />`, sort: (one) => one.state },
    { name: "number", title: "Priority", cell: (one) => one.priority, sort: (one) => one.priority },
    { name: "number", title: "Attempts", cell: (one) => one.attempt || "", sort: (one) => one.attempt },
    { name: "worker", title: "Worker", cell: (one) => visible(one.worker ?? ""), sort: (one) => one.worker },
    { name: "changed", title: "Changed", cell: (one) => html`<${Time} at=${one.changed_at} />`, sort: (one) => one.changed_at },
    { name: "grow", title: "Reason", cell: (one) => html`<span title=${visible(one.reason ?? "")}>${visible(one.reason ?? "")}</span>` },
  ]} />`;
}

function Task({ id, open, close, go }) {
  const [task, error] = useLoaded((signal) => read("/api/bus/task", { id }, signal), [id], LOOK_MS);
  if (error && !task) return html`<${Failure} error=${error} />`;
  if (!task) return null;
  return html`<section class="card" aria-label="Task">
    <div class="row"><h2>${visible(task.bead_id)}</h2><${Badge} text=${task.state} /><span class="end"><${Link} to=${close} go=${go}>Close<//></span></div>
    <p class="dim">${task.submitted_at ? html`Submitted <${Time} at=${task.submitted_at} />, changed <${Time} at=${task.changed_at} />.` : "It was submitted by another caller: this is what everybody may see."}</p>
    ${task.reason ? html`<p class="bad">${visible(task.reason)}</p>` : null}
    ${task.waits_for?.length ? html`<p>It waits for ${task.waits_for.map((each) => html`${open(each)} `)}</p>` : null}
    ${"result" in task ? html`<h3>Result</h3><${Json} value=${task.result} label="Result" />` : null}
    ${"payload" in task ? html`<h3>Payload</h3><${Json} value=${task.payload} label="Payload" />` : null}
    ${task.attempts?.length ? html`<h3>${count(task.attempts.length, "attempt")}</h3><${Table} label="Attempts" rows=${task.attempts} keyOf=${(one) => one.attempt} columns=${[
      { name: "number", title: "Attempt", cell: (one) => one.attempt },
      { name: "main", title: "Worker", cell: (one) => visible(one.worker ?? "") },
      { name: "side", title: "Outcome", cell: (one) => html`<${Badge} text=${one.outcome ?? "running"} />` },
      { name: "started", title: "Started", cell: (one) => html`<${Time} at=${one.started_at} />` },
      { name: "ended", title: "Ended", cell: (one) => (one.ended_at ? html`<${Time} at=${one.ended_at} />` : "") },
      { name: "grow wrap", title: "Error", cell: (one) => visible(one.error ?? "") },
    ]} />` : null}
  </section>`;
}
