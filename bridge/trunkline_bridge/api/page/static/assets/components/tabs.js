/** Tabs, by the keyboard pattern of ARIA: arrows move, and the panel follows. */

import { html, useId, useRef } from "../vendor/preact.js";

/**
 * @typedef {object} Tab
 * @property {string} id
 * @property {string} label
 * @property {number} [count]
 */

/**
 * Tabs and the panel of the chosen one.
 * @param {{tabs: Tab[], selected: string, onSelect: (id: string) => void, label: string, children: any}} props
 */
export function Tabs({ tabs, selected, onSelect, label, children }) {
  const base = useId();
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const index = tabs.findIndex((tab) => tab.id === selected);
    const last = tabs.length - 1;
    /** @type {Record<string, number>} */
    const targets = { ArrowRight: index === last ? 0 : index + 1, ArrowLeft: index ? index - 1 : last, Home: 0, End: last };
    const target = targets[event.key];
    if (target === undefined) return;
    event.preventDefault();
    onSelect(/** @type {Tab} */ (tabs[target]).id);
    /** @type {HTMLElement} */ (list.current?.children[target]).focus();
  };
  return html`<div class="tabs">
    <div class="tab-list" role="tablist" aria-label=${label} ref=${list} onKeyDown=${onKeyDown}>
      ${tabs.map(
        (tab) => html`<button
          key=${tab.id}
          type="button"
          role="tab"
          id=${`${base}-${tab.id}`}
          aria-selected=${tab.id === selected ? "true" : "false"}
          aria-controls=${`${base}-panel`}
          tabindex=${tab.id === selected ? 0 : -1}
          onClick=${() => onSelect(tab.id)}
        >
          ${tab.label}${tab.count !== undefined && html`<span class="count">${tab.count}</span>`}
        </button>`,
      )}
    </div>
    <div class="tab-panel" role="tabpanel" id=${`${base}-panel`} aria-labelledby=${`${base}-${selected}`} tabindex="-1">${children}</div>
  </div>`;
}
