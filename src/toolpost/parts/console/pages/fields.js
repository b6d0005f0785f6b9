// The fields of a form, and the editor of its JSON. Both show the same arguments; `onChange` is given new ones.

import { html, Message, useEffect, useState } from "/console/parts.js";
import { visible } from "/console/gateway.js";
import { parse, stringify } from "./exact.js";
import { repair } from "./repair.js";

const shown = (value) => (typeof value === "string" ? value : value === undefined ? "" : stringify(value, 0));

// A form for a tree of fields. `issues` are by the pointer of the field that shows them.
export function FormFields({ form, tree, value, issues, onChange }) {
  const context = { form, value, issues, onChange };
  const props = tree.kind === "choice" ? { field: tree, context } : null;
  return html`<div class="form">
    <${Issues} found=${issues.get("")} context=${context} />
    ${props ? html`<${Choice} ...${props} />` : html`<${Members} field=${tree} context=${context} />`}
  </div>`;
}

function Field({ field, context }) {
  const { form, value, issues, onChange } = context;
  const found = issues.get(field.pointer);
  const remove = () => onChange(form.leaveOut(value, field));
  const isGroup = ["object", "array", "choice"].includes(field.kind);
  const canRemove = field.isPresent && (!field.isRequired || field.isExtra);
  const isItem = typeof field.path.at(-1) === "number";
  const name = isItem ? `item ${field.name}` : field.name || "value";
  const label = html`<span class="name">
    ${visible(name)}${field.isRequired && !field.isExtra && !isItem ? html`<span class="required" title="required"> *</span>` : null}
    ${field.isExtra ? html` <small>not declared</small>` : null} ${field.isDeprecated ? html` <small>deprecated</small>` : null}
  </span>`;
  const removal = canRemove
    ? html`<button type="button" class="small" aria-label=${`Leave out ${name}`} title="Leave it out" onClick=${remove}>×</button>`
    : null;
  const about = html`<${About} field=${field} />`;
  const problems = html`<${Issues} found=${found} context=${context} />`;
  if (isGroup) {
    return html`<fieldset class=${`field group ${found ? "invalid" : ""}`} data-pointer=${field.pointer}>
      <legend>${label} ${removal}</legend>
      ${about} ${problems}
      <${Group} field=${field} context=${context} />
    </fieldset>`;
  }
  return html`<div class=${`field ${found ? "invalid" : ""}`} data-pointer=${field.pointer}>
    <div class="head"><label for=${field.id}>${label}</label> ${removal}</div>
    <${Control} field=${field} context=${context} isInvalid=${Boolean(found)} />
    ${about} ${problems}
  </div>`;
}

function About({ field }) {
  const facts = [...field.limits];
  if (field.default !== undefined && !field.isPresent) facts.push(`default ${stringify(field.default, 0)}`);
  if (field.unresolved) facts.push(`refers to ${field.unresolved}, which is not in this schema`);
  if (field.expected && field.isPresent) facts.push(`the schema asks for ${field.expected}`);
  if (!field.description && !facts.length) return null;
  return html`<p class="about" id=${`${field.id}-about`}>
    ${field.description ? html`<span>${visible(field.description)}</span> ` : null}${facts.length ? html`<span class="limits">${visible(facts.join(" · "))}</span>` : null}
  </p>`;
}

function Issues({ found, context }) {
  if (!found?.length) return null;
  return html`<ul class="issues">
    ${found.map((issue) => {
      const after = repair(context.value, issue);
      return html`<li>
        <span><${Message} text=${issue.message} /></span>
        ${issue.suggestion
          ? after === undefined
            ? html` <em><${Message} text=${issue.suggestion} /></em>`
            : html` <button type="button" class="small repair" onClick=${() => context.onChange(after, issue)}><${Message} text=${issue.suggestion} /></button>`
          : null}
      </li>`;
    })}
  </ul>`;
}

function Group({ field, context }) {
  const { form, value, onChange } = context;
  if (field.kind === "choice") return html`<${Choice} field=${field} context=${context} />`;
  if (!field.isPresent) {
    return html`<button type="button" class="small" onClick=${() => onChange(form.add(value, field))}>Add ${field.kind === "array" ? "a list" : "it"}</button>`;
  }
  return html`<${Members} field=${field} context=${context} />`;
}

// What an object or a list has in it.
function Members({ field, context }) {
  const { form, value, onChange } = context;
  if (field.kind === "array") return html`<${Items} field=${field} context=${context} />`;
  if (field.kind !== "object") return html`<${Control} field=${field} context=${context} />`;
  return html`
    ${field.fields.map((each) => html`<${Field} key=${each.pointer} field=${each} context=${context} />`)}
    ${!field.fields.length && !field.canAdd ? html`<p class="about">It takes no arguments.</p>` : null}
    ${field.canAdd ? html`<${AddProperty} field=${field} onAdd=${(name) => onChange(form.addProperty(value, field, name))} />` : null}
  `;
}

function AddProperty({ field, onAdd }) {
  const [name, setName] = useState("");
  const isTaken = field.fields.some((each) => each.name === name && each.isPresent);
  const add = () => {
    if (name && !isTaken) onAdd(name);
    setName("");
  };
  return html`<div class="adding">
    <input
      aria-label="Name of another property"
      placeholder="another property"
      value=${name}
      onInput=${(event) => setName(event.target.value)}
      onKeyDown=${(event) => event.key === "Enter" && (event.preventDefault(), add())}
    />
    <button type="button" class="small" disabled=${!name || isTaken} onClick=${add}>Add</button>
  </div>`;
}

function Items({ field, context }) {
  const { form, value, onChange } = context;
  const change = (made) => () => onChange(made());
  return html`
    <ol class="items">
      ${field.items.map(
        (item, at) => html`<li key=${item.pointer}>
          <${Field} field=${item} context=${context} />
          <span class="moves">
            <button type="button" class="small" aria-label=${`Move item ${at} up`} disabled=${at === 0} onClick=${change(() => form.moveItem(value, field, at, at - 1))}>↑</button>
            <button type="button" class="small" aria-label=${`Move item ${at} down`} disabled=${at === field.items.length - 1} onClick=${change(() => form.moveItem(value, field, at, at + 1))}>↓</button>
            <button type="button" class="small" aria-label=${`Remove item ${at}`} onClick=${change(() => form.leaveOut(value, item))}>×</button>
          </span>
        </li>`,
      )}
    </ol>
    ${field.canAdd ? html`<button type="button" class="small" onClick=${change(() => form.addItem(value, field))}>Add an item</button>` : null}
  `;
}

function Choice({ field, context }) {
  const { form, value, onChange } = context;
  const inner = { ...field.chosen, name: field.name, isRequired: field.isRequired, isExtra: field.isExtra };
  const isPlain = !["object", "array", "choice"].includes(inner.kind);
  return html`
    <label class="form-choice">
      <span>Form</span>
      <select value=${String(field.selected)} onChange=${(event) => onChange(form.pick(value, field, Number(event.target.value)))}>
        ${field.forms.map((label, at) => html`<option value=${String(at)}>${visible(label)}</option>`)}
      </select>
    </label>
    ${isPlain
      ? html`<${Control} field=${inner} context=${context} label=${field.name || "value"} />`
      : html`<${Group} field=${inner} context=${context} />`}
  `;
}

const INPUTS = { date: /^\d{4}-\d\d-\d\d$/ };
const HINTS = {
  "date-time": "2026-01-31T12:00:00Z",
  time: "12:00:00Z",
  duration: "PT1H30M",
  email: "name@example.com",
  hostname: "example.com",
  uri: "https://example.com/",
  uuid: "123e4567-e89b-12d3-a456-426614174000",
};

function Control({ field, context, isInvalid = false, label }) {
  const { form, value, onChange } = context;
  const common = {
    id: field.id,
    "aria-invalid": isInvalid ? "true" : undefined,
    "aria-label": label,
    "aria-describedby": field.description || field.limits.length ? `${field.id}-about` : undefined,
  };
  const choose = (event) => {
    const at = Number(event.target.value);
    onChange(at < 0 ? form.leaveOut(value, field) : form.set(value, field, field.options[at].value));
  };
  if (field.kind === "enum") {
    const isOther = field.isPresent && field.selected < 0;
    return html`<select ...${common} value=${String(isOther ? -2 : field.selected)} onChange=${choose}>
      <option value="-1">${field.isRequired ? "Choose…" : "(left out)"}</option>
      ${isOther ? html`<option value="-2" disabled>${visible(shown(field.value))} (not one of them)</option>` : null}
      ${field.options.map((option, at) => html`<option value=${String(at)}>${visible(option.label)}</option>`)}
    </select>`;
  }
  if (field.kind === "boolean") {
    const set = (event) => onChange(event.target.value === "" ? form.leaveOut(value, field) : form.set(value, field, event.target.value === "true"));
    return html`<select ...${common} value=${field.isPresent ? String(field.value) : ""} onChange=${set}>
      <option value="">${field.isRequired ? "Choose…" : "(left out)"}</option>
      <option value="true">true</option>
      <option value="false">false</option>
    </select>`;
  }
  if (field.kind === "const" || field.kind === "null") {
    const constant = field.kind === "null" ? null : field.constant;
    const isSet = field.isPresent && stringify(field.value, 0) === stringify(constant, 0);
    return html`<span class="constant">
      <code id=${common.id}>${visible(stringify(constant, 0))}</code>
      ${isSet ? null : html` <button type="button" class="small" onClick=${() => onChange(form.set(value, field, constant))}>Set it</button>`}
    </span>`;
  }
  if (field.kind === "json") return html`<${JsonText} ...${common} label=${label} value=${field.value} onChange=${(made) => onChange(made === undefined ? form.leaveOut(value, field) : form.set(value, field, made))} />`;
  const type = (event) => onChange(form.type(value, field, event.target.value));
  const text = shown(field.value);
  const hint = field.default !== undefined ? shown(field.default) : (HINTS[field.format] ?? (field.examples.length ? shown(field.examples[0]) : ""));
  if (field.kind === "string" && field.isLong) return html`<textarea ...${common} rows="4" placeholder=${hint} onInput=${type} value=${text}></textarea>`;
  const isPicked = INPUTS[field.format] && (text === "" || INPUTS[field.format].test(text));
  const kind = field.isSecret ? "password" : isPicked ? field.format : "text";
  const mode = field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : undefined;
  return html`<input ...${common} type=${kind} inputmode=${mode} autocomplete="off" spellcheck="false" placeholder=${hint} value=${text} onInput=${type} />`;
}

// A small editor of one value as JSON. What is not JSON yet stays in it, and changes nothing.
function JsonText({ value, onChange, label, ...rest }) {
  const written = value === undefined ? "" : stringify(value);
  const [draft, setDraft] = useState(null);
  useEffect(() => setDraft(null), [written]);
  const edit = (event) => {
    const text = event.target.value;
    setDraft(text);
    if (text.trim() === "") onChange(undefined);
    else {
      try {
        const made = parse(text);
        if (stringify(made) !== written) onChange(made);
      } catch {}
    }
  };
  const text = draft ?? written;
  return html`<textarea ...${rest} aria-label=${label} class="json" rows=${Math.min(8, text.split("\n").length + 1)} spellcheck="false" placeholder="JSON" onInput=${edit} value=${text}></textarea>`;
}

// The arguments as JSON. Text that is not JSON is kept, and said so; the form shows the last arguments that were.
export function JsonEditor({ value, onChange, onBroken }) {
  const written = stringify(value);
  const [draft, setDraft] = useState(null); // { text, of, problem }
  const isOwn = draft !== null && draft.of === written;
  const edit = (event) => {
    const text = event.target.value;
    try {
      const made = text.trim() === "" ? {} : parse(text);
      if (typeof made !== "object" || made === null || Array.isArray(made)) throw new Error("Arguments are one JSON object: { … }");
      setDraft({ text, of: stringify(made), problem: "" });
      onBroken("");
      onChange(made);
    } catch (error) {
      setDraft({ text, of: written, problem: error.message });
      onBroken(error.message);
    }
  };
  const text = isOwn ? draft.text : written;
  useEffect(() => {
    if (!isOwn) onBroken("");
  }, [isOwn]);
  return html`<div class="json-editor">
    <label for="json-arguments"><span>Arguments as JSON</span></label>
    <textarea id="json-arguments" class="json" spellcheck="false" aria-invalid=${isOwn && draft.problem ? "true" : undefined} rows=${Math.max(6, Math.min(28, text.split("\n").length + 1))} onInput=${edit} value=${text}></textarea>
    ${isOwn && draft.problem ? html`<p class="problem" role="alert">This is not JSON: ${draft.problem}</p>` : null}
  </div>`;
}
