/** A frame for an SVG graph: it fits the graph, zooms by the wheel and buttons, and pans by dragging, arrow keys and the focus of its nodes. */

import { html, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { Button } from "./basics.js";

// Around a node that has the focus. Below are the controls.
const FOCUS_MARGIN = 12;
const FOCUS_MARGIN_BELOW = 56;
const MOST_ZOOM = 2.5;
const ZOOM_STEP = 1.25;
const PAN_STEP = 60;
const NARROW = 600;
// Smaller text can't be read. On a wide screen the whole graph is worth more.
const LEAST_ON_NARROW = 0.75;

/**
 * Returns how far a range must move to be between two ends. Of one that is longer, the begin counts.
 * @param {number} from
 * @param {number} to
 * @param {number} least
 * @param {number} most
 */
function distanceInto(from, to, least, most) {
  if (from < least || to - from > most - least) return least - from;
  return Math.min(0, most - to);
}

/**
 * @param {{width: number, height: number, label: string, children: any, fitMost?: number}} props
 *   width, height: of the graph; fitMost: the largest scale to fit it.
 */
export function GraphCanvas({ width, height, label, children, fitMost = 1.15 }) {
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const [size, setSize] = useState({ width: 800, height: 500 });
  // null: the view to begin with, also when the frame or the graph changes.
  const [view, setView] = useState(/** @type {{scale: number, x: number, y: number} | null} */ (null));

  const fitScale = Math.min(fitMost, size.width / Math.max(1, width), size.height / Math.max(1, height));
  /** @param {number} by */
  const centre = (by) => ({ x: (size.width - width * by) / 2, y: (size.height - height * by) / 2 });
  const firstScale = size.width < NARROW ? Math.max(fitScale, Math.min(fitMost, LEAST_ON_NARROW)) : fitScale;
  // Of a graph that is larger than its frame, the begin of its middle row is seen.
  const middle = centre(firstScale);
  const first = { scale: firstScale, x: Math.max(0, middle.x), y: middle.y };
  const { scale, x, y } = view ?? first;
  const fit = () => setView({ scale: fitScale, ...centre(fitScale) });
  const current = useRef({ scale, x, y, fitScale });
  current.current = { scale, x, y, fitScale };

  /** @param {number} factor @param {number} [atX] @param {number} [atY] */
  const zoom = (factor, atX = size.width / 2, atY = size.height / 2) => {
    const now = current.current;
    const next = Math.min(MOST_ZOOM, Math.max(Math.min(0.2, now.fitScale), now.scale * factor));
    const change = next / now.scale;
    setView({ scale: next, x: atX - (atX - now.x) * change, y: atY - (atY - now.y) * change });
  };
  /** @param {number} dx @param {number} dy */
  const pan = (dx, dy) => {
    const now = current.current;
    setView({ scale: now.scale, x: now.x + dx, y: now.y + dy });
  };
  /**
   * Brings a node of the graph into the frame, and the node into the window.
   * @param {Element} node
   */
  const reveal = (node) => {
    const whole = /** @type {HTMLElement} */ (frame.current).getBoundingClientRect();
    const box = node.getBoundingClientRect();
    const dx = distanceInto(box.left, box.right, whole.left + FOCUS_MARGIN, whole.right - FOCUS_MARGIN);
    const dy = distanceInto(box.top, box.bottom, whole.top + FOCUS_MARGIN, whole.bottom - FOCUS_MARGIN_BELOW);
    if (dx || dy) pan(dx, dy);
    requestAnimationFrame(() => node.scrollIntoView({ block: "nearest", inline: "nearest" }));
  };
  const latest = useRef({ zoom, reveal });
  latest.current = { zoom, reveal };

  useLayoutEffect(() => {
    const element = /** @type {HTMLElement} */ (frame.current);
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    /** @param {WheelEvent} event */
    const onWheel = (event) => {
      // Without a modifier the wheel scrolls the page.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = element.getBoundingClientRect();
      latest.current.zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    };
    /** @param {FocusEvent} event */
    const onFocus = (event) => {
      const target = /** @type {Element} */ (event.target);
      // A node that a pointer chose is seen, and stays below the pointer.
      if (target.closest("svg") && target.matches(":focus-visible")) latest.current.reveal(target);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    element.addEventListener("focusin", onFocus);
    return () => {
      observer.disconnect();
      element.removeEventListener("wheel", onWheel);
      element.removeEventListener("focusin", onFocus);
    };
  }, []);

  /** @param {PointerEvent} event */
  const onPointerDown = (event) => {
    const target = /** @type {Element} */ (event.target);
    if (event.button !== 0 || target.closest("a, button, [role=button]")) return;
    const element = /** @type {HTMLElement} */ (frame.current);
    element.setPointerCapture(event.pointerId);
    let last = { x: event.clientX, y: event.clientY };
    /** @param {PointerEvent} move */
    const onMove = (move) => {
      pan(move.clientX - last.x, move.clientY - last.y);
      last = { x: move.clientX, y: move.clientY };
    };
    const onUp = () => {
      element.removeEventListener("pointermove", onMove);
      element.removeEventListener("pointerup", onUp);
      element.removeEventListener("pointercancel", onUp);
    };
    element.addEventListener("pointermove", onMove);
    element.addEventListener("pointerup", onUp);
    element.addEventListener("pointercancel", onUp);
  };

  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    /** @type {Record<string, () => void>} */
    const actions = {
      "+": () => zoom(ZOOM_STEP), "=": () => zoom(ZOOM_STEP), "-": () => zoom(1 / ZOOM_STEP), 0: fit,
      ArrowLeft: () => pan(PAN_STEP, 0), ArrowRight: () => pan(-PAN_STEP, 0), ArrowUp: () => pan(0, PAN_STEP), ArrowDown: () => pan(0, -PAN_STEP),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  };

  return html`<div class="graph-canvas" ref=${frame} role="group" aria-label=${label} tabindex="0" onPointerDown=${onPointerDown} onKeyDown=${onKeyDown}>
    <svg width=${size.width} height=${size.height}>
      <g transform=${`translate(${x} ${y}) scale(${scale})`}>${children}</g>
    </svg>
    <div class="graph-controls">
      <${Button} kind="quiet" label="Zoom in" onClick=${() => zoom(ZOOM_STEP)}>+<//>
      <${Button} kind="quiet" label="Zoom out" onClick=${() => zoom(1 / ZOOM_STEP)}>−<//>
      <${Button} kind="quiet" label="Fit the graph" onClick=${fit}>Fit<//>
    </div>
  </div>`;
}
