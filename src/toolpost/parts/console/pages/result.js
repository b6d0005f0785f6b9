// The result of a call: text, images, audio, resources and tables. All of it is text of strangers: shown, never interpreted.

import { Badge, Code, Hint, html, Link, Message, ms, Table, useState } from "/console/parts.js";
import { visible } from "/console/gateway.js";
import { stringify, typeOf } from "./exact.js";

const META = "dev.toolpost/meta";
const ROWS = 200;

// What a result says: { error, data, blocks, callId }. The gateway's own tools answer in an envelope, servers in their own form.
export function read(result, metaKey = META) {
  const facts = result._meta?.[metaKey] ?? {};
  const structured = result.structuredContent;
  const isEnvelope = typeOf(structured ?? null) === "object" && typeof structured.ok === "boolean" && ("data" in structured || "error" in structured);
  const blocks = Array.isArray(result.content) ? result.content : [];
  const [first, ...others] = blocks;
  let error = isEnvelope ? structured.error : null;
  if (result.isError && !error) error = errorIn(first, structured) ?? { message: blocks.filter((block) => block?.type === "text").map((block) => block.text).join("\n") };
  const data = isEnvelope ? structured.data : structured;
  // Beside structured content, the first text repeats it for clients that read only text.
  const isRepeated = structured !== undefined && first?.type === "text" && isJsonOf(first.text, structured);
  return { error, data, blocks: isRepeated || (error && first?.type === "text") ? others : blocks, callId: facts.callId, code: facts.code, isError: Boolean(result.isError) };
}

function errorIn(first, structured) {
  const found = structured?.error ?? parsed(first?.text);
  return typeOf(found ?? null) === "object" && typeof found.message === "string" ? found : null;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const isJsonOf = (text, value) => {
  const found = parsed(text);
  return found !== undefined && JSON.stringify(found) === JSON.stringify(JSON.parse(stringify(value, 0)));
};

export const issuesOf = (error) => (Array.isArray(error?.details?.issues) ? error.details.issues : []);

export function Result({ result, seconds, go }) {
  const [isRaw, setRaw] = useState(false);
  const found = read(result);
  return html`<section class="result" aria-label="Result">
    <div class="row">
      <h2>Result</h2>
      <${Badge} text=${found.isError ? "error" : "ok"} />
      <span class="dim">${ms(seconds * 1000)}</span>
      ${found.callId ? html`<${Link} to=${`/calls/${encodeURIComponent(found.callId)}`} go=${go}>Call ${found.callId.slice(0, 8)}…<//>` : null}
      <button type="button" class="small end" aria-pressed=${String(isRaw)} onClick=${() => setRaw(!isRaw)}>Raw</button>
    </div>
    ${isRaw
      ? html`<${Code} text=${stringify(result)} label="The whole result" limit=${200000} />`
      : html`
          ${found.error ? html`<${CallError} error=${found.error} />` : null}
          ${!found.error && found.data !== undefined ? html`<${Data} value=${found.data} />` : null}
          ${found.blocks.map((block, at) => html`<${Block} key=${at} block=${block} />`)}
          ${!found.error && found.data === undefined && !found.blocks.length ? html`<p class="dim">The result is empty.</p>` : null}
        `}
  </section>`;
}

export function CallError({ error }) {
  const issues = issuesOf(error);
  return html`<div class="failure" role="alert">
    <p>${error.code ? html`<code>${error.code}</code> ` : null}<strong><${Message} text=${error.message ?? "The tool failed."} /></strong> <${Hint} text=${error.hint ? String(error.hint) : ""} /></p>
    ${issues.length ? html`<p>${issues.length === 1 ? "One argument is" : `${issues.length} arguments are`} to be changed: see the form.</p>` : null}
    ${!issues.length && error.details && Object.keys(error.details).length ? html`<${Code} text=${stringify(error.details)} label="Details" />` : null}
  </div>`;
}

// A list of objects is a table; anything else is JSON or text.
function Data({ value }) {
  if (typeof value === "string") return html`<${Code} text=${value} label="Text" limit=${100000} />`;
  const rows = rowsOf(value);
  if (rows) return html`<${DataTable} rows=${rows} />`;
  const inner = typeOf(value) === "object" ? Object.entries(value) : [];
  // `{ "items": [ … ], "next": … }`: the list is a table, the rest is above it.
  const lists = inner.filter(([, each]) => rowsOf(each));
  if (lists.length === 1 && inner.length <= 8) {
    const rest = Object.fromEntries(inner.filter(([name]) => name !== lists[0][0]));
    return html`
      ${Object.keys(rest).length ? html`<${Code} text=${stringify(rest)} label="Data" />` : null}
      <h3>${visible(lists[0][0])}</h3>
      <${DataTable} rows=${rowsOf(lists[0][1])} />
    `;
  }
  return html`<${Code} text=${stringify(value)} label="Data" limit=${100000} />`;
}

function rowsOf(value) {
  if (!Array.isArray(value) || !value.length || !value.every((row) => typeOf(row) === "object")) return null;
  const columns = new Set(value.slice(0, ROWS).flatMap((row) => Object.keys(row)));
  return columns.size && columns.size <= 20 ? value : null;
}

function DataTable({ rows }) {
  const columns = [...new Set(rows.slice(0, ROWS).flatMap((row) => Object.keys(row)))];
  const shown = rows.slice(0, ROWS);
  const isNumber = (value) => ["number", "integer"].includes(typeOf(value));
  const cell = (value) => (value === undefined ? "" : typeof value === "string" ? value : stringify(value, 0));
  return html`
    <${Table} label="Data" rows=${shown} keyOf=${(row) => shown.indexOf(row)} columns=${columns.map((name, at) => ({
      name: `${at ? "" : "main "}${shown.every((row) => isNumber(row[name])) ? "number" : ""}`,
      title: visible(name),
      cell: (row) => html`<span title=${visible(cell(row[name]))}>${visible(cell(row[name]))}</span>`,
    }))} />
    <p class="dim">${rows.length > ROWS ? `The first ${ROWS} of ${rows.length} rows; Raw has all of them.` : `${rows.length} row${rows.length === 1 ? "" : "s"}`}</p>
  `;
}

const IMAGE = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const AUDIO = /^audio\/[\w.+-]+$/;
const BASE64 = /^[A-Za-z0-9+/=\s_-]*$/;

function Block({ block }) {
  if (block?.type === "text") return html`<${Code} text=${String(block.text)} label="Text" limit=${100000} />`;
  if (block?.type === "image" || block?.type === "audio") return html`<${Media} data=${block.data} type=${block.mimeType} />`;
  if (block?.type === "resource_link") {
    return html`<p class="resource"><${Address} uri=${String(block.uri)} /> ${block.title ?? block.name ? visible(String(block.title ?? block.name)) : ""} ${block.description ? html`<span class="dim">${visible(String(block.description))}</span>` : null}</p>`;
  }
  if (block?.type === "resource" && block.resource) {
    const { uri, mimeType, text, blob } = block.resource;
    return html`<div class="resource">
      <p><${Address} uri=${String(uri)} /> <span class="dim">${mimeType ? visible(String(mimeType)) : ""}</span></p>
      ${typeof text === "string" ? html`<${Code} text=${text} label="Resource" limit=${100000} />` : html`<${Media} data=${blob} type=${mimeType} />`}
    </div>`;
  }
  return html`<${Code} text=${stringify(block)} label="Content" />`;
}

function Media({ data, type }) {
  if (typeof data !== "string" || !BASE64.test(data)) return html`<p class="bad">The data of this content is not base64.</p>`;
  const kind = typeof type === "string" ? type : "application/octet-stream";
  const source = `data:${/^[\w.+/-]+$/.test(kind) ? kind : "application/octet-stream"};base64,${data}`;
  const size = Math.round((data.length * 3) / 4);
  const save = html`<a href=${source.replace(/^data:[^;]*/, "data:application/octet-stream")} download="result">Save ${size} bytes</a>`;
  if (IMAGE.test(kind)) return html`<figure><img src=${source} alt=${`Image of the result, ${kind}`} /><figcaption class="dim">${kind} · ${save}</figcaption></figure>`;
  if (AUDIO.test(kind)) return html`<figure><audio controls src=${source}></audio><figcaption class="dim">${kind} · ${save}</figcaption></figure>`;
  return html`<p><span class="dim">${visible(kind)}</span> ${save}</p>`;
}

// Only a web address is a link; `javascript:` and all others are text.
export function Address({ uri }) {
  if (!/^https?:\/\//i.test(uri)) return html`<code>${visible(uri)}</code>`;
  return html`<a href=${uri} target="_blank" rel="noopener noreferrer">${visible(uri)}</a>`;
}
