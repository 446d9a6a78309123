/** Small parts of every view: badges, times, ids, headers, and what a view shows without data. */

import { age, duration, elapsedMs, fullTime, shortId, stateName, stateTone, timeMs } from "../format.js";
import { now } from "../store/clock.js";
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { Icon } from "./icons.js";
import { toast } from "./toasts.js";

/**
 * @typedef {import("../api.js").ApiError} ApiError
 * @typedef {import("../format.js").Tone} Tone
 * @typedef {any} Children
 */

/**
 * The heading of a view, with its actions at the end of the line.
 * @param {{title: Children, children?: Children, back?: {href: string, label: string}, after?: Children}} props
 */
export function PageHeader({ title, children, back, after }) {
  return html`<header class="page-header">
    <div class="grow">
      ${back && html`<a class="back small" href=${back.href}><${Icon} name="back" size=${12} />${back.label}</a>`}
      <div class="row wrap"><h1 tabindex="-1">${title}</h1>${after}</div>
    </div>
    ${children && html`<div class="row wrap actions">${children}</div>`}
  </header>`;
}

/**
 * A button.
 * @param {{
 *   children: Children, onClick?: (event: MouseEvent) => void, kind?: "primary" | "danger" | "quiet" | "plain", icon?: string,
 *   disabled?: boolean, type?: "button" | "submit", label?: string, pressed?: boolean, title?: string, busy?: boolean,
 * }} props label: for icons without text.
 */
export function Button({ children, onClick, kind = "plain", icon, disabled, type = "button", label, pressed, title, busy }) {
  return html`<button
    type=${type}
    class="button ${kind} ${children ? "" : "icon-only"}"
    onClick=${onClick}
    disabled=${disabled || busy}
    aria-label=${label}
    aria-pressed=${pressed === undefined ? undefined : String(pressed)}
    aria-busy=${busy ? "true" : undefined}
    title=${title ?? label}
  >
    ${icon && html`<${Icon} name=${icon} />`}${children}
  </button>`;
}

/**
 * A word with a dot in a colour. The word says it all; the colour only helps.
 * @param {{tone?: Tone, children: Children, live?: boolean, title?: string}} props
 */
export function Badge({ tone = "neutral", children, live, title }) {
  return html`<span class="badge ${tone} ${live ? "live" : ""}" title=${title}><span class="dot"></span>${children}</span>`;
}

/**
 * The state of a task.
 * @param {{state: string | undefined}} props
 */
export function StateBadge({ state }) {
  const name = stateName(state);
  return html`<${Badge} tone=${stateTone(state)} live=${name === "working"}>${name}<//>`;
}

/**
 * The age of a time, with the full time in its title.
 * @param {{value: string | undefined | null}} props
 */
export function Time({ value }) {
  const ms = timeMs(value);
  if (!Number.isFinite(ms)) return html`<span class="muted">–</span>`;
  return html`<time class="nowrap" datetime=${value} title=${fullTime(ms)}>${age(ms, now.value)}</time>`;
}

/**
 * A duration; of what has not ended, the time so far.
 * @param {{from: string | undefined | null, to?: string | null}} props
 */
export function Elapsed({ from, to }) {
  const length = to ? elapsedMs(from, to) : now.value - timeMs(from);
  return html`<span class="nowrap">${duration(Math.max(0, length))}</span>`;
}

/**
 * An id in monospace: a link, or a button that copies it.
 * @param {{value: string, link?: string, full?: boolean}} props
 */
export function Id({ value, link, full }) {
  const text = full ? value : shortId(value);
  if (link) return html`<a class="id" href=${link} title=${value}>${text}</a>`;
  return html`<span class="id-with-copy"><span class="id" title=${value}>${text}</span><${CopyButton} text=${value} what="id" /></span>`;
}

/**
 * Copies a text.
 * @param {{text: string | (() => string), what?: string, children?: Children}} props
 */
export function CopyButton({ text, what = "text", children }) {
  const [done, setDone] = useState(false);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      setDone(true);
      clearTimeout(timer.current);
      timer.current = window.setTimeout(() => setDone(false), 1500);
    } catch {
      toast("The browser did not allow copying.", "error");
    }
  };
  return html`<button type="button" class="button quiet copy ${children ? "" : "icon-only"}" onClick=${copy} aria-label=${`Copy ${what}`} title=${`Copy ${what}`}>
    <${Icon} name=${done ? "check" : "copy"} size=${13} />${children}
  </button>`;
}

/** @param {{label?: string}} props */
export function Loading({ label = "Loading" }) {
  return html`<div class="loading" role="status"><span class="spinner"></span>${label}…</div>`;
}

/**
 * The content of a view that has nothing yet: it names what will be here, and how it comes.
 * @param {{title: string, children?: Children, icon?: string}} props
 */
export function Empty({ title, children, icon }) {
  return html`<div class="empty">
    ${icon && html`<${Icon} name=${icon} size=${24} />`}
    <p class="empty-title">${title}</p>
    ${children && html`<div class="muted">${children}</div>`}
  </div>`;
}

/**
 * An error, with a way to try again.
 * @param {{error: ApiError | Error, onRetry?: () => void, title?: string}} props
 */
export function ErrorState({ error, onRetry, title = "This did not work" }) {
  return html`<div class="error-state" role="alert">
    <${Icon} name="alert" size=${20} />
    <div class="grow"><p class="empty-title">${title}</p><p>${error.message}</p></div>
    ${onRetry && html`<${Button} icon="refresh" onClick=${onRetry}>Try again<//>`}
  </div>`;
}

/**
 * Says whether a view is live.
 * @param {{status: {state: import("../api.js").StreamState, error: ApiError | null}}} props
 */
export function LiveStatus({ status }) {
  /** @type {Record<import("../api.js").StreamState, [Tone, string]>} */
  const words = {
    connecting: ["neutral", "Connecting"],
    live: ["ok", "Live"],
    retrying: ["warn", "Reconnecting"],
    ended: ["neutral", "Ended"],
    failed: ["error", "Disconnected"],
  };
  const [tone, word] = words[status.state];
  return html`<span role="status" title=${status.error?.message}><${Badge} tone=${tone} live=${status.state === "live"}>${word}<//></span>`;
}

/**
 * Names and values.
 * @param {{items: ([string, Children] | false | null | undefined)[]}} props
 */
export function Facts({ items }) {
  const shown = /** @type {[string, Children][]} */ (items.filter(Boolean));
  return html`<dl class="facts">${shown.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/**
 * A framed part of a view.
 * @param {{
 *   title?: Children, children: Children, actions?: Children, flush?: boolean, class?: string, element?: {current: HTMLElement | null},
 * }} props flush: without padding; element: gets the frame.
 */
export function Panel({ title, children, actions, flush, class: className = "", element }) {
  return html`<section class="panel ${className}" ref=${element}>
    ${(title || actions) && html`<div class="panel-head row">${title && html`<h2 class="grow">${title}</h2>`}${actions}</div>`}
    <div class=${flush ? "panel-body flush" : "panel-body"}>${children}</div>
  </section>`;
}
