// Say how long the chat page's Markdown takes to render texts of growing size: {"case": {"size": seconds}}.
// Usage: node markdown_costs.mjs path/to/markdown.js small large

import { readFileSync } from "node:fs";

class Node {
  constructor(name) {
    this.localName = name;
    this.childNodes = [];
  }
  setAttribute() {}
  append(...children) {
    for (const child of children) this.childNodes.push(child);
  }
}

globalThis.document = {
  createElement: (name) => new Node(name),
  createDocumentFragment: () => new Node("#fragment"),
};

const REPEATED = [
  ..."`*_~[#->|<",
  ...["**a ", "__a ", "*a ", "_a ", "~~a ", "***a", "a** ", "**a *b* ", "*a **b", "**a *b __c _d ~~e `f [g"],
  ...["[a](", "[a](x(y)", '[a](b "', "[a](<", "![", "``a`", "`a``b```c", "`a`", "http://", "http://.", "[a](http://b.c) "],
  ...["- a\n", " - a\n", "1. a\n  b\n", "> a\n", "a\n\n", "# #\n", "```\n", "~~~~\nx\n", "|a|b\n|-|-\n", "- - ", "\n"],
];
const CASES = {
  "a heading of spaces": (size) => `# a${" ".repeat(size)}b`,
  "a heading of marks": (size) => `# a${"#".repeat(size)}`,
  "a rule that is none": (size) => `|\n${"-".repeat(size)}x`,
  "an item that is none": (size) => `- ${" ".repeat(size / 2)}${"x".repeat(size / 2)}\r`,
  "a link of spaces": (size) => `[a](b${" ".repeat(size)}`,
  "backticks in a line": (size) => `a${"`".repeat(size)}`,
};
for (const piece of REPEATED) CASES[JSON.stringify(piece)] = (size) => piece.repeat(Math.ceil(size / piece.length));

const [path, ...sizes] = process.argv.slice(2);
const { render } = await import(`data:text/javascript,${encodeURIComponent(readFileSync(path, "utf8"))}`);
const costs = {};
for (const [name, make] of Object.entries(CASES)) {
  costs[name] = {};
  for (const size of sizes.map(Number)) {
    const text = make(size);
    const took = [1, 2].map(() => {
      const begun = process.cpuUsage();
      render(text);
      const { user, system } = process.cpuUsage(begun);
      return (user + system) / 1e6;
    });
    costs[name][size] = Math.min(...took);
  }
}
console.log(JSON.stringify(costs));
