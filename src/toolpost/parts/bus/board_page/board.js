// The bus: who works on what, what waits, what became of each task. It shows, and changes nothing.

import { element, visible } from "/kit/api.js";
import { showBar } from "/kit/bar.js";
import { badge, draw, duration, follow, get, here, json, link, table, time } from "/kit/lists.js";

const LOOK_MS = 2000;
const $ = (id) => document.getElementById(id);
let more = { state: null, pages: 1 };

async function look(query, isOver) {
  const state = query.state ?? "";
  if (more.state !== state) more = { state, pages: 1 };
  $("state").value = state;
  const [board, tasks, task] = await Promise.all([get("/api/bus"), listTasks(state), query.task ? get("/api/bus/task", { id: query.task }) : null]);
  if (isOver()) return;
  const { counts } = board;
  $("counts").textContent = ["queued", "waiting", "running", "dead", "blocked"].map((name) => `${counts[name] ?? 0} ${name}`).join(" · ");
  draw("board", board, () => showBoard(board));
  draw("tasks", [state, tasks], () => showTasks(tasks, state));
  $("task").hidden = !task;
  if (task) draw("task", task, () => showTask(task));
}

async function listTasks(state) {
  let found = { tasks: [], next: null };
  for (let page = 0; page < more.pages; page += 1) {
    const part = await get("/api/bus/tasks", { state, cursor: found.next });
    found = { tasks: [...found.tasks, ...part.tasks], next: part.next_cursor ?? null };
    if (!found.next) break;
  }
  return found;
}

const open = (id) => link(id, { ...here(), task: id }, go);

function showBoard({ workers, queue, troubled }) {
  return [
    element("h2", {}, "Workers"),
    table(
      "Workers",
      ["Worker", "State", "Since", "Task", "Attempt", "Lease left"],
      workers.map((one) => [
        one.name,
        badge(one.status),
        duration(one.seconds),
        one.task ? open(one.task) : "",
        one.attempt ?? "",
        one.lease_seconds_left === undefined ? "" : duration(one.lease_seconds_left),
      ]),
      "No worker is registered. An agent becomes one with the tool bus__register_worker; its client starts toolpost bus connect.",
    ),
    element("h2", {}, "Queue"),
    table(
      "Queue",
      ["Task", "Priority", "Age", "Attempts", "Again in"],
      queue.map((one) => [open(one.bead_id), one.priority ?? "", one.age_seconds === undefined ? "" : duration(one.age_seconds), one.attempt || "", one.retry_in_seconds ? duration(one.retry_in_seconds) : ""]),
      "Nothing waits for a worker.",
    ),
    ...(troubled.length
      ? [
          element("h2", {}, "Needs a person"),
          element("p", { class: "dim" }, "These tasks have failed. Run one again with: toolpost bus retry TASK"),
          table("Needs a person", ["Task", "State", "Reason"], troubled.map((one) => [open(one.bead_id), badge(one.state), one.reason ?? ""]), ""),
        ]
      : []),
  ];
}

function showTasks({ tasks, next }, state) {
  const rows = tasks.map((one) => [open(one.bead_id), badge(one.state), one.priority, one.attempt || "", one.worker ?? "", time(one.changed_at), one.reason ?? ""]);
  const made = [table("Tasks", ["Task", "State", "Priority", "Attempts", "Worker", "Changed", "Reason"], rows, state ? "No task is in this state." : "No task has been submitted. Submit one with the tool bus__submit_task, or: toolpost bus submit TASK")];
  if (next) {
    const button = element("button", { type: "button" }, "Show more");
    button.addEventListener("click", () => {
      more.pages += 1;
      go(here());
    });
    made.push(button);
  }
  return made;
}

function showTask(task) {
  const close = link("Close", { ...here(), task: "" }, go);
  const made = [
    element("h2", {}, visible(task.bead_id), " ", badge(task.state), " ", close),
    element("p", { class: "dim" }, task.submitted_at ? `Submitted ${time(task.submitted_at)}, changed ${time(task.changed_at)}.` : "It was submitted by another caller: this is what everybody may see."),
  ];
  if (task.reason) made.push(element("p", { class: "bad" }, visible(task.reason)));
  if (task.waits_for?.length) made.push(element("p", {}, "It waits for ", ...task.waits_for.flatMap((id) => [open(id), " "])));
  if ("result" in task) made.push(element("h3", {}, "Result"), json(task.result, "Result"));
  if ("payload" in task) made.push(element("h3", {}, "Payload"), json(task.payload, "Payload"));
  if (task.attempts?.length) {
    const rows = task.attempts.map((one) => [one.number, one.worker ?? "", time(one.started_at), one.ended_at ? time(one.ended_at) : "", one.outcome ?? "runs", one.error ?? ""]);
    made.push(element("h3", {}, "Attempts"), table("Attempts", ["Attempt", "Worker", "Started", "Ended", "Outcome", "Error"], rows, ""));
  }
  return made;
}

const go = follow(look, LOOK_MS);
$("state").addEventListener("change", () => go({ ...here(), state: $("state").value }));
showBar().catch(() => {}); // the board needs no bar
