// Contracts: tools that are not what they were when they were locked, or first seen.

import { get, post } from "/console/api.js";
import { Change } from "/console/change.js";
import { useEvents } from "/console/live.js";
import { Badge, Code, Diff, Empty, Failure, html, Link, Message, Table, useLoaded, useState } from "/console/parts.js";

export function View({ params, query, go }) {
  return params[0]
    ? html`<${Tool} key=${params[0]} name=${params[0]} go=${go} />`
    : html`<${List} only=${query.server} go=${go} />`;
}

const since = (promise) => (promise === "lock" ? "locked" : "first seen");

function List({ only, go }) {
  const [count, setCount] = useState(0);
  useEvents({}, (event) => event.kind === "servers" && setCount((before) => before + 1));
  const [found, error] = useLoaded((signal) => get("/contracts", {}, signal), [count]);
  const tools = (found?.tools ?? []).filter((tool) => !only || tool.server === only);
  return html`
    <h1>Contracts</h1>
    ${only ? html`<p>Of the server ${only}. <${Link} to="/contracts" go=${go}>Show all<//></p>` : null}
    ${error ? html`<${Failure} error=${error} />` : null}
    ${found && !tools.length ? html`<${Empty} title="Every tool is as it was promised">
      <p>${found.hasLock
        ? html`All tools are as <code>${found.lockFile}</code> has them. A tool that changes appears here, with what the change means for its callers.`
        : html`There is no lock yet: tools are compared with how they were first seen. <code>toolpost lock</code> writes one, to be committed with the configuration.`}</p>
    <//>` : null}
    ${tools.length ? html`<${Table} label="Changed tools" columns=${COLUMNS(go)} rows=${tools} keyOf=${(tool) => tool.tool} />` : null}
  `;
}

const COLUMNS = (go) => [
  { name: "main", title: "Tool", sort: (tool) => tool.tool, cell: (tool) => html`<${Link} to=${`/contracts/${encodeURIComponent(tool.tool)}`} go=${go}>${tool.tool}<//>` },
  { name: "side", title: "Verdict", sort: (tool) => tool.verdict, cell: (tool) => html`<${Badge} text=${tool.verdict} />
    ${tool.quarantined ? html` <${Badge} text="quarantined" />` : null}${tool.findings.length ? html` <${Badge} text="suspicious" />` : null}` },
  { name: "server", title: "Server", sort: (tool) => tool.server, cell: (tool) => html`<${Link} to=${`/servers/${encodeURIComponent(tool.server)}`} go=${go}>${tool.server}<//>` },
  { name: "since", title: "Compared with", sort: (tool) => tool.promise, cell: (tool) => (tool.promise === "lock" ? "the lock" : "its first definition") },
  { name: "grow wrap", title: "Changes", cell: (tool) => [...tool.rules, ...tool.findings].join(", ") },
];

const MEANING = {
  breaking: "Calls that used to work no longer do, or results have changed under those who read them.",
  review: "It cannot be decided by rule alone whether callers are affected: read the change.",
  compatible: "Every call that used to work still does.",
  pending: "The change is still being judged. Reload in a moment.",
};

function Tool({ name, go }) {
  const [tool, error, reload] = useLoaded((signal) => get("/contract", { tool: name }, signal), [name]);
  const [failure, setFailure] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [planned, setPlanned] = useState("");
  const back = html`<p class="crumbs"><${Link} to="/contracts" go=${go}>Contracts<//></p>`;
  if (error) return html`${back}<h1>${name}</h1><${Failure} error=${error} />`;
  if (!tool) return html`${back}<h1>${name}</h1>`;
  const accept = async () => {
    setBusy(true);
    setFailure(null);
    try {
      await post("/contract/accept", { tool: name, digest: tool.digest });
      go("/contracts");
    } catch (raised) {
      setFailure(raised);
      setBusy(false);
      reload();
    }
  };
  return html`
    ${back}
    <div class="row"><h1>${name}</h1><${Badge} text=${tool.verdict} />${tool.quarantined ? html`<${Badge} text="quarantined" />` : null}</div>
    <p>${MEANING[tool.verdict]} ${tool.quarantined ? "It is not run until you accept the change." : "It can still be called."}</p>
    ${failure ? html`<${Failure} error=${failure} onClose=${() => setFailure(null)} />` : null}
    <div class="row">
      <button type="button" class=${tool.verdict === "compatible" ? "primary" : ""} disabled=${isBusy} onClick=${accept}>Accept the change</button>
      ${tool.quarantined ? null : html`<button type="button" class=${tool.verdict === "breaking" ? "primary" : ""} onClick=${() => setPlanned("quarantine")}>Quarantine</button>`}
      <button type="button" class="danger" onClick=${() => setPlanned("reject")}>Reject the tool</button>
    </div>
    <p class="dim">Accepting writes the tool to toolpost.lock as it is now (<code>toolpost lock --accept ${name}</code>).
      ${tool.quarantined ? "" : " Quarantine holds its server to its contracts: changed tools are not run."} Rejecting leaves the tool out.</p>
    ${tool.changes.map((change) => html`<section class="card" key=${`${change.rule} ${change.place}`}>
      <h2><code>${change.rule}</code> <${Badge} text=${change.verdict} /></h2>
      <p><${Message} text=${change.message} /> <code class="dim">${change.place}</code></p>
      ${change.affected ? html`<p>Who notices: <${Message} text=${change.affected} />.</p>` : null}
      ${change.explanation ? html`<p class="dim"><${Message} text=${change.explanation} /></p>` : null}
      ${change.example !== undefined ? html`<p>${change.rule.startsWith("output.") ? "A result that no caller had to expect:" : change.rule === "input.argument-removed" ? "A call that sends it:" : "A call that used to work and no longer does:"}</p>
        <${Code} label="Example" text=${change.example} />` : null}
    </section>`)}
    ${tool.findings.map((finding) => html`<section class="card" key=${finding.place + finding.message}>
      <h2>${finding.place} <${Badge} text="suspicious" /></h2>
      <p>${finding.message}</p><${Code} label="Excerpt" text=${finding.excerpt ?? ""} />
    </section>`)}
    ${tool.isCutShort ? html`<p>The definition is too large to prove every case: read both sides.</p>` : null}
    <h2>Definition <small class="dim">as it was ${since(tool.promise)}, and now</small></h2>
    <${Diff} lines=${tool.diff} label="Definition before and now" />
    ${planned ? html`<${Change} title=${planned === "reject" ? `Reject ${name}` : `Quarantine changed tools of ${tool.server}`} path="/contract"
      body=${{ tool: name, action: planned }} verb=${planned === "reject" ? "Leave the tool out" : "Quarantine"} isDangerous=${planned === "reject"}
      text=${planned === "reject" ? "The tool is no longer listed, found or called." : "Changed tools of this server are listed, and not run until their change is accepted."}
      onClose=${(isDone) => (setPlanned(""), isDone && (planned === "reject" ? go("/contracts") : reload()))} />` : null}
  `;
}
