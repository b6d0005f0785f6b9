// Tables. The page scrolls, not the table: of a long one only the rows in sight exist, so that 100,000 of them scroll as 20 do.

import { html, useLayoutEffect, useMemo, useRef, useState } from "/console/vendor/htm-preact.js";

const ALL = 150; // rows up to which all exist
const SPARE = 12; // rows beyond the edges of the window that exist
const NARROW = matchMedia("(max-width: 60rem)"); // as in style.css

// `columns` are {
//   name    its classes: `number` is aligned to the right, `grow` takes the room that is left, `wide` is hidden where there is little,
//           `wrap` may have several lines; in a narrow window, where a row is a card, `main` is its title, `side` the corner beside it
//   title   its heading
//   cell    (row) => what it shows
//   sort    (row) => the value by which its heading sorts; without it, it does not
//   width   of a long table, such as "8rem"
// }. `rows` is any array. `onNear` is called when its end comes into sight, to load more. `sort` ("name", or "-name" for the largest
// first) and `onSort` are for views that have the order in their address; others leave both out.
export function Table({ columns, rows, keyOf, label, onNear, rowClass = () => "", sort, onSort }) {
  const [ownSort, setOwnSort] = useState("");
  const order = sort ?? ownSort;
  const sorted = useMemo(() => inOrder(rows, columns, order), [rows, order]);
  const isLong = sorted.length > ALL;
  const [body, range] = useRange(sorted.length, isLong, onNear);
  const put = (title) => (onSort ?? setOwnSort)(order === title ? `-${title}` : order === `-${title}` ? "" : title);
  const shown = isLong ? sorted.slice(range.first, range.last) : sorted;
  const first = isLong ? range.first : 0;
  const gap = (many) => (many > 0 ? html`<tr aria-hidden="true" class="gap" style=${{ height: `${many * range.height}px` }}><td colspan=${columns.length}></td></tr>` : null);
  return html`<section class=${`table ${isLong ? "long" : ""}`} aria-label=${label}>
    <table aria-rowcount=${rows.length + 1}>
      <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.name} style=${isLong && column.width ? { width: column.width } : {}} aria-sort=${orderOf(order, column)}>
        ${column.sort ? html`<button type="button" onClick=${() => put(column.title)}>${column.title}</button>` : column.title}
      </th>`)}</tr></thead>
      <tbody ref=${body}>
        ${isLong ? gap(first) : null}
        ${shown.map((row, at) => html`<tr key=${keyOf(row)} aria-rowindex=${first + at + 2} class=${rowClass(row)}>
          ${columns.map((column) => html`<td class=${column.name} data-title=${column.title}>${/\bmain\b/.test(column.name) ? html`<div>${column.cell(row)}</div>` : column.cell(row)}</td>`)}
        </tr>`)}
        ${isLong ? gap(sorted.length - Math.min(sorted.length, range.last)) : null}
      </tbody>
    </table>
  </section>`;
}

const orderOf = (order, { title, sort }) => (!sort ? undefined : order === title ? "ascending" : order === `-${title}` ? "descending" : "none");

function inOrder(rows, columns, order) {
  const column = columns.find((each) => each.sort && (order === each.title || order === `-${each.title}`));
  if (!column) return rows;
  const sign = order.startsWith("-") ? -1 : 1;
  const compare = (one, other) => (typeof one === "string" ? one.localeCompare(other) : one - other);
  return [...rows].sort((one, other) => {
    const [left, right] = [column.sort(one), column.sort(other)];
    if (left === right) return 0;
    // What has no value is last in both directions.
    if (left === null || left === undefined) return 1;
    return right === null || right === undefined ? -1 : sign * compare(left, right);
  });
}

// Which rows of a long table are in sight: [ref of the body, { first, last, height }].
function useRange(length, isLong, onNear) {
  const body = useRef(null);
  const [range, setRange] = useState({ first: 0, last: 60, height: 0 });
  useLayoutEffect(() => {
    const look = () => {
      const { top, bottom } = body.current.getBoundingClientRect();
      if (isLong) {
        const row = body.current.querySelector("tr:not(.gap)");
        const height = row?.getBoundingClientRect().height || 33;
        const first = Math.max(0, Math.floor(-top / height) - SPARE);
        const last = Math.ceil((innerHeight - top) / height) + SPARE;
        setRange((before) => (before.first === first && before.last === last && before.height === height ? before : { first, last, height }));
      }
      if (onNear && bottom < innerHeight * 2) onNear();
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    NARROW.addEventListener("change", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
      NARROW.removeEventListener("change", look);
    };
  }, [length, isLong, onNear]);
  return [body, range];
}

// Whether a text that somebody types as a filter is found in one of some values; all words must be.
export function matches(text, ...values) {
  const all = values.join("\n").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}
