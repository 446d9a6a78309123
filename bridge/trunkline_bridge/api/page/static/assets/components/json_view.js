/** JSON as a tree that opens and closes. Closed parts are not rendered, so that big values stay cheap. */

import { html, useState } from "../vendor/preact.js";

const SHOWN_ENTRIES = 200;
const SHOWN_TEXT = 2000;

/**
 * A JSON value.
 * @param {{value: unknown, open?: number}} props open: how many levels are open at first.
 */
export function JsonView({ value, open = 2 }) {
  return html`<div class="json"><${Value} value=${value} open=${open} /></div>`;
}

/** @param {{value: unknown, open: number, name?: string}} props */
function Value({ value, open, name }) {
  const label = name !== undefined && html`<span class="json-name">${name}</span>`;
  if (value !== null && typeof value === "object") return html`<${Branch} value=${value} open=${open} label=${label} />`;
  return html`<div class="json-leaf">${label}<${Scalar} value=${value} /></div>`;
}

/** @param {{value: unknown}} props */
function Scalar({ value }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") return html`<span class="json-${value === null ? "null" : typeof value === "bigint" ? "number" : typeof value}">${String(value)}</span>`;
  const isCut = !whole && value.length > SHOWN_TEXT;
  return html`<span class="json-string">${isCut ? `${value.slice(0, SHOWN_TEXT)}…` : value}</span>
    ${isCut && html`<button type="button" class="link" onClick=${() => setWhole(true)}>show all</button>`}`;
}

/** @param {{value: object, open: number, label: any}} props */
function Branch({ value, open, label }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [limit, setLimit] = useState(SHOWN_ENTRIES);
  const entries = Object.entries(value);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return html`<div class="json-leaf">${label}<span class="muted">${brackets}</span></div>`;
  return html`<div class="json-branch">
    <button type="button" class="json-toggle" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>
      <span class="json-arrow" aria-hidden="true"></span>${label}
      <span class="muted">${brackets[0]}${isOpen ? "" : `${entries.length}${brackets[1]}`}</span>
    </button>
    ${isOpen &&
    html`<div class="json-children">
      ${entries.slice(0, limit).map(([key, each]) => html`<${Value} key=${key} name=${key} value=${each} open=${open - 1} />`)}
      ${entries.length > limit &&
      html`<button type="button" class="link" onClick=${() => setLimit(limit + SHOWN_ENTRIES)}>
        ${entries.length - limit} more
      </button>`}
    </div>`}
  </div>`;
}
