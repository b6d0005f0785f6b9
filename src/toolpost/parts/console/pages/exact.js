// JSON whose numbers stay as they are written. `JSON.parse` makes doubles of them: 12345678901234567890 would be sent as another
// number, and 1.0 as 1. A number that a double does not write alike is kept as `JSON.rawJSON`, which `JSON.stringify` writes back.

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

export const parse = (text) =>
  JSON.parse(text, (_key, value, context) => (typeof value === "number" ? exactNumber(context.source) : value));

export const stringify = (value, indent = 2) => JSON.stringify(value, null, indent);

// The number that a text spells, exactly; undefined if it is not a number of JSON.
export function exactNumber(text) {
  if (!NUMBER.test(text)) return undefined;
  return String(Number(text)) === text ? Number(text) : JSON.rawJSON(text);
}

const isRaw = (value) => JSON.isRawJSON(value);

// As JSON Schema names it; of a whole number, `integer`.
export function typeOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number" || isRaw(value)) return Number.isInteger(Number(stringify(value))) ? "integer" : "number";
  return typeof value;
}

// Whether two values are the same JSON; the order of keys does not matter.
export function isEqual(one, other) {
  const type = typeOf(one);
  if (type === "integer" || type === "number") {
    return ["integer", "number"].includes(typeOf(other)) && isSameNumber(stringify(one), stringify(other));
  }
  if (type !== typeOf(other)) return false;
  if (type === "array") return one.length === other.length && one.every((item, at) => isEqual(item, other[at]));
  if (type !== "object") return one === other;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => Object.hasOwn(other, key) && isEqual(one[key], other[key]));
}

function isSameNumber(one, other) {
  if (one === other) return true;
  // Whole numbers that differ may be the same double.
  if (/^-?\d+$/.test(one) && /^-?\d+$/.test(other)) return BigInt(one) === BigInt(other);
  return Number(one) === Number(other);
}

// A path is an array of names and numbers; its JSON Pointer is what issues name.
export const toPointer = (path) => path.map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

export const fromPointer = (pointer) =>
  pointer.split("/").slice(1).map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));

export const hasOwn = (value, name) => typeOf(value) === "object" && Object.hasOwn(value, name);

// What is at a path; undefined if nothing is.
export function valueAt(value, path) {
  for (const step of path) {
    if (Array.isArray(value)) value = value[Number(step)];
    else if (hasOwn(value, step)) value = value[step];
    else return undefined;
  }
  return value;
}

// A copy with another value at a path. What stands in the way of the path is replaced by an object.
export function withValue(value, path, made) {
  if (path.length === 0) return made;
  const [step, ...rest] = path;
  if (Array.isArray(value)) {
    const copy = [...value];
    copy[Number(step)] = withValue(value[Number(step)], rest, made);
    return copy;
  }
  const from = typeOf(value) === "object" ? value : {};
  // A computed key and a spread make own properties, also of `__proto__`.
  return { ...from, [step]: withValue(hasOwn(from, step) ? from[step] : undefined, rest, made) };
}

export function without(value, path) {
  const parent = valueAt(value, path.slice(0, -1));
  const last = path.at(-1);
  if (path.length === 0 || parent === undefined) return value;
  const left = Array.isArray(parent)
    ? parent.filter((_, at) => at !== Number(last))
    : Object.fromEntries(Object.entries(parent).filter(([name]) => name !== String(last)));
  return withValue(value, path.slice(0, -1), left);
}

// A copy in which the property at a path has another name, at the same place. What had that name before gives way.
export function renamed(value, path, name) {
  const parent = valueAt(value, path.slice(0, -1));
  const entries = Object.entries(parent)
    .filter(([key]) => key !== name || key === path.at(-1))
    .map(([key, each]) => [key === path.at(-1) ? name : key, each]);
  return withValue(value, path.slice(0, -1), Object.fromEntries(entries));
}
