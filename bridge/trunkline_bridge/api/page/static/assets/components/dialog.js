/** A modal dialog on the browser's own element, which keeps the focus and closes on Escape. */

import { html, useEffect, useId, useRef } from "../vendor/preact.js";
import { Button } from "./basics.js";

// In the order in which they get the focus: a field, an action that destroys nothing, anything else in the dialog.
const FIRST_STOPS = [
  ".dialog-body :is(input, select, textarea):not(:disabled)",
  ".dialog-actions .button:not(.danger, :disabled)",
  ".dialog-body :is(a[href], button:not(:disabled))",
];

/**
 * Returns the element that gets the focus when a dialog opens; undefined: it has nothing but its end.
 * @param {HTMLElement} dialog
 */
function findFirstStop(dialog) {
  const found = FIRST_STOPS.flatMap((selector) => [.../** @type {NodeListOf<HTMLElement>} */ (dialog.querySelectorAll(selector))]);
  return found.find((each) => each.checkVisibility());
}

/**
 * A dialog that is open for as long as it is rendered.
 * @param {{title: string, onClose: () => void, children: any, actions?: any, wide?: boolean}} props
 */
export function Dialog({ title, onClose, children, actions, wide }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    const dialog = /** @type {HTMLDialogElement} */ (element.current);
    const opener = /** @type {HTMLElement | null} */ (document.activeElement);
    dialog.showModal();
    findFirstStop(dialog)?.focus();
    return () => {
      dialog.close();
      opener?.focus();
    };
  }, []);
  /** @param {MouseEvent} event */
  const closeOnBackdrop = (event) => {
    if (event.target === element.current) onClose();
  };
  return html`<dialog
    class=${wide ? "dialog wide" : "dialog"}
    ref=${element}
    aria-labelledby=${id}
    onCancel=${(/** @type {Event} */ event) => {
      event.preventDefault();
      onClose();
    }}
    onClick=${closeOnBackdrop}
  >
    <div class="dialog-head row">
      <h2 class="grow" id=${id}>${title}</h2>
      <${Button} kind="quiet" icon="close" label="Close" onClick=${onClose} />
    </div>
    <div class="dialog-body">${children}</div>
    ${actions && html`<div class="dialog-actions row">${actions}</div>`}
  </dialog>`;
}
