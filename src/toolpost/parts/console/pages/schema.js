// A JSON Schema as a form needs it: references, `allOf` and conditions resolved into one flat schema. It is an aid for people: whether a
// value is valid is decided by the gateway alone, so what is not understood here is left out, and never refuses anything.

import { fromPointer, hasOwn, isEqual, typeOf } from "./exact.js";

const LOWER = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const UPPER = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
const RESOLVED = new Set(["$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"]);
const DEPTH = 8; // how deep a value is compared with a schema, to choose a form for it
const WRONG_CONSTANT = 8; // a wrong `kind: "circle"` counts more than any missing property
// A server writes its schemas, and `allOf` of references to `allOf` doubles at every level: beyond these, a form has plain JSON there.
const STEPS = 50_000;
const NESTING = 60;

export class Schemas {
  constructor(root) {
    this.root = root;
    this.anchors = null;
    this.steps = 0;
    this.nesting = 0;
  }

  // The schema that a reference names; undefined for one outside of this document.
  find(reference) {
    if (typeof reference !== "string" || !reference.startsWith("#")) return undefined;
    const place = decodeURIComponent(reference.slice(1));
    if (place === "") return this.root;
    if (!place.startsWith("/")) {
      this.anchors ??= anchorsOf(this.root);
      return this.anchors.get(place);
    }
    let found = this.root;
    for (const step of fromPointer(place)) {
      if (Array.isArray(found)) found = found[Number(step)];
      else if (hasOwn(found, step)) found = found[step];
      else return undefined;
    }
    return found;
  }

  // One flat schema: without references, `allOf` and conditions. What is left to choose is in `choices`, a list of lists.
  resolve(schema, value = undefined, trail = new Set()) {
    if (schema === false) return { isNever: true, choices: [] };
    this.steps += 1;
    if (typeOf(schema) !== "object" || this.steps > STEPS || this.nesting > NESTING) return { choices: [] };
    this.nesting += 1;
    try {
      return this.flatten(schema, value, trail);
    } finally {
      this.nesting -= 1;
    }
  }

  flatten(schema, value, trail) {
    const own = Object.fromEntries(Object.entries(schema).filter(([key]) => !RESOLVED.has(key)));
    own.choices = [];
    let merged = { choices: [] };
    const reference = schema.$ref ?? schema.$dynamicRef ?? schema.$recursiveRef;
    if (reference !== undefined && !trail.has(reference)) {
      const target = this.find(reference);
      if (target === undefined) own.unresolved = String(reference);
      else merged = merge(merged, { ...this.resolve(target, value, new Set([...trail, reference])), reference });
    }
    const also = (part) => (merged = merge(merged, this.resolve(part, value, trail)));
    for (const part of listOf(schema.allOf)) also(part);
    if (Object.hasOwn(schema, "if") && value !== undefined) {
      const branch = this.misfits(schema.if, value) === 0 ? schema.then : schema.else;
      if (branch !== undefined) also(branch);
    }
    for (const [name, part] of Object.entries(objectOf(schema.dependentSchemas))) if (hasOwn(value, name)) also(part);
    for (const [name, needs] of Object.entries(objectOf(schema.dependentRequired))) {
      if (hasOwn(value, name)) own.required = [...listOf(own.required), ...listOf(needs)];
    }
    for (const key of ["oneOf", "anyOf"]) if (listOf(schema[key]).length) own.choices.push(schema[key]);
    return merge(merged, own);
  }

  // How much of a value does not fit a schema: 0 if it seems to. Decides which form of a choice is shown, and nothing else.
  misfits(schema, value, depth = 0) {
    if (depth > DEPTH) return 0;
    const flat = this.resolve(schema, value);
    if (flat.isNever) return 1;
    if (Object.hasOwn(flat, "const")) return isEqual(flat.const, value) ? 0 : WRONG_CONSTANT;
    if (Array.isArray(flat.enum) && !flat.enum.some((option) => isEqual(option, value))) return WRONG_CONSTANT;
    const type = typeOf(value);
    const types = typesOf(flat);
    if (types && !types.includes(type) && !(type === "integer" && types.includes("number"))) return WRONG_CONSTANT;
    let count = 0;
    for (const branches of flat.choices) count += Math.min(...branches.map((branch) => this.misfits(branch, value, depth + 1)));
    if (type === "string") count += this.textMisfits(flat, value);
    if (type === "object") {
      for (const name of listOf(flat.required)) count += hasOwn(value, name) ? 0 : 1;
      for (const [name, each] of Object.entries(value)) {
        const part = this.schemaOf(flat, name);
        if (part === undefined) count += isClosed(flat) ? 1 : 0;
        else count += Math.min(WRONG_CONSTANT, this.misfits(part, each, depth + 1));
      }
    }
    if (type === "array") {
      value.slice(0, 50).forEach((item, at) => (count += Math.min(1, this.misfits(itemSchema(flat, at) ?? true, item, depth + 1))));
      if (value.length < (flat.minItems ?? 0) || value.length > (flat.maxItems ?? Infinity)) count += 1;
    }
    return count;
  }

  textMisfits(flat, text) {
    let count = 0;
    if (text.length < (flat.minLength ?? 0) || text.length > (flat.maxLength ?? Infinity)) count += 1;
    if (typeof flat.pattern === "string" && flat.pattern.length < 500 && text.length < 1000 && !matches(flat.pattern, text)) count += 1;
    return count;
  }

  // The schema of a property; undefined if none is declared for its name.
  schemaOf(flat, name) {
    if (hasOwn(flat.properties, name)) return flat.properties[name];
    for (const [pattern, part] of Object.entries(objectOf(flat.patternProperties))) if (matches(pattern, name)) return part;
    return typeOf(flat.additionalProperties) === "object" ? flat.additionalProperties : undefined;
  }
}

const objectOf = (value) => (typeOf(value ?? null) === "object" ? value : {});
const listOf = (value) => (Array.isArray(value) ? value : []);

function matches(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true; // a pattern of another dialect
  }
}

export const isClosed = (flat) => flat.additionalProperties === false || flat.unevaluatedProperties === false;

// The schema of an item; undefined where there may be none.
export function itemSchema(flat, at) {
  const first = listOf(flat.prefixItems ?? (Array.isArray(flat.items) ? flat.items : []));
  if (at < first.length) return first[at];
  const rest = Array.isArray(flat.items) ? flat.additionalItems : flat.items;
  return rest === false ? undefined : (rest ?? true);
}

export const typesOf = (flat) => (flat.type === undefined ? null : Array.isArray(flat.type) ? flat.type : [flat.type]);

function anchorsOf(root) {
  const found = new Map();
  const waiting = [root];
  while (waiting.length) {
    const part = waiting.pop();
    if (typeof part !== "object" || part === null) continue;
    for (const key of ["$anchor", "$dynamicAnchor"]) if (typeof part[key] === "string" && !found.has(part[key])) found.set(part[key], part);
    waiting.push(...Object.values(part));
  }
  return found;
}

// Both hold. Where that cannot be written in one flat schema, the second is shown.
function merge(one, other) {
  const merged = { ...one, ...other, choices: [...one.choices, ...other.choices] };
  const both = (key) => one[key] !== undefined && other[key] !== undefined;
  if (both("type")) merged.type = commonTypes(typesOf(one), typesOf(other));
  if (both("properties")) merged.properties = mergeEach(objectOf(one.properties), objectOf(other.properties));
  if (both("patternProperties")) merged.patternProperties = mergeEach(objectOf(one.patternProperties), objectOf(other.patternProperties));
  if (both("required")) merged.required = [...new Set([...listOf(one.required), ...listOf(other.required)])];
  if (both("enum")) merged.enum = listOf(one.enum).filter((option) => listOf(other.enum).some((each) => isEqual(each, option)));
  if (both("items") && !Array.isArray(one.items) && !Array.isArray(other.items)) merged.items = and(one.items, other.items);
  for (const key of ["additionalProperties", "unevaluatedProperties"]) if (both(key)) merged[key] = and(one[key], other[key]);
  for (const key of LOWER) if (both(key)) merged[key] = larger(one[key], other[key]);
  for (const key of UPPER) if (both(key)) merged[key] = larger(one[key], other[key]) === one[key] ? other[key] : one[key];
  return merged;
}

const larger = (one, other) => (Number(numberText(one)) >= Number(numberText(other)) ? one : other);
const numberText = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : value);

function and(one, other) {
  if (one === false || other === false) return false;
  if (one === true) return other;
  return other === true || isEqual(one, other) ? one : { allOf: [one, other] };
}

function mergeEach(one, other) {
  const names = [...new Set([...Object.keys(one), ...Object.keys(other)])];
  return Object.fromEntries(
    names.map((name) => {
      if (!Object.hasOwn(other, name)) return [name, one[name]];
      return [name, Object.hasOwn(one, name) ? and(one[name], other[name]) : other[name]];
    }),
  );
}

function commonTypes(one, other) {
  const found = one.filter((type) => other.includes(type) || (type === "integer" && other.includes("number")));
  if (one.includes("number") && other.includes("integer") && !found.includes("integer")) found.push("integer");
  return found.length === 1 ? found[0] : found;
}

const WORDS = { string: "text", integer: "whole number", number: "number", boolean: "yes or no", null: "null", array: "list", object: "object" };

// A few words for what a schema takes: `list of text`, `text (date)`.
export function summarize(schemas, schema, depth = 0) {
  const flat = schemas.resolve(schema);
  if (flat.isNever) return "nothing";
  if (Object.hasOwn(flat, "const")) return JSON.stringify(flat.const);
  if (Array.isArray(flat.enum)) return "one of several";
  if (flat.choices.length && depth < 2) {
    const words = [...new Set(flat.choices[0].map((branch) => summarize(schemas, branch, depth + 1)))];
    return words.length > 4 ? `one of ${words.length} forms` : words.join(" or ");
  }
  const types = typesOf(flat) ?? (guessType(flat) ? [guessType(flat)] : []);
  if (!types.length) return "any JSON";
  return types
    .map((type) => {
      if (type === "array" && typeOf(flat.items ?? null) === "object" && depth < 3) return `list of ${summarize(schemas, flat.items, depth + 1)}`;
      if (type === "string" && flat.format) return `text (${flat.format})`;
      return WORDS[type] ?? String(type);
    })
    .join(" or ");
}

// The type that a schema without `type` is about; undefined if it takes anything.
export function guessType(flat) {
  const has = (...keys) => keys.some((key) => flat[key] !== undefined);
  if (has("properties", "required", "additionalProperties", "patternProperties", "minProperties")) return "object";
  if (has("items", "prefixItems", "minItems", "maxItems", "contains")) return "array";
  if (has("minLength", "maxLength", "pattern", "format")) return "string";
  if (has("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")) return "number";
  return undefined;
}

// What else holds, in words: `at least 1`, `matches ^[a-z]+$`.
export function limits(flat) {
  const found = [];
  const say = (key, words) => flat[key] !== undefined && found.push(`${words} ${numberText(flat[key])}`);
  say("minimum", "at least");
  say("exclusiveMinimum", "more than");
  say("maximum", "at most");
  say("exclusiveMaximum", "less than");
  say("multipleOf", "a multiple of");
  const amount = (least, most, many) => {
    const what = Number(numberText(flat[most] ?? flat[least])) === 1 ? many.replace(/ies$/, "y").replace(/s$/, "") : many;
    if (flat[least] !== undefined && flat[most] !== undefined) found.push(`${numberText(flat[least])} to ${numberText(flat[most])} ${what}`);
    else if (flat[least] !== undefined) found.push(`at least ${numberText(flat[least])} ${what}`);
    else if (flat[most] !== undefined) found.push(`at most ${numberText(flat[most])} ${what}`);
  };
  amount("minLength", "maxLength", "characters");
  amount("minItems", "maxItems", "items");
  amount("minProperties", "maxProperties", "properties");
  if (flat.uniqueItems === true) found.push("no item twice");
  if (typeof flat.pattern === "string") found.push(`matches ${flat.pattern}`);
  return found;
}

// The schema as rows of a table, each with a path such as `filter.tags[]`. A reference to itself is named, and not followed again.
export function rows(root, most = 500) {
  const schemas = new Schemas(root);
  const found = [];
  const visit = (schema, path, isRequired, trail, option) => {
    if (found.length >= most) return;
    const flat = schemas.resolve(schema);
    const isAgain = flat.reference !== undefined && trail.includes(flat.reference);
    const inner = flat.reference === undefined ? trail : [...trail, flat.reference];
    if (path) {
      found.push({
        path,
        option,
        type: summarize(schemas, schema),
        isRequired,
        description: typeof flat.description === "string" ? flat.description : "",
        values: Array.isArray(flat.enum) ? flat.enum : [],
        limits: limits(flat),
        default: flat.default,
        again: isAgain ? flat.reference : null,
      });
    }
    if (isAgain || trail.length > 12) return;
    flat.choices.forEach((branches) =>
      branches.forEach((branch) => {
        const name = titleOf(schemas, branch);
        children(schemas.resolve(branch), branch, path, inner, name);
      }),
    );
    children(flat, schema, path, inner, option);
  };
  const children = (flat, _schema, path, trail, option) => {
    const inner = flat.reference === undefined || trail.includes(flat.reference) ? trail : [...trail, flat.reference];
    for (const [name, part] of Object.entries(objectOf(flat.properties))) {
      visit(part, path ? `${path}.${name}` : name, listOf(flat.required).includes(name), inner, option);
    }
    if (typeOf(flat.additionalProperties ?? null) === "object") visit(flat.additionalProperties, path ? `${path}.*` : "*", false, inner, option);
    listOf(flat.prefixItems).forEach((part, at) => visit(part, `${path}[${at}]`, false, inner, option));
    const items = Array.isArray(flat.items) ? null : flat.items;
    if (typeOf(items ?? null) === "object" && needsRows(schemas.resolve(items))) visit(items, `${path}[]`, false, inner, option);
  };
  visit(root, "", false, [], null);
  return found;
}

const needsRows = (flat) => flat.choices.length > 0 || guessType(flat) !== undefined || flat.description !== undefined || Array.isArray(flat.enum);

// What one form of a choice is called: its title, the constant that tells it apart, or a few words.
export function titleOf(schemas, schema) {
  const flat = schemas.resolve(schema);
  if (typeof flat.title === "string" && flat.title) return flat.title;
  for (const [name, part] of Object.entries(objectOf(flat.properties))) {
    const constant = schemas.resolve(part);
    if (Object.hasOwn(constant, "const")) return `${name}: ${JSON.stringify(constant.const)}`;
  }
  const required = listOf(flat.required);
  const words = summarize(schemas, schema);
  return words === "object" && required.length ? `object with ${required.slice(0, 3).join(", ")}` : words;
}
