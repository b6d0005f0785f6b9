// A form for a JSON Schema, as plain values: `describe` makes a tree of fields from a schema and the arguments. The arguments are the
// one truth, which the form and the JSON editor both show and change; so what a form cannot express stays in the JSON.
//
// Kinds of fields: object, array, choice, enum, const, string, number, integer, boolean, null, and json for anything else, also for a
// value of another type than the schema asks for.

import { exactNumber, hasOwn, isEqual, stringify, toPointer, typeOf, valueAt, without, withValue } from "./exact.js";
import { guessType, isClosed, itemSchema, limits, Schemas, titleOf, typesOf } from "./schema.js";

const START_DEPTH = 6; // required objects within required objects that a new form begins with
const CHOICES = 4; // choices within choices of one value; beyond, it is shown as JSON

export class Form {
  // `id` begins the ids of its fields: two forms of a page need two.
  constructor(schema, id = "field") {
    this.id = id;
    this.schemas = new Schemas(schema);
    this.root = schema;
    this.picks = new Map(); // by pointer: the form of a choice that was picked, where a value fits several
  }

  // The tree of fields. A value that is absent has a field and no fields below it, so that recursive schemas come to an end.
  describe(value) {
    this.schemas.steps = 0;
    return this.field(this.root, value ?? {}, [], { isRequired: true, name: "" });
  }

  // The arguments that a new form begins with: required constants, defaults, and the objects around them.
  start() {
    const made = this.starter(this.root, 0);
    return typeOf(made ?? null) === "object" ? made : {};
  }

  field(schema, value, path, { isRequired, name, isExtra = false, choices = 0 }) {
    const flat = this.schemas.resolve(schema, value);
    const field = {
      name,
      path,
      pointer: toPointer(path),
      id: `${this.id}${toPointer(path)}`,
      title: typeof flat.title === "string" ? flat.title : "",
      description: typeof flat.description === "string" ? flat.description : "",
      isRequired,
      isExtra,
      isPresent: value !== undefined,
      isSecret: flat.writeOnly === true || flat.format === "password",
      isDeprecated: flat.deprecated === true,
      unresolved: flat.unresolved,
      value,
      default: flat.default,
      examples: Array.isArray(flat.examples) ? flat.examples : [],
      limits: limits(flat),
      schema,
    };
    return { ...field, ...this.shape(flat, value, path, choices) };
  }

  shape(flat, value, path, choices) {
    if (Object.hasOwn(flat, "const")) return { kind: "const", constant: flat.const };
    if (Array.isArray(flat.enum)) return { kind: "enum", ...optionsOf(flat.enum.map((option) => [option, ""]), value) };
    const labeled = this.constants(flat);
    if (labeled) return { kind: "enum", ...optionsOf(labeled, value) };
    const forms = this.forms(flat);
    if (forms) return choices < CHOICES ? this.choice(forms, value, path, choices) : { kind: "json" };
    const type = typesOf(flat)?.[0] ?? guessType(flat);
    if (type === undefined || flat.isNever) return { kind: "json" };
    if (!isShown(type, value)) return { kind: "json", expected: type };
    if (type === "object") return this.objectShape(flat, value, path);
    if (type === "array") return this.arrayShape(flat, value, path);
    if (type === "string") return { kind: "string", format: typeof flat.format === "string" ? flat.format : "", isLong: isLong(flat, value) };
    return { kind: type };
  }

  // `oneOf` of constants is an enum with labels.
  constants(flat) {
    if (flat.choices.length !== 1) return null;
    const branches = flat.choices[0].map((branch) => this.schemas.resolve(branch));
    if (!branches.every((branch) => Object.hasOwn(branch, "const") && branch.properties === undefined)) return null;
    return branches.map((branch) => [branch.const, branch.title ?? branch.description ?? ""]);
  }

  // The forms that a value may have: the branches of a choice, or several types. Null if there is only one.
  forms(flat) {
    const types = typesOf(flat);
    if (flat.choices.length) {
      const [branches, ...others] = flat.choices;
      const { choices: _, ...base } = flat;
      const rest = [base, ...others.map((each) => ({ anyOf: each }))];
      const within = Object.keys(base).length || others.length ? (branch) => ({ allOf: [...rest, branch] }) : (branch) => branch;
      return branches.map((branch) => ({ label: titleOf(this.schemas, branch), schema: within(branch) }));
    }
    if (types && types.length > 1) {
      const { choices: _, ...base } = flat;
      return types.map((type) => ({ label: titleOf(this.schemas, { type, format: flat.format, items: flat.items }), schema: { ...base, type } }));
    }
    return null;
  }

  choice(forms, value, path, choices) {
    const selected = this.selectedForm(forms, value, path);
    // The chosen form stands at the same path, and has the name and the texts of the choice around it.
    const chosen = this.field(forms[selected].schema, value, path, { isRequired: true, name: "", choices: choices + 1 });
    return { kind: "choice", forms: forms.map((form) => form.label), selected, chosen, formSchemas: forms.map((form) => form.schema) };
  }

  selectedForm(forms, value, path) {
    const picked = path === null ? undefined : this.picks.get(`${toPointer(path)}#${forms.length}`);
    if (picked !== undefined && picked < forms.length) return picked;
    if (value === undefined) {
      const first = forms.findIndex((form) => typesOf(this.schemas.resolve(form.schema))?.[0] !== "null");
      return Math.max(0, first);
    }
    const counts = forms.map((form) => this.schemas.misfits(form.schema, value) - this.evidence(form.schema, value));
    return counts.indexOf(Math.min(...counts));
  }

  // What speaks for a form: a constant of it that is there, then properties that it declares. An open form refuses nothing, and would
  // fit better than the one that is meant and not complete yet.
  evidence(schema, value) {
    if (typeOf(value) !== "object") return 0;
    const declared = Object.entries(this.schemas.resolve(schema, value).properties ?? {}).filter(([name]) => hasOwn(value, name));
    const constants = declared.filter(([name, part]) => {
      const flat = this.schemas.resolve(part);
      return Object.hasOwn(flat, "const") && isEqual(flat.const, value[name]);
    });
    return 4 * constants.length + declared.length / 1000;
  }

  objectShape(flat, value, path) {
    const declared = Object.entries(flat.properties ?? {});
    const required = new Set(Array.isArray(flat.required) ? flat.required : []);
    const canAdd = !isClosed(flat);
    if (value === undefined) return { kind: "object", fields: [], canAdd };
    const names = new Set(declared.map(([name]) => name));
    const fields = declared
      .filter(([name, part]) => hasOwn(value, name) || !isReserved(part))
      .map(([name, part]) => this.field(part, ownOf(value, name), [...path, name], { isRequired: required.has(name), name }));
    for (const name of required) {
      if (names.has(name) || hasOwn(value, name)) continue;
      fields.push(this.field(this.schemas.schemaOf(flat, name) ?? true, undefined, [...path, name], { isRequired: true, name }));
    }
    for (const [name, each] of Object.entries(value)) {
      if (names.has(name)) continue;
      const part = this.schemas.schemaOf(flat, name) ?? true;
      fields.push(this.field(part, each, [...path, name], { isRequired: required.has(name), name, isExtra: true }));
    }
    return { kind: "object", fields, canAdd, added: flat };
  }

  arrayShape(flat, value, path) {
    const next = value?.length ?? 0;
    const canAdd = next < (Number(flat.maxItems ?? Infinity) || 0) && itemSchema(flat, next) !== undefined;
    const items = (value ?? []).map((item, at) =>
      this.field(itemSchema(flat, at) ?? true, item, [...path, at], { isRequired: true, name: String(at) }),
    );
    return { kind: "array", items, canAdd, added: flat };
  }

  // What an absent value begins with when it is added. Never undefined.
  blank(schema, choices = 0) {
    const made = this.starter(schema, 0);
    if (made !== undefined || choices > CHOICES) return made ?? null;
    const flat = this.schemas.resolve(schema);
    if (Array.isArray(flat.enum) && flat.enum.length) return flat.enum[0];
    const labeled = this.constants(flat);
    if (labeled) return labeled[0][0];
    const forms = this.forms(flat);
    if (forms) return this.blank(forms[this.selectedForm(forms, undefined, null)].schema, choices + 1);
    const type = typesOf(flat)?.[0] ?? guessType(flat);
    if (type === "string") return "";
    if (type === "boolean") return false;
    if (type === "integer" || type === "number") return flat.minimum ?? 0;
    return null;
  }

  // What is known of a value before anybody has written one; undefined if nothing is.
  starter(schema, depth) {
    const flat = this.schemas.resolve(schema);
    if (flat.default !== undefined) return flat.default;
    if (Object.hasOwn(flat, "const")) return flat.const;
    if (Array.isArray(flat.enum)) return flat.enum.length === 1 ? flat.enum[0] : undefined;
    if (this.constants(flat)) return undefined;
    const forms = this.forms(flat);
    if (forms) {
      const first = this.schemas.resolve(forms[this.selectedForm(forms, undefined, null)].schema);
      if ((typesOf(first)?.[0] ?? guessType(first)) !== "object" || depth >= START_DEPTH) return undefined;
      return this.starter(forms[this.selectedForm(forms, undefined, null)].schema, depth + 1);
    }
    const type = typesOf(flat)?.[0] ?? guessType(flat);
    if (type === "array") return [];
    if (type === "null") return null;
    if (type !== "object" || depth > START_DEPTH) return undefined;
    const required = Array.isArray(flat.required) ? flat.required : [];
    const entries = Object.entries(flat.properties ?? {})
      .filter(([name]) => required.includes(name))
      .map(([name, part]) => [name, this.starter(part, depth + 1)]);
    return Object.fromEntries(entries.filter(([, each]) => each !== undefined));
  }

  // Edits. Each returns the arguments after it.

  set(value, field, made) {
    return withValue(value, field.path, made);
  }

  // What was typed into a field for text or a number. An empty optional field is left out.
  type(value, field, text) {
    if (text === "" && (!field.isRequired || field.kind !== "string")) return without(value, field.path);
    // A text that is no number is sent as it is, for the gateway to say what is wrong with it.
    const made = field.kind === "string" ? text : (exactNumber(text.trim()) ?? text);
    return withValue(value, field.path, made);
  }

  add(value, field) {
    return withValue(value, field.path, this.blank(field.schema));
  }

  leaveOut(value, field) {
    return without(value, field.path);
  }

  addItem(value, field) {
    const items = valueAt(value, field.path) ?? [];
    const at = items.length;
    return withValue(value, field.path, [...items, this.blank(itemSchema(field.added, at) ?? true)]);
  }

  moveItem(value, field, from, to) {
    const items = [...valueAt(value, field.path)];
    items.splice(to, 0, ...items.splice(from, 1));
    return withValue(value, field.path, items);
  }

  addProperty(value, field, name) {
    const part = this.schemas.schemaOf(field.added, name);
    return withValue(value, [...field.path, name], part === undefined ? "" : this.blank(part));
  }

  // Another form of a choice: what both forms know is kept, and so is what neither declares.
  pick(value, field, index) {
    this.picks.set(`${field.pointer}#${field.forms.length}`, index);
    const now = valueAt(value, field.path);
    const [old, wanted] = [field.formSchemas[field.selected], field.formSchemas[index]];
    const target = this.schemas.resolve(wanted);
    const type = typesOf(target)?.[0] ?? guessType(target);
    const made = this.blank(wanted);
    if (typeOf(now ?? null) !== "object" || type !== "object") {
      const fits = now !== undefined && this.schemas.misfits(wanted, now) === 0;
      return withValue(value, field.path, fits ? now : made);
    }
    const before = Object.keys(this.schemas.resolve(old).properties ?? {});
    const after = target.properties ?? {};
    const kept = Object.entries(now).filter(([name, each]) => {
      if (!Object.hasOwn(after, name)) return !before.includes(name);
      const part = this.schemas.resolve(after[name]);
      return !Object.hasOwn(part, "const") || isEqual(part.const, each);
    });
    return withValue(value, field.path, { ...made, ...Object.fromEntries(kept) });
  }
}

const ownOf = (value, name) => (hasOwn(value, name) ? value[name] : undefined);
const isReserved = (schema) => schema === false || (typeOf(schema ?? null) === "object" && schema["x-reserved"] !== undefined);

function optionsOf(pairs, value) {
  const options = pairs.map(([option, label]) => ({ value: option, label: label || (typeof option === "string" ? option : stringify(option, 0)) }));
  return { options, selected: value === undefined ? -1 : options.findIndex((option) => isEqual(option.value, value)) };
}

// Whether a field of this type can show a value. One for numbers shows a text too: it is what somebody has typed.
function isShown(type, value) {
  if (value === undefined) return true;
  const found = typeOf(value);
  if (type === "number" || type === "integer") return found === "integer" || found === "number" || found === "string";
  return found === type;
}

function isLong(flat, value) {
  const text = typeof value === "string" ? value : "";
  return text.includes("\n") || text.length > 80 || Number(flat.maxLength ?? 0) > 200 || Boolean(flat.contentMediaType);
}

// All fields of a tree, the outer ones first.
export function* walk(field) {
  yield field;
  if (field.kind === "choice") for (const each of walk(field.chosen)) if (each !== field.chosen) yield each;
  for (const each of [...(field.fields ?? []), ...(field.items ?? [])]) yield* walk(each);
}
