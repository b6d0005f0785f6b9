// What a tool's server asks during a call: a form to fill in, an address to open, folders to name. The person answers, declines, or
// cancels; nothing is answered by itself, and no address is opened.

import { post } from "/console/api.js";
import { Failure, html, useEffect, useMemo, useRef, useState } from "/console/parts.js";
import { visible } from "/console/gateway.js";
import { typeOf } from "./exact.js";
import { FormFields } from "./fields.js";
import { Form } from "./form.js";
import { Address } from "./result.js";

// `roots/list`, as the form that answers it.
const ROOTS = {
  type: "object",
  additionalProperties: false,
  required: ["roots"],
  properties: {
    roots: {
      type: "array",
      default: [],
      description: "Folders that the server may work in. An empty list is an answer too.",
      items: {
        type: "object",
        required: ["uri"],
        additionalProperties: false,
        properties: {
          uri: { type: "string", examples: ["file:///home/ann/project"] },
          name: { type: "string" },
        },
      },
    },
  },
};

// All requests that wait for an answer: `requests` by their keys.
export function ServerRequests({ callId, requests, server }) {
  return Object.entries(requests).map(
    ([key, request]) => html`<${ServerRequest} key=${`${callId} ${key}`} id=${`request-${key}`} request=${request} server=${server}
      onAnswer=${(response) => post("/call/answer", { callId, key, response })} />`,
  );
}

function ServerRequest({ id, request, server, onAnswer }) {
  const params = typeOf(request.params ?? null) === "object" ? request.params : {};
  const isForm = request.method === "elicitation/create" && params.mode !== "url";
  const isUrl = request.method === "elicitation/create" && params.mode === "url";
  // The server asks for what it declares, and for nothing else.
  const schema = useMemo(() => (isForm ? { ...params.requestedSchema, additionalProperties: false } : isUrl ? null : ROOTS), [id]);
  const form = useMemo(() => (schema ? new Form(schema, id) : null), [id]);
  const [value, setValue] = useState(() => form?.start() ?? {});
  const [failure, setFailure] = useState(null);
  const [isSent, setSent] = useState(false);
  const box = useRef(null);
  // A person who does not see the page is told by the role; one who types goes on in the new form.
  useEffect(() => box.current?.querySelector("input, select, textarea, button")?.focus(), []);
  const tree = useMemo(() => form?.describe(value), [form, value]);
  const isFitting = !form || form.schemas.misfits(schema, value) === 0;
  const hasFields = Boolean(tree) && (tree.kind !== "object" || tree.fields.length > 0 || tree.canAdd);

  const send = async (response) => {
    setSent(true);
    setFailure(null);
    try {
      await onAnswer(response);
    } catch (error) {
      setFailure(error);
      setSent(false);
    }
  };
  const accept = (event) => {
    event.preventDefault();
    if (isSent) return;
    if (isForm) send({ action: "accept", content: value });
    else send(isUrl ? { action: "accept" } : value);
  };
  const decline = () => send(isForm || isUrl ? { action: "decline" } : undefined);
  const title = isForm ? "asks you for something" : isUrl ? "asks you to open an address" : "asks which folders it may work in";
  return html`<section class="card asks" ref=${box} role="alertdialog" aria-labelledby=${`${id}-title`}>
    <form onSubmit=${accept} noValidate>
      <h2 id=${`${id}-title`}>${visible(server)} ${title}</h2>
      ${typeof params.message === "string" ? html`<p class="tool-description">${visible(params.message)}</p>` : null}
      ${isUrl ? html`<p><${Address} uri=${String(params.url)} /></p>
        <p class="dim">Open it only if you expected it: the address is the server's. Accept when you have.</p>` : null}
      ${hasFields ? html`<${FormFields} form=${form} tree=${tree} value=${value} issues=${NO_ISSUES} onChange=${setValue} />` : null}
      ${isForm ? html`<p class="dim">What you enter is sent to the server ${visible(server)}. It must not be a password or another secret.</p>` : null}
      ${failure ? html`<${Failure} error=${failure} />` : null}
      <div class="row">
        <button type="submit" class="primary" disabled=${isSent}>Accept</button>
        <button type="button" disabled=${isSent} onClick=${decline}>Decline</button>
        ${isForm || isUrl ? html`<button type="button" disabled=${isSent} onClick=${() => send({ action: "cancel" })}>Dismiss</button>` : null}
        ${isFitting ? null : html`<span class="dim" role="status">Something that is required is missing, or does not fit: the server may refuse it.</span>`}
      </div>
    </form>
  </section>`;
}

const NO_ISSUES = new Map();
