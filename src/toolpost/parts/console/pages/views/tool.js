// One tool: try it, read its contract, see what it was before and who sees it.

import { callTool, get } from "/console/api.js";
import { Badge, Code, Diff, Empty, Failure, html, Link, Message, number, Table, Time, useEffect, useLoaded, useMemo, useRef, useState } from "/console/parts.js";
import { visible } from "/console/gateway.js";
import { isEqual, parse, stringify } from "../exact.js";
import { FormFields, JsonEditor } from "../fields.js";
import { Form, walk } from "../form.js";
import { placeIssues } from "../repair.js";
import { ServerRequests } from "../requests.js";
import { CallError, issuesOf, read, Result } from "../result.js";
import { rows as contractRows } from "../schema.js";
import { asCommand, asCurl, asPython } from "../snippets.js";

const TABS = { run: "Run", contract: "Contract", history: "History", callers: "Who sees it" };
const ADDRESS_CHARS = 1500; // arguments that are longer are kept in this tab, and not in the address
const WAIT_MS = 300;

export function Tool({ name, query, go, session }) {
  const [tool, error] = useLoaded((signal) => get("/tool", { name }, signal), [name]);
  const tab = Object.hasOwn(TABS, query.tab ?? "") ? query.tab : "run";
  if (error) return html`<h1>${visible(name)}</h1><${Failure} error=${error} /><p><${Link} to="/tools" go=${go}>All tools<//></p>`;
  if (!tool) return html`<h1>${visible(name)}</h1><p class="dim" role="status">Loading…</p>`;
  const tabs = Object.entries(TABS).filter(([key]) => key !== "callers" || tool.callers.length);
  const to = (key) => `/tools/${encodeURIComponent(name)}${key === "run" ? "" : `?tab=${key}`}`;
  return html`
    <p class="crumbs"><${Link} to="/tools" go=${go}>Tools<//> / <${Link} to=${`/tools?server=${encodeURIComponent(tool.server)}`} go=${go}>${visible(tool.server)}<//></p>
    <h1>${visible(tool.name)}</h1>
    <p class="row"><${Annotations} annotations=${tool.annotations} isClaim=${tool.isUpstream} />
      ${tool.isListed ? null : html`<${Badge} text="quarantined" />`}
      <span class="dim">about ${number(tool.tokens)} of the ${number(tool.allTokens)} tokens of all tools</span></p>
    <p class="tool-description">${visible(tool.definition.description ?? "")}</p>
    <div class="tabs" role="navigation" aria-label="About this tool">
      ${tabs.map(([key, title]) => html`<${Link} to=${to(key)} go=${go} aria-current=${key === tab ? "page" : undefined}>${title}<//>`)}
    </div>
    ${tab === "run" ? html`<${Playground} tool=${tool} query=${query} go=${go} session=${session} />` : null}
    ${tab === "contract" ? html`<${Contract} tool=${tool} />` : null}
    ${tab === "history" ? html`<${History} tool=${tool} />` : null}
    ${tab === "callers" ? html`<${Callers} tool=${tool} go=${go} />` : null}
  `;
}

function Annotations({ annotations, isClaim }) {
  const words = [
    ["readOnlyHint", "read-only", "changes things"],
    ["destructiveHint", "destructive", "not destructive"],
    ["idempotentHint", "idempotent", "not idempotent"],
    ["openWorldHint", "open world", "closed world"],
  ];
  const found = words.filter(([key]) => typeof annotations[key] === "boolean");
  if (!found.length) return html`<span class="dim">no annotations</span>`;
  const kinds = { readOnlyHint: { true: "good" }, destructiveHint: { true: "bad" } };
  return html`${found.map(([key, yes, no]) => html`<${Badge} text=${annotations[key] ? yes : no} kind=${kinds[key]?.[annotations[key]] ?? ""} /> `)}
    ${isClaim ? html`<span class="dim">as its server claims</span>` : null}`;
}

// What was typed survives a reload: in the address, which can be shared, or in this tab if it is long or secret.
function load(tool, form, query) {
  for (const text of [query.arguments, sessionStorage.getItem(`toolpost.arguments.${tool.name}`)]) {
    try {
      const value = text ? parse(text) : null;
      if (value && typeof value === "object" && !Array.isArray(value)) return value;
    } catch {}
  }
  return form.start();
}

// Whether the arguments in the address were typed elsewhere: what is typed here is kept in the tab as well.
const isFromLink = (tool, query) => Boolean(query.arguments) && sessionStorage.getItem(`toolpost.arguments.${tool.name}`) !== query.arguments;

function keep(tool, form, value, go) {
  const text = stringify(value, 0);
  const isSecret = [...walk(form.describe(value))].some((field) => field.isSecret && field.isPresent);
  sessionStorage.removeItem(`toolpost.arguments.${tool.name}`);
  if (!isSecret && !isEqual(value, form.start())) sessionStorage.setItem(`toolpost.arguments.${tool.name}`, text);
  const isShared = !isSecret && text.length <= ADDRESS_CHARS && !isEqual(value, form.start());
  const path = `/tools/${encodeURIComponent(tool.name)}`;
  if (location.pathname === path) go(isShared ? `${path}?${new URLSearchParams({ arguments: text })}` : path, { replace: true });
}

function Playground({ tool, query, go, session }) {
  const schema = tool.definition.inputSchema ?? {};
  const form = useMemo(() => new Form(schema), [tool.digest]);
  const [value, setValue] = useState(() => load(tool, form, query));
  const [isForeign, setForeign] = useState(() => isFromLink(tool, query));
  const [issues, setIssues] = useState([]);
  const [broken, setBroken] = useState("");
  const [run, setRun] = useState(null); // { stop, callId, progress, requests, result, refused, seconds }
  const [caller, setCaller] = useState("");
  const timer = useRef(null);
  useEffect(() => () => clearTimeout(timer.current), []);

  const change = (made, repaired) => {
    setValue(made);
    setForeign(false);
    // What was repaired is no longer shown; what else was wrong is shown until the next call.
    if (repaired) setIssues((before) => before.filter((issue) => issue !== repaired && issue.path !== repaired.path));
    clearTimeout(timer.current);
    timer.current = setTimeout(() => keep(tool, form, made, go), WAIT_MS);
  };
  const editJson = (made) => {
    form.picks.clear();
    change(made);
  };
  const start = async () => {
    const stop = new AbortController();
    const began = performance.now();
    const seconds = () => (performance.now() - began) / 1000;
    setIssues([]);
    setForeign(false);
    setRun({ stop, progress: null });
    try {
      for await (const event of callTool({ tool: tool.name, arguments: value, caller: caller || undefined }, stop.signal, parse)) {
        if (event.type === "started") setRun((before) => ({ ...before, callId: event.callId }));
        if (event.type === "requests") setRun((before) => ({ ...before, requests: event.requests }));
        if (event.type === "progress") setRun((before) => ({ ...before, progress: event }));
        if (event.type === "result") {
          setIssues(issuesOf(read(event.result).error));
          setRun({ result: event.result, seconds: seconds() });
        }
        if (event.type === "refused") setRun({ refused: event.error, seconds: seconds() });
      }
      setRun((before) => (before?.stop ? { refused: { message: "The connection to the gateway broke before the result came.", hint: "Look at Calls for what became of the call." } } : before));
    } catch (error) {
      setRun(error.name === "AbortError" ? { isCancelled: true } : { refused: { message: error.message, hint: error.hint, code: error.code } });
    }
  };
  const tree = useMemo(() => form.describe(value), [form, value]);
  const placed = useMemo(() => placeIssues(issues, tree), [issues, tree]);
  useEffect(() => {
    // The first field with an issue, for those who do not see the form.
    if (issues.length) document.querySelector(".playground .invalid input, .playground .invalid select, .playground .invalid textarea, .playground .invalid button")?.focus();
  }, [issues.length > 0]);
  const isRunning = Boolean(run?.stop);
  // Two elements, by their keys: one that becomes the submit button while it is clicked would run the call again.
  const action = isRunning
    ? html`<button key="cancel" type="button" class="danger" onClick=${() => run.stop.abort()}>Cancel</button>`
    : html`<button key="run" type="submit" class="primary" disabled=${Boolean(broken)}>Run</button>`;
  const submit = (event) => {
    event.preventDefault();
    if (!isRunning && !broken) start();
  };
  return html`
    <form class="playground" onSubmit=${submit} noValidate>
      ${isForeign ? html`<p class="from-link" role="note"><${Badge} text="from a link" kind="warn" /> These arguments came with the address that was opened. Nothing has been run: look at them first.</p>` : null}
      <div class="panes">
        <fieldset class="pane" disabled=${Boolean(broken)}>
          <legend class="sr">Arguments</legend>
          ${broken ? html`<p class="dim">The JSON is not complete: the form shows the last arguments that were.</p>` : null}
          <${FormFields} form=${form} tree=${tree} value=${value} issues=${placed} onChange=${change} />
        </fieldset>
        <div class="pane"><${JsonEditor} value=${value} onChange=${editJson} onBroken=${setBroken} /></div>
      </div>
      <div class="row actions">
        ${action}
        <button type="button" onClick=${() => (form.picks.clear(), setIssues([]), setRun(null), change(form.start()))}>Reset</button>
        ${tool.callers.length > 1
          ? html`<label class="inline"><span>Run as</span>
              <select value=${caller} onChange=${(event) => setCaller(event.target.value)}>
                <option value="">${session.caller}</option>
                ${tool.callers.filter((each) => each.caller !== session.caller).map((each) => html`<option value=${each.caller}>${visible(each.caller)}</option>`)}
              </select>
            </label>
            ${caller ? html`<span class="dim">The audit names both: ${session.caller} as ${visible(caller)}.</span>` : null}`
          : null}
      </div>
      <div aria-live="polite">
        ${isRunning ? html`<${Progress} progress=${run.progress} />` : null}
        ${run?.isCancelled ? html`<p role="status"><${Badge} text="cancelled" /> The call was cancelled.</p>` : null}
      </div>
      ${run?.refused ? html`<${CallError} error=${run.refused} />` : null}
    </form>
    ${run?.requests ? html`<${ServerRequests} callId=${run.callId} requests=${run.requests} server=${tool.server} />` : null}
    ${run?.result ? html`<${Result} result=${run.result} seconds=${run.seconds} go=${go} />` : null}
    <${Snippets} tool=${tool} value=${value} needsToken=${!session.isOpen} />
  `;
}

function Progress({ progress }) {
  const known = progress?.total > 0;
  return html`<div class="row" role="status">
    <progress aria-label="Progress" value=${known ? progress.progress : undefined} max=${known ? progress.total : undefined}></progress>
    <span>${progress?.message ? visible(progress.message) : "Running…"}${known ? ` · ${progress.progress} of ${progress.total}` : ""}</span>
  </div>`;
}

function Snippets({ tool, value, needsToken }) {
  const [chosen, setChosen] = useState("command");
  const kinds = { command: ["toolpost call", asCommand], curl: ["curl", asCurl], python: ["Python", asPython] };
  const text = kinds[chosen][1](tool, value, { origin: location.origin, needsToken });
  return html`<section class="snippet" aria-label="The same call elsewhere">
    <div class="row">
      <h2>The same call</h2>
      ${Object.entries(kinds).map(([key, [title]]) => html`<button type="button" class="small" aria-pressed=${String(key === chosen)} onClick=${() => setChosen(key)}>${title}</button>`)}
    </div>
    <${Code} text=${text} label="The same call" isPlain />
  </section>`;
}

function Contract({ tool }) {
  const { definition } = tool;
  return html`
    <${SchemaTable} title="Arguments" schema=${definition.inputSchema} empty="It takes no arguments." />
    ${definition.outputSchema ? html`<${SchemaTable} title="Result" schema=${definition.outputSchema} empty="Nothing is said of it." />` : html`<h2>Result</h2><p class="dim">No output schema: the result may be anything.</p>`}
    <h2>Facts</h2>
    <dl class="facts">
      <dt>Time limit</dt><dd>${tool.timeoutSeconds} s</dd>
      <dt>Concurrency</dt><dd>${tool.concurrency}</dd>
      <dt>Schema version</dt><dd>${tool.schemaVersion}</dd>
      ${tool.toolingVersion ? html`<dt>Version of its code</dt><dd>${visible(tool.toolingVersion)}</dd>` : null}
      ${tool.errorCodes.length ? html`<dt>Error codes</dt><dd>${tool.errorCodes.join(", ")}</dd>` : null}
      ${tool.aliases.length ? html`<dt>Former names</dt><dd>${visible(tool.aliases.join(", "))}</dd>` : null}
      <dt>Digest</dt><dd><code>${tool.digest}</code></dd>
      <dt>Tokens</dt><dd>about ${number(tool.tokens)}</dd>
    </dl>
    <details><summary>As JSON</summary><${Code} text=${stringify(definition)} label="Definition" limit=${200000} /></details>
  `;
}

function SchemaTable({ title, schema, empty }) {
  const found = useMemo(() => (schema && typeof schema === "object" ? contractRows(schema) : []), [schema]);
  if (!found.length) return html`<h2>${title}</h2><p class="dim">${empty}</p>`;
  return html`
    <h2>${title}</h2>
    <${Table} label=${title} columns=${ARGUMENTS} rows=${found} keyOf=${(row) => found.indexOf(row)} />
  `;
}

const ARGUMENTS = [
  { name: "main", title: "Name", cell: (row) => html`<code>${visible(row.path)}</code>${row.option ? html` <small class="dim">${visible(row.option)}</small>` : null}` },
  { name: "type wrap", title: "Type", cell: (row) => visible(row.type) },
  { name: "required side", title: "Required", cell: (row) => (row.isRequired ? html`<${Badge} text="required" />` : "") },
  { name: "grow wrap", title: "Meaning", cell: (row) => html`${visible(row.description)}
    ${row.values.length ? html`<div><small>${visible(row.values.slice(0, 30).map((each) => stringify(each, 0)).join(", "))}${row.values.length > 30 ? ` and ${row.values.length - 30} more` : ""}</small></div>` : null}
    ${row.limits.length ? html`<div><small class="dim">${visible(row.limits.join(" · "))}</small></div>` : null}
    ${row.default !== undefined ? html`<div><small class="dim">default ${visible(stringify(row.default, 0))}</small></div>` : null}
    ${row.again ? html`<div><small class="dim">as ${visible(row.again)}, again</small></div>` : null}` },
];

function History({ tool }) {
  const [found, error] = useLoaded((signal) => get("/tool/history", { name: tool.name }, signal), [tool.name]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!found) return html`<p class="dim" role="status">Loading…</p>`;
  if (!found.versions.length) {
    return html`<${Empty} title="Nothing was recorded yet"><p>A definition is recorded a few seconds after it is first listed. Come back then.</p><//>`;
  }
  return html`<ol class="versions">
    ${found.versions.map((version, at) => html`<li key=${version.number}>
      <div class="row">
        <strong><${Time} at=${new Date(version.seenAt * 1000).toISOString()} /></strong>
        <span class="dim">schema version ${version.schemaVersion}${version.toolingVersion ? `, code ${visible(version.toolingVersion)}` : ""}</span>
        ${version.judgement ? html`<${Badge} text=${version.judgement.verdict} />` : html`<span class="dim">the first that is kept</span>`}
      </div>
      ${version.judgement?.changes.length
        ? html`<ul>${version.judgement.changes.slice(0, 20).map((change) => html`<li><${Badge} text=${change.verdict} /> <code>${change.rule}</code> <${Message} text=${change.message} /> ${change.place ? html`<small class="dim">${visible(change.place)}</small>` : null}</li>`)}</ul>`
        : null}
      ${version.judgement ? html`<details><summary>What changed, side by side</summary><${Versions} old=${found.versions[at + 1]?.definition} now=${version.definition} /></details>` : null}
    </li>`)}
  </ol>`;
}

function Versions({ old, now }) {
  const lines = useMemo(() => compare(stringify(old ?? {}).split("\n"), stringify(now).split("\n")), [old, now]);
  return html`<${Diff} lines=${lines} label="What changed" />`;
}

// Two lists of lines side by side, by their longest common part; what is too long for that is shown as replaced.
export function compare(old, now) {
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const [left, right] = [old.slice(start, old.length - end), now.slice(start, now.length - end)];
  const same = (line) => ({ kind: "same", old: line, new: line });
  const between = left.length * right.length > 1_000_000 ? pair(left, right) : diff(left, right);
  return [...old.slice(0, start).map(same), ...between, ...old.slice(old.length - end).map(same)];
}

function diff(left, right) {
  const table = Array.from({ length: left.length + 1 }, () => new Uint32Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      table[i][j] = left[i] === right[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const found = [];
  let [i, j, gone, added] = [0, 0, [], []];
  const flush = () => (found.push(...pair(gone, added)), (gone = []), (added = []));
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      flush();
      found.push({ kind: "same", old: left[i], new: right[j] });
      i += 1;
      j += 1;
    } else if (j >= right.length || (i < left.length && table[i + 1][j] >= table[i][j + 1])) gone.push(left[i++]);
    else added.push(right[j++]);
  }
  flush();
  return found;
}

const pair = (gone, added) =>
  Array.from({ length: Math.max(gone.length, added.length) }, (_, at) => {
    if (at >= added.length) return { kind: "gone", old: gone[at], new: null };
    if (at >= gone.length) return { kind: "new", old: null, new: added[at] };
    return { kind: "changed", old: gone[at], new: added[at] };
  });

function Callers({ tool }) {
  return html`
    <${Table} label="Who sees it" rows=${tool.callers} keyOf=${(row) => row.caller} columns=${[
      { name: "main", title: "Caller", sort: (row) => row.caller, cell: (row) => visible(row.caller) },
      { name: "side", title: "Sees it", sort: (row) => (row.sees ? "yes" : "no"), cell: (row) => html`<${Badge} text=${row.sees ? "yes" : "no"} kind=${row.sees ? "good" : ""} />` },
      { name: "grow wrap", title: "Why not", cell: (row) => (row.reason ? visible(row.reason) : "") },
    ]} />
    <p class="dim">Set by <code>tools</code>, <code>tags</code> and <code>mode</code> in <code>[callers.NAME]</code>.</p>
  `;
}
