// Issues of a refused call: at which field each is shown, and what its suggestion does when it is clicked.
//
// A suggestion is a sentence for a model; `repair` knows every sentence of `contracts/issues/explanation.py`, and a test has
// each of them repaired here and validated there.

import { exactNumber, fromPointer, parse, renamed, toPointer, typeOf, valueAt, without, withValue } from "./exact.js";
import { walk } from "./form.js";

// The issues by the pointer of the field that shows each: its own, that of a missing property, or else the nearest around it.
export function placeIssues(issues, tree) {
  const known = new Set([...walk(tree)].map((field) => field.pointer));
  const placed = new Map();
  for (const issue of issues) {
    let path = fromPointer(issue.path);
    if (issue.keyword === "required" && typeof issue.expected === "string") path = [...path, issue.expected];
    while (path.length && !known.has(toPointer(path))) path = path.slice(0, -1);
    const pointer = toPointer(path);
    placed.set(pointer, [...(placed.get(pointer) ?? []), issue]);
  }
  return placed;
}

const WORDS = { true: true, yes: true, false: false, no: false };

// What a text holds as JSON, as the gateway reads it; undefined if it is not JSON.
function unquoted(text) {
  if (typeof text !== "string") return undefined;
  const word = text.trim().toLowerCase();
  if (Object.hasOwn(WORDS, word)) return WORDS[word];
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

function parsed(text) {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

// By the beginning of a sentence: the value after the repair, from what is there now. Undefined: nothing can be done by itself.
const VALUES = [
  [/^did you mean (".*")\?$/s, (_now, [, option]) => parsed(option)],
  [/^send (?:.*) without quotes$/s, (now) => unquoted(now)],
  [/^send the (?:object|array) itself, not a string/, (now) => unquoted(now)],
  [/^send (?:.*) itself, not an array$/s, (now) => (Array.isArray(now) ? now[0] : undefined)],
  [/^send it as a string/, (now) => (typeOf(now) === "string" ? undefined : JSON.stringify(now))],
  [/^send a whole number, such as (-?\d+)$/, (_now, [, number]) => exactNumber(number)],
  [/^send (true|false)$/, (_now, [, word]) => word === "true"],
  [/^wrap it in an array/, (now) => [now]],
  [/^(?:add a time and a zone|write it as|send only the date|add the scheme):? (\S+)$/, (_now, [, text]) => text],
  [/^for example (.+)$/, (_now, [, text]) => text],
];

// The arguments after a suggestion was followed; undefined if it has to be followed by hand.
export function repair(value, issue) {
  const suggestion = issue.suggestion ?? "";
  const path = fromPointer(issue.path);
  // Texts of the gateway are cut after 200 characters: what is cut can be neither a name nor a value.
  if (suggestion.includes("…") || issue.path.includes("…")) return undefined;
  const rename = /^rename `(.*)` to `(.*)`$/s.exec(suggestion);
  if (rename) return renameIn(value, [...path, rename[1]], rename[2]);
  const meant = /^did you mean `(.*)`\?$/s.exec(suggestion);
  if (meant) return renameIn(value, path, meant[1]);
  const now = valueAt(value, path);
  if (now === undefined) return undefined;
  if (suggestion === "leave it out" && path.length) return without(value, path);
  const item = /^remove item (\d+)$/.exec(suggestion);
  if (item && Array.isArray(now)) return without(value, [...path, Number(item[1])]);
  for (const [pattern, make] of VALUES) {
    const found = pattern.exec(suggestion);
    const made = found ? make(now, found) : undefined;
    if (made !== undefined) return withValue(value, path, made);
  }
  return undefined;
}

function renameIn(value, path, name) {
  const parent = valueAt(value, path.slice(0, -1));
  const isThere = typeOf(parent ?? null) === "object" && Object.hasOwn(parent, path.at(-1));
  // A property that is there already was meant: its value is not to be lost.
  return isThere && !Object.hasOwn(parent, name) ? renamed(value, path, name) : undefined;
}
