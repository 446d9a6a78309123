/** Short notices at the edge of the page, read out by screen readers. */

import { html, signal } from "../vendor/preact.js";

/** @typedef {{id: number, text: string, tone: "ok" | "error" | "neutral"}} Toast */

const SHOWN_MS = 5000;
const MOST = 4;
const toasts = signal(/** @type {Toast[]} */ ([]));
let lastId = 0;

/**
 * Shows a notice for five seconds.
 * @param {string} text
 * @param {Toast["tone"]} [tone]
 */
export function toast(text, tone = "neutral") {
  const id = (lastId += 1);
  toasts.value = [...toasts.value, { id, text, tone }].slice(-MOST);
  setTimeout(() => dismiss(id), SHOWN_MS);
}

/** @param {number} id */
function dismiss(id) {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** The place of notices; the shell has it once. */
export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(
      ({ id, text, tone }) => html`<div class="toast ${tone}" key=${id}>
        <span class="grow">${text}</span>
        <button type="button" class="button quiet icon-only" aria-label="Dismiss" onClick=${() => dismiss(id)}>✕</button>
      </div>`,
    )}
  </div>`;
}
