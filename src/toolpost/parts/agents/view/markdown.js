// Markdown as elements. Text only ever becomes text: nothing here parses HTML, and links lead to http, https and mailto alone.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(\S.*|)$/;
const STARTS = /[`*_~[]|https?:\/\//g;
const LINK_TARGET = /\(\s*<?([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"\n]*")?\s*\)/y;
const BARE_LINK = /https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]]/y;
const DEPTH = 8;

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  append(made, children.flat());
  return made;
}

// One by one: there may be more children than a function takes arguments.
function append(parent, children) {
  for (const child of children) parent.append(child);
}

export function render(text) {
  const made = document.createDocumentFragment();
  append(made, blocks(text.replaceAll("\r\n", "\n").split("\n"), 0));
  return made;
}

function blocks(lines, depth) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) at = code(lines, at, fence, made);
    else if (/^ {0,3}#{1,6}\s/.test(line)) {
      const level = Math.min(6, line.trimStart().match(/^#+/)[0].length + 2);
      made.push(element(`h${level}`, {}, inline(headingOf(line))));
      at += 1;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      made.push(element("hr"));
      at += 1;
    } else if (/^ {0,3}>/.test(line) && depth < DEPTH) {
      const start = at;
      while (at < lines.length && /^ {0,3}>/.test(lines[at])) at += 1;
      const inner = lines.slice(start, at).map((quoted) => quoted.replace(/^ {0,3}> ?/, ""));
      made.push(element("blockquote", {}, blocks(inner, depth + 1)));
    } else if (ITEM.test(line) && depth < DEPTH) at = list(lines, at, made, depth);
    else if (line.includes("|") && isRule(lines[at + 1] ?? "")) at = table(lines, at, made);
    else at = paragraph(lines, at, made, depth);
  }
  return made;
}

// The words of a heading, without the marks around them.
function headingOf(line) {
  const words = line.trim().replace(/^#+\s+/, "");
  let end = words.length;
  while (words[end - 1] === "#") end -= 1;
  return /\s/.test(words[end - 1] ?? "") ? words.slice(0, end).trimEnd() : words;
}

function isRule(line) {
  return line.includes("|") && line.includes("-") && /^[\s|:-]*$/.test(line);
}

function code(lines, at, fence, made) {
  const inner = [];
  for (at += 1; at < lines.length; at += 1) {
    const end = lines[at].trim();
    if (end.length >= fence[1].length && end.replaceAll(fence[1][0], "") === "") break;
    inner.push(lines[at]);
  }
  made.push(element("pre", {}, element("code", fence[2] ? { "data-language": fence[2] } : {}, inner.join("\n"))));
  return at + 1;
}

function list(lines, at, made, depth) {
  const first = ITEM.exec(lines[at]);
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const whole = element(ordered ? "ol" : "ul", ordered ? { start: parseInt(first[2], 10) } : {});
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || item[1].length !== indent || /\d/.test(item[2]) !== ordered) break;
    const inner = [item[3]];
    const deep = item[0].length - item[3].length;
    for (at += 1; at < lines.length; at += 1) {
      const next = lines[at];
      const own = ITEM.exec(next);
      if (own && own[1].length <= indent) break;
      if (!next.trim() && !/^ {2,}\S/.test(lines[at + 1] ?? "")) break;
      if (!own && next.trim() && !next.startsWith("  ") && !lines[at - 1].trim()) break;
      inner.push(next.slice(Math.min(deep, next.length - next.trimStart().length)));
    }
    const parts = blocks(inner, depth + 1);
    // A short item is a line, not a paragraph.
    const short = parts[0]?.localName === "p" ? [...parts.shift().childNodes] : [];
    whole.append(element("li", {}, short, parts));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? "")) at += 1;
  }
  made.push(whole);
  return at;
}

function table(lines, at, made) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const row = (line, kind) => element("tr", {}, cells(line).map((cell) => element(kind, {}, inline(cell))));
  const whole = element("table", {}, element("thead", {}, row(lines[at], "th")));
  const body = element("tbody");
  for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) body.append(row(lines[at], "td"));
  whole.append(body);
  made.push(whole);
  return at;
}

function paragraph(lines, at, made, depth) {
  const start = at;
  at += 1;
  while (at < lines.length && lines[at].trim() && !FENCE.test(lines[at]) && !/^ {0,3}(#{1,6}\s|>)/.test(lines[at])) {
    if (ITEM.test(lines[at]) && depth < DEPTH) break;
    at += 1;
  }
  made.push(element("p", {}, inline(lines.slice(start, at).join("\n"))));
  return at;
}

// Text is read from left to right, and an end is looked for once: 100 KB of beginnings without an end must not freeze the page.
function inline(text, depth = 0) {
  if (depth >= DEPTH) return text ? [text] : [];
  const made = [];
  const ends = new Ends(text);
  let from = 0;
  STARTS.lastIndex = 0;
  for (let start; (start = STARTS.exec(text)); ) {
    const found = inlineAt(text, start.index, from, ends, depth);
    if (found) {
      if (start.index > from) made.push(text.slice(from, start.index));
      made.push(found.node);
      from = found.end;
    }
    // The inner text was read with the same expression.
    STARTS.lastIndex = found ? found.end : start.index + 1;
  }
  if (from < text.length) made.push(text.slice(from));
  return made;
}

// Where things end, for positions that only grow: what was found is kept until it is passed.
class Ends {
  constructor(text) {
    this.text = text;
    this.known = new Map();
    this.runs = null;
    this.run = 0;
  }

  // Where the backticks end that begin at a position, or are there in the middle.
  runFrom(at) {
    if (this.run <= at) for (this.run = at + 1; this.text[this.run] === "`"; ) this.run += 1;
    return this.run;
  }

  // The first match of a pattern at or after a position, -1 if there is none.
  next(pattern, at) {
    let known = this.known.get(pattern);
    if (!known || (known.found !== -1 && known.found < at)) {
      const global = new RegExp(pattern, "g");
      global.lastIndex = at;
      known = { found: global.exec(this.text)?.index ?? -1 };
      this.known.set(pattern, known);
    }
    return known.found;
  }

  // The first run of exactly so many backticks at or after a position, -1 if there is none.
  ticks(count, at) {
    if (!this.runs) {
      this.runs = new Map();
      for (const run of this.text.matchAll(/`+/g)) {
        const same = this.runs.get(run[0].length);
        if (same) same.starts.push(run.index);
        else this.runs.set(run[0].length, { starts: [run.index], passed: 0 });
      }
    }
    const same = this.runs.get(count);
    if (!same) return -1;
    while (same.starts[same.passed] < at) same.passed += 1;
    return same.starts[same.passed] ?? -1;
  }
}

function inlineAt(text, at, from, ends, depth) {
  const mark = text[at];
  if (mark === "`") return sourceAt(text, at, ends);
  if (mark === "[") return labelAt(text, at, ends);
  if (mark === "h") return bareAt(text, at);
  const name = mark === "~" ? "del" : "strong";
  if (text[at + 1] === mark && isSolid(text[at + 2])) {
    const end = ends.next(mark === "*" ? "\\S\\*\\*" : `\\S${mark}${mark}`, at + 2);
    if (end !== -1) return { node: element(name, {}, inline(text.slice(at + 2, end + 1), depth + 1)), end: end + 3 };
  }
  if (mark === "~" || !isSolid(text[at + 1])) return null;
  const end = ends.next(mark === "*" ? "\\*" : "_", at + 1);
  if (end <= at + 1 || !isSolid(text[end - 1])) return null;
  // An underscore within a word is part of it.
  if (mark === "_" && ((at > from && isWord(text[at - 1])) || isWord(text[end + 1]))) return null;
  return { node: element("em", {}, inline(text.slice(at + 1, end), depth + 1)), end: end + 1 };
}

function sourceAt(text, at, ends) {
  const start = ends.runFrom(at);
  const end = ends.ticks(start - at, start);
  if (end === -1) return null;
  const source = text.slice(start, end);
  return { node: element("code", {}, source.trim() || source), end: end + start - at };
}

function labelAt(text, at, ends) {
  const end = ends.next("[\\]\\n]", at + 1);
  if (end === -1 || text[end] !== "]") return null;
  LINK_TARGET.lastIndex = end + 1;
  const target = LINK_TARGET.exec(text);
  if (!target) return null;
  const whole = text.slice(at, LINK_TARGET.lastIndex);
  return { node: link(target[1], text.slice(at + 1, end), whole), end: at + whole.length };
}

function bareAt(text, at) {
  BARE_LINK.lastIndex = at;
  const found = BARE_LINK.exec(text);
  return found && { node: link(found[0], found[0], found[0]), end: at + found[0].length };
}

function isSolid(letter) {
  return letter !== undefined && /\S/.test(letter);
}

function isWord(letter) {
  return letter !== undefined && /\w/.test(letter);
}

function link(target, label, whole) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return whole;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return whole;
  return element("a", { href: url.href, title: url.href, rel: "noopener noreferrer", target: "_blank" }, label || url.href);
}
