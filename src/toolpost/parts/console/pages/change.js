// What would change in toolpost.toml, and the button that changes it: shown first, then done.

import { post } from "/console/api.js";
import { Dialog, Diff, Failure, html, Message, useLoaded, useState } from "/console/parts.js";

// `path` is where plans are asked for (`PATH/plan`) and carried out (`PATH/change`), `body` what is sent to both.
// `onClose(true)` is called when it was done. `children` are further fields.
export function Change({ title, path, body, verb, isDangerous = false, text, onClose, onBack, children }) {
  const [failure, setFailure] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [plan, error, again] = useLoaded((signal) => post(`${path}/plan`, body, signal), [JSON.stringify(body)]);
  const apply = async () => {
    setBusy(true);
    setFailure(null);
    try {
      await post(`${path}/change`, { ...body, base: plan.base });
      onClose(true);
    } catch (raised) {
      setFailure(raised);
      setBusy(false);
      again();
    }
  };
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)}>
    ${failure ?? error ? html`<${Failure} error=${failure ?? error} />` : null}
    ${plan && !error ? html`
      <p class="dim">${plan.isNew ? "Creates" : "Changes"} <code>${plan.file}</code>. ${text}</p>
      <${Diff} lines=${plan.diff} label="What changes" />
      ${plan.notes.map((note) => html`<p><${Message} text=${note} /></p>`)}
      ${children}
    ` : null}
    <div class="row">
      <button type="button" class=${isDangerous ? "danger" : "primary"} disabled=${!plan || Boolean(error) || isBusy} onClick=${apply}>${isBusy ? "Trying it out…" : verb}</button>
      ${onBack ? html`<button type="button" onClick=${onBack}>Back</button>` : null}
      <button type="button" onClick=${() => onClose(false)}>Cancel</button>
    </div>
  <//>`;
}
