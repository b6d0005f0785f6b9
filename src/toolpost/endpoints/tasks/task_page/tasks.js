// MCP tasks: which calls go on after their request, and what became of them. It shows, and changes nothing.

import { element, visible } from "/kit/api.js";
import { showBar } from "/kit/bar.js";
import { badge, draw, follow, get, here, json, link, table, time } from "/kit/lists.js";

const LOOK_MS = 2000;
const $ = (id) => document.getElementById(id);

async function look(query, isOver) {
  $("status").value = query.status ?? "";
  const [list, task] = await Promise.all([get("/api/tasks", { status: query.status, before: query.before }), query.task ? get("/api/tasks/task", { id: query.task }) : null]);
  if (isOver()) return;
  draw("tasks", [query.status, list], () => showTasks(list, query.status));
  $("task").hidden = !task;
  if (task) draw("task", task, () => showTask(task));
}

function showTasks({ tasks, next }, status) {
  const rows = tasks.map((one) => [link(one.id.slice(0, 12), { ...here(), task: one.id }, go), one.tool, one.caller, badge(one.status), one.attempts, time(one.createdAt), time(one.updatedAt), one.message ?? ""]);
  const made = [table("Tasks", ["Task", "Tool", "Caller", "Status", "Attempts", "Created", "Changed", "Message"], rows, status ? "No task has this status." : "No call has become a task yet.")];
  if (next) made.push(link("Older tasks", { ...here(), before: next }, go));
  return made;
}

function showTask(task) {
  const made = [
    element("h2", {}, visible(task.tool), " ", badge(task.status), " ", link("Close", { ...here(), task: "" }, go)),
    element("p", { class: "dim" }, visible(`Task ${task.id} of ${task.caller}, created ${time(task.createdAt)}, kept until ${time(task.expiresAt)}.`)),
  ];
  if (task.message) made.push(element("p", {}, visible(task.message)));
  if (task.error !== null) made.push(element("h3", {}, "Error"), json(task.error, "Error"));
  if (task.result !== null) made.push(element("h3", {}, "Result"), json(task.result, "Result"));
  return made;
}

const go = follow(look, LOOK_MS);
$("status").addEventListener("change", () => go({ ...here(), status: $("status").value, before: "" }));
showBar().catch(() => {}); // the list needs no bar
