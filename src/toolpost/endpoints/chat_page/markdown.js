// Markdown as elements. Text only ever becomes text: nothing here parses HTML, and links lead to http, https and mailto alone.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const INLINE =
  /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|__(?=\S)([\s\S]*?\S)__|\*(?=\S)([^*]*?[^*\s])\*|\b_(?=\S)([^_]*?[^_\s])_\b|~~(?=\S)([\s\S]*?\S)~~|\[([^\]\n]*)\]\(\s*<?([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"\n]*")?\s*\)|(https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]])/;
const DEPTH = 8;

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function render(text) {
  const made = document.createDocumentFragment();
  made.append(...blocks(text.replaceAll("\r\n", "\n").split("\n"), 0));
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
      made.push(element(`h${level}`, {}, ...inline(line.trim().replace(/^#+\s+|\s+#+$/g, ""))));
      at += 1;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      made.push(element("hr"));
      at += 1;
    } else if (/^ {0,3}>/.test(line) && depth < DEPTH) {
      const start = at;
      while (at < lines.length && /^ {0,3}>/.test(lines[at])) at += 1;
      const inner = lines.slice(start, at).map((quoted) => quoted.replace(/^ {0,3}> ?/, ""));
      made.push(element("blockquote", {}, ...blocks(inner, depth + 1)));
    } else if (ITEM.test(line) && depth < DEPTH) at = list(lines, at, made, depth);
    else if (line.includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1] ?? "") && lines[at + 1].includes("|"))
      at = table(lines, at, made);
    else at = paragraph(lines, at, made, depth);
  }
  return made;
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
    if (parts[0]?.localName === "p") parts.splice(0, 1, ...parts[0].childNodes);
    whole.append(element("li", {}, ...parts));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? "")) at += 1;
  }
  made.push(whole);
  return at;
}

function table(lines, at, made) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const row = (line, kind) => element("tr", {}, ...cells(line).map((cell) => element(kind, {}, ...inline(cell))));
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
  made.push(element("p", {}, ...inline(lines.slice(start, at).join("\n"))));
  return at;
}

function inline(text, depth = 0) {
  const made = [];
  let found;
  while (text && depth < DEPTH && (found = INLINE.exec(text))) {
    const [whole, , source, strong, strong2, weak, weak2, gone, label, target, bare] = found;
    if (found.index) made.push(text.slice(0, found.index));
    if (source !== undefined) made.push(element("code", {}, source.trim() || source));
    else if (strong ?? strong2) made.push(element("strong", {}, ...inline(strong ?? strong2, depth + 1)));
    else if (weak ?? weak2) made.push(element("em", {}, ...inline(weak ?? weak2, depth + 1)));
    else if (gone) made.push(element("del", {}, ...inline(gone, depth + 1)));
    else made.push(link(bare ?? target, bare ?? label, whole));
    text = text.slice(found.index + whole.length);
  }
  if (text) made.push(text);
  return made;
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
