/** A modal dialog on the browser's own element, which keeps the focus and closes on Escape. */

import { html, useEffect, useId, useRef } from "../vendor/preact.js";
import { Button } from "./basics.js";

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
