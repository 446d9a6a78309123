/** A panel beside a view with the details of what is chosen in it. It closes on Escape. */

import { html, useLayoutEffect, useRef } from "../vendor/preact.js";
import { Button, Panel } from "./basics.js";

const FIELDS = "input, select, textarea, [contenteditable]";

/**
 * A panel that can be closed. If it has the focus then, the focus goes back to where it was before.
 * @param {{title: any, children: any, class: string, onClose: () => void}} props
 */
export function DetailsPanel({ title, children, class: className, onClose }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const before = useRef(/** @type {HTMLElement | null} */ (null));
  const close = useRef(onClose);
  close.current = onClose;
  // Another choice in the view is another place to go back to.
  useLayoutEffect(() => {
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    if (active && active !== document.body && !element.current?.contains(active)) before.current = active;
  });
  // Before the paint: the key may be pressed as soon as the panel is seen.
  useLayoutEffect(() => {
    const panel = /** @type {HTMLElement} */ (element.current);
    /** @param {KeyboardEvent} event */
    const onKeyDown = (event) => {
      // A field, and a dialog above the view, have a use for the key themselves.
      const isTaken = event.defaultPrevented || document.querySelector("dialog[open]") || /** @type {Element} */ (event.target).matches(FIELDS);
      if (event.key === "Escape" && !isTaken) close.current();
    };
    addEventListener("keydown", onKeyDown);
    return () => {
      removeEventListener("keydown", onKeyDown);
      if (panel.contains(document.activeElement) && before.current?.isConnected) before.current.focus();
    };
  }, []);
  return html`<${Panel} title=${title} class=${className} element=${element} actions=${html`<${Button} kind="quiet" icon="close" label="Close" onClick=${onClose} />`}>${children}<//>`;
}
