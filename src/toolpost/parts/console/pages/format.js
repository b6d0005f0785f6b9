// Numbers, durations and times, each written in one way everywhere.

const GROUPS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : GROUPS.format(value));
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
// A part of a whole; below ten percent with one decimal.
export const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part && part * 10 < whole ? 1 : 0)} %` : "–");
export const bytes = (size) => (size === null || size === undefined ? "–" : `${(size / 1024 / 1024).toFixed(1)} MiB`);

// A duration in milliseconds.
export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(value * 1000)} µs`;
  if (value < 100) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  return value < 100_000 ? `${(value / 1000).toFixed(2)} s` : duration(value / 1000);
}

// A duration in seconds, by its two largest units.
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

const two = (value) => String(value).padStart(2, "0");

// A moment in the time of this browser: 2026-11-19 21:34:59.
export function time(iso) {
  if (!iso) return "–";
  const at = new Date(iso);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// A moment as seen from now: "2 min ago"; older than a month, its date.
export function ago(iso, now = Date.now()) {
  const seconds = (now - Date.parse(iso)) / 1000;
  const size = Math.abs(seconds);
  if (size < 5) return "now";
  if (size > 30 * 86_400) return time(iso).slice(0, 10);
  const [length, unit] = size < 60 ? [1, "s"] : size < 3600 ? [60, "min"] : size < 86_400 ? [3600, "h"] : [86_400, "d"];
  const text = `${Math.floor(size / length)} ${unit}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}
