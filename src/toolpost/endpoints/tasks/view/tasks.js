// MCP tasks: which calls go on after their request, and what became of them. It shows, and changes nothing.

import { address, Badge, Empty, Failure, html, Json, Link, read, Table, Time, useLoaded, visible } from "/console/kit.js";

const LOOK_MS = 2000;
const STATUSES = ["working", "completed", "failed", "cancelled"];

export function View({ query, go }) {
  const { status = "", before = "", task: id = "" } = query;
  const [list, error] = useLoaded((signal) => read("/api/tasks", { status, before }, signal), [status, before], LOOK_MS);
  const to = (changes) => address("/tasks", { ...query, ...changes });
  const columns = [
    { name: "main", title: "Tool", cell: (task) => html`<${Link} to=${to({ task: task.id })} go=${go}>${visible(task.tool)}<//>`, sort: (task) => task.tool },
    { name: "side", title: "Status", cell: (task) => html`<${Badge} text=${task.status} />`, sort: (task) => task.status },
    { name: "caller", title: "Caller", cell: (task) => visible(task.caller), sort: (task) => task.caller },
    { name: "number", title: "Attempts", cell: (task) => task.attempts, sort: (task) => task.attempts },
    { name: "created wide", title: "Created", cell: (task) => html`<${Time} at=${task.createdAt} />`, sort: (task) => task.createdAt },
    { name: "changed", title: "Changed", cell: (task) => html`<${Time} at=${task.updatedAt} />`, sort: (task) => task.updatedAt },
    { name: "grow", title: "Message", cell: (task) => visible(task.message ?? "") },
  ];
  return html`
    <h1>Tasks</h1>
    <p class="dim">Calls that go on after their request has ended, for clients that declare MCP tasks. Each is kept until it expires.</p>
    ${error ? html`<${Failure} error=${error} />` : null}
    ${id ? html`<${Task} key=${id} id=${id} close=${to({ task: "" })} go=${go} />` : null}
    <div class="row filters">
      <label class="inline"><span>Show</span><select value=${status} onChange=${(event) => go(to({ status: event.target.value, before: "" }))}>
        <option value="">all tasks</option>${STATUSES.map((each) => html`<option value=${each}>${each}</option>`)}
      </select></label>
    </div>
    ${!list ? null : list.tasks.length
      ? html`<${Table} label="Tasks" columns=${columns} rows=${list.tasks} keyOf=${(task) => task.id} />`
      : html`<${Empty} title=${status ? "No task has this status." : "No call has become a task yet."}><p>Tasks appear here as clients begin them.</p><//>`}
    ${list?.next ? html`<p><${Link} to=${to({ before: list.next })} go=${go}>Older tasks<//></p>` : null}
  `;
}

function Task({ id, close, go }) {
  const [task, error] = useLoaded((signal) => read("/api/tasks/task", { id }, signal), [id], LOOK_MS);
  if (error && !task) return html`<${Failure} error=${error} />`;
  if (!task) return null;
  return html`<section class="card" aria-label="Task">
    <div class="row"><h2>${visible(task.tool)}</h2><${Badge} text=${task.status} /><span class="end"><${Link} to=${close} go=${go}>Close<//></span></div>
    <p class="dim">Task <code>${visible(task.id)}</code> of ${visible(task.caller)}, created <${Time} at=${task.createdAt} />, kept until <${Time} at=${task.expiresAt} />.</p>
    ${task.message ? html`<p>${visible(task.message)}</p>` : null}
    ${task.error !== null ? html`<h3>Error</h3><${Json} value=${task.error} label="Error" />` : null}
    ${task.result !== null ? html`<h3>Result</h3><${Json} value=${task.result} label="Result" />` : null}
  </section>`;
}
