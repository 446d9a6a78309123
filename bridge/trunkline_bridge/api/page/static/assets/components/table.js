/** A table that renders only the rows in sight, so that ten thousand rows are as fluid as ten. */

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} key
 * @property {any} title
 * @property {string} width A track of CSS grid: `120px`, `minmax(160px, 2fr)`.
 * @property {(row: Row) => any} cell
 * @property {number} [from] The table's least width in pixels at which the column is shown.
 * @property {"start" | "end"} [align]
 */

const ROW_HEIGHT = 36;
const EXTRA_ROWS = 8;
const NEAR_END_ROWS = 20;

/**
 * A table with virtual rows.
 *
 * The first link of a row is its target: a click anywhere on the row follows it. Arrow keys, `j` and `k` move between
 * these links.
 * @template Row
 * @param {{
 *   columns: Column<Row>[], rows: Row[], rowKey: (row: Row) => string, label: string, onEnd?: () => void, footer?: any,
 *   selected?: string, rowClass?: (row: Row) => string, rowHeight?: number,
 * }} props onEnd: the last rows come into sight; selected: the key of the chosen row.
 */
export function Table({ columns, rows, rowKey, label, onEnd, footer, selected, rowClass, rowHeight = ROW_HEIGHT }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 800, width: 0 });
  const pendingFocus = useRef(-1);

  useLayoutEffect(() => {
    const element = /** @type {HTMLElement} */ (scroller.current);
    const measure = () =>
      setView((now) => {
        const next = { top: element.scrollTop, height: element.clientHeight, width: element.clientWidth };
        const isSame = next.top === now.top && next.height === now.height && next.width === now.width;
        return isSame ? now : next;
      });
    let frame = 0;
    const onScroll = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(measure);
    };
    measure();
    const observer = new ResizeObserver(onScroll);
    observer.observe(element);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      cancelAnimationFrame(frame);
      observer.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, []);

  const shown = columns.filter((column) => !column.from || view.width >= column.from);
  const tracks = shown.map((column) => column.width).join(" ");
  const first = Math.max(0, Math.floor(view.top / rowHeight) - EXTRA_ROWS);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + EXTRA_ROWS);

  const isNearEnd = last >= rows.length - NEAR_END_ROWS;
  useEffect(() => {
    if (isNearEnd && rows.length) onEnd?.();
  }, [isNearEnd, rows.length, onEnd]);

  useLayoutEffect(() => {
    if (pendingFocus.current < 0) return;
    const row = scroller.current?.querySelector(`[aria-rowindex="${pendingFocus.current + 2}"]`);
    const target = /** @type {HTMLElement | null} */ (row?.querySelector("a, button") ?? null);
    if (target) {
      pendingFocus.current = -1;
      target.focus({ preventScroll: true });
    }
  });

  const moveTo = useCallback(
    (/** @type {number} */ index) => {
      const element = /** @type {HTMLElement} */ (scroller.current);
      const top = index * rowHeight;
      const head = /** @type {HTMLElement} */ (element.querySelector(".table-head")).offsetHeight;
      if (top < element.scrollTop) element.scrollTop = top;
      const bottom = top + rowHeight + head;
      if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
      pendingFocus.current = index;
      setView((now) => ({ ...now, top: element.scrollTop }));
    },
    [rowHeight],
  );

  // The chosen row comes into sight, for example while one travels through a task. It does not take the focus.
  useEffect(() => {
    const element = scroller.current;
    const index = selected ? rows.findIndex((row) => rowKey(row) === selected) : -1;
    if (!element || index < 0) return;
    const head = /** @type {HTMLElement} */ (element.querySelector(".table-head")).offsetHeight;
    const top = index * rowHeight;
    const isInSight = top >= element.scrollTop && top + rowHeight + head <= element.scrollTop + element.clientHeight;
    if (!isInSight) element.scrollTop = Math.max(0, top - (element.clientHeight - rowHeight) / 2);
  }, [selected]);

  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const from = /** @type {HTMLElement} */ (event.target);
    if (from.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = from.closest("[aria-rowindex]");
    const index = row ? Number(row.getAttribute("aria-rowindex")) - 2 : -1;
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    /** @type {Record<string, number>} */
    const targets = {
      ArrowDown: index + 1, j: index + 1, ArrowUp: index - 1, k: index - 1,
      PageDown: index + page, PageUp: index - page, Home: 0, End: rows.length - 1,
    };
    const target = targets[event.key];
    if (target === undefined || !rows.length) return;
    event.preventDefault();
    moveTo(Math.min(rows.length - 1, Math.max(0, target)));
  };

  /** @param {MouseEvent} event */
  const followRow = (event) => {
    const from = /** @type {HTMLElement} */ (event.target);
    if (from.closest("a, button, input, label") || String(getSelection())) return;
    const link = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (event.currentTarget).querySelector("a"));
    link?.click();
  };

  return html`<div class="table" ref=${scroller} onKeyDown=${onKeyDown}>
    <div role="table" aria-label=${label} aria-rowcount=${rows.length + 1}>
    <div class="table-head" role="rowgroup">
      <div role="row" class="table-row" aria-rowindex="1" style=${{ gridTemplateColumns: tracks }}>
        ${shown.map((column) => html`<div role="columnheader" key=${column.key} class=${column.align === "end" ? "end" : ""}>${column.title}</div>`)}
      </div>
    </div>
    <div class="table-body" role="rowgroup" style=${{ height: `${rows.length * rowHeight}px` }}>
      ${rows.slice(first, last).map((row, offset) => {
        const key = rowKey(row);
        const index = first + offset;
        return html`<div
          role="row"
          key=${key}
          class="table-row ${rowClass?.(row) ?? ""} ${key === selected ? "selected" : ""}"
          aria-rowindex=${index + 2}
          style=${{ gridTemplateColumns: tracks, height: `${rowHeight}px`, transform: `translateY(${index * rowHeight}px)` }}
          onClick=${followRow}
        >
          ${shown.map((column) => html`<div role="cell" key=${column.key} class=${column.align === "end" ? "end truncate" : "truncate"}>${column.cell(row)}</div>`)}
        </div>`;
      })}
    </div>
    </div>
    ${footer && html`<div class="table-foot">${footer}</div>`}
  </div>`;
}
