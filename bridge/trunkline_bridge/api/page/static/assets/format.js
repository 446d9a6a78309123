/** Renders values for people: states, times, durations, counts and cost. */

/** @typedef {"ok" | "warn" | "error" | "info" | "neutral"} Tone */

/** @type {Record<string, Tone>} */
const STATE_TONES = {
  submitted: "neutral",
  working: "info",
  "input-required": "warn",
  "auth-required": "warn",
  completed: "ok",
  failed: "error",
  rejected: "error",
  canceled: "neutral",
};

/** The states of a task, as people read them. */
export const TASK_STATES = Object.keys(STATE_TONES);
const ENDED = new Set(["completed", "failed", "rejected", "canceled"]);

/**
 * Returns the short name of an enum's value: TASK_STATE_INPUT_REQUIRED is `input-required`.
 * @param {string | undefined} value
 * @param {string} prefix `TASK_STATE_`
 */
export function enumName(value, prefix) {
  const name = (value ?? "").toUpperCase().replaceAll("-", "_");
  return name.replace(prefix, "").toLowerCase().replaceAll("_", "-");
}

/**
 * Returns the short name of a task's state, by whichever name it came.
 * @param {string | undefined} state
 */
export function stateName(state) {
  return enumName(state, "TASK_STATE_") || "unknown";
}

/** @param {string | undefined} state */
export function hasEnded(state) {
  return ENDED.has(stateName(state));
}

/**
 * @param {string | undefined} state
 * @returns {Tone}
 */
export function stateTone(state) {
  return STATE_TONES[stateName(state)] ?? "neutral";
}

/**
 * Returns a time of the API in milliseconds since 1970, or NaN.
 * @param {string | undefined | null} time RFC 3339
 */
export function timeMs(time) {
  return time ? Date.parse(time) : NaN;
}

/**
 * Returns a time of the API in nanoseconds since 1970, without losing digits as a Date does.
 * @param {string | undefined | null} time RFC 3339
 */
export function timeNs(time) {
  if (!time) return 0n;
  const fraction = /\.(\d+)/.exec(time)?.[1] ?? "";
  const seconds = Math.floor(Date.parse(time) / 1000);
  return BigInt(seconds) * 1_000_000_000n + BigInt(fraction.padEnd(9, "0").slice(0, 9));
}

/**
 * Returns the milliseconds between two times of the API, with their microseconds, which a Date drops; or NaN.
 * @param {string | undefined | null} from RFC 3339
 * @param {string | undefined | null} to
 */
export function elapsedMs(from, to) {
  return from && to ? Number(timeNs(to) - timeNs(from)) / 1_000_000 : NaN;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayAndYear = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

/**
 * Returns how long ago a time was: `12s ago`, `5m ago`, `3h ago`, `4d ago`.
 * @param {number} ms
 * @param {number} nowMs
 */
export function age(ms, nowMs) {
  const seconds = Math.max(0, Math.floor((nowMs - ms) / 1000));
  if (seconds < 5) return "now";
  if (seconds < 60) return `${seconds}s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h ago`;
  return `${Math.floor(seconds / 86_400)}d ago`;
}

/** @param {number} ms */
export function clockTime(ms) {
  return `${clock.format(ms)}.${String(Math.floor(ms) % 1000).padStart(3, "0")}`;
}

/** @param {number} ms */
export function fullTime(ms) {
  return `${dayAndYear.format(ms)}, ${clockTime(ms)}`;
}

/**
 * Returns a duration: `840 µs`, `12.4 ms`, `3.21 s`, `2m 5s`, `3h 10m`.
 * @param {number} ms
 * @returns {string}
 */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms === 0) return "0 ms";
  if (ms < 0.9995) return `${Math.round(ms * 1000)} µs`;
  if (ms < 999.5) return `${trim(ms)} ms`;
  if (ms < 59_950) return `${trim(ms / 1000)} s`;
  const seconds = Math.round(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m ${seconds % 60}s`;
  return `${Math.floor(minutes / 60)}h ${minutes % 60}m`;
}

/** @param {number} value Three digits of it. */
function trim(value) {
  return value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}

const grouped = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number} value */
export function count(value) {
  return grouped.format(value);
}

/** @param {number} value */
export function shortCount(value) {
  return value < 10_000 ? grouped.format(value) : compact.format(value);
}

/**
 * Returns `1 task`, `2 tasks`.
 * @param {number} value
 * @param {string} noun
 */
export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** @param {number} perSecond */
export function rate(perSecond) {
  if (perSecond >= 100) return `${count(Math.round(perSecond))}/s`;
  return `${perSecond >= 10 ? perSecond.toFixed(1) : perSecond.toFixed(2)}/s`;
}

/** @param {number} ratio 0..1 */
export function percent(ratio) {
  const value = ratio * 100;
  return `${value === 0 || value >= 9.95 ? value.toFixed(0) : value.toFixed(1)}%`;
}

/**
 * Returns a price, such as `$0.0123`.
 * @param {number} micros Millionths of a US dollar.
 */
export function cost(micros) {
  const dollars = micros / 1_000_000;
  return `$${dollars.toFixed(dollars !== 0 && dollars < 1 ? 4 : 2)}`;
}

/** @param {number} bytes */
export function bytes(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = bytes / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${trim(value)} ${units[unit]}`;
}

/**
 * Returns the last part of an id, enough to tell it from others.
 * @param {string} id
 */
export function shortId(id) {
  return id.length > 14 ? `…${id.slice(-10)}` : id;
}
