/** Form fields with their labels. */

import { html, useEffect, useId, useRef, useState } from "../vendor/preact.js";
import { Icon } from "./icons.js";

/**
 * A field with a label above it.
 * @param {{label: string, hint?: string, children: (id: string) => any}} props
 */
export function Field({ label, hint, children }) {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${children(id)}
    ${hint && html`<p class="muted small">${hint}</p>`}
  </div>`;
}

/**
 * A choice among few values; its label is for screen readers, since the empty choice says the same.
 * @param {{
 *   label: string, value: string, onChange: (value: string) => void, options: (string | {value: string, label: string})[],
 *   all?: string, visibleLabel?: boolean,
 * }} props all: the text of the empty choice; without it there is none.
 */
export function Select({ label, value, onChange, options, all, visibleLabel }) {
  const id = useId();
  return html`<div class="select ${visibleLabel ? "row" : ""}">
    <label class=${visibleLabel ? "muted small" : "visually-hidden"} for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>
      ${all !== undefined && html`<option value="">${all}</option>`}
      ${options.map((option) => {
        const { value: each, label: text } = typeof option === "string" ? { value: option, label: option } : option;
        return html`<option key=${each} value=${each} selected=${each === value}>${text}</option>`;
      })}
    </select>
  </div>`;
}

/**
 * A search field that reports what was typed after a short pause.
 * @param {{label: string, value: string, onChange: (value: string) => void, delayMs?: number}} props
 */
export function Search({ label, value, onChange, delayMs = 250 }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  const reported = useRef(value);
  useEffect(() => {
    // Changed from outside, for example by going back.
    if (value !== reported.current) setText(value);
    reported.current = value;
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  /** @param {string} next @param {number} delay */
  const report = (next, delay) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      reported.current = next;
      onChange(next);
    }, delay);
  };
  return html`<div class="search">
    <${Icon} name="search" size=${14} />
    <input
      type="search"
      aria-label=${label}
      placeholder=${label}
      value=${text}
      data-shortcut="/"
      onInput=${(/** @type {any} */ event) => report(event.target.value, delayMs)}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && report(text, 0)}
    />
  </div>`;
}
