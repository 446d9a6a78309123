/** Rows of traces: pages of the list, with the traces that the stream reports. */

import { useStream } from "./hooks.js";
import { usePages } from "./pages.js";

/**
 * @typedef {object} TraceRow
 * @property {string} traceId
 * @property {string} [rootName] Of the topmost span that was received.
 * @property {string} [rootService]
 * @property {string} [rootAgent]
 * @property {string} startTime
 * @property {string} endTime
 * @property {number} [spanCount]
 * @property {number} [errorCount]
 * @property {string[]} [taskIds]
 */

const PAGE_SIZE = 100;

/**
 * Puts traces into a list, newest first; later rows of a trace replace earlier ones.
 * @param {TraceRow[]} rows
 * @param {TraceRow[]} changes
 */
export function mergeTraces(rows, changes) {
  const byId = new Map(rows.map((row) => [row.traceId, row]));
  for (const row of changes) byId.set(row.traceId, row);
  return [...byId.values()].sort((a, b) => (a.startTime < b.startTime ? 1 : a.startTime > b.startTime ? -1 : 0));
}

/**
 * @param {import("./pages.js").LoadedRows<TraceRow>} now
 * @param {import("./pages.js").Page<TraceRow>} page
 */
const mergePage = (now, page) => ({ rows: mergeTraces(now.rows, page.rows), next: page.next });

/** Loads traces page by page, and keeps them current. */
export function useTraceRows() {
  const list = usePages("traces", { pageSize: PAGE_SIZE }, { member: "traces", merge: mergePage });
  const { rows, next, first, loading, error, loadMore, retry, reload, changeRows } = list;
  const status = useStream("traces:watch", (events) => {
    const changes = events.filter((event) => event.type === "trace").map((event) => event.data);
    if (changes.length) changeRows((now) => mergeTraces(now, changes));
    // Changes were missed before the watch began, or by it.
    if (events.some((event) => event.type === "ready" || event.type === "reset")) void reload();
  });
  return { rows, next, first, loading, error, status, loadMore, retry };
}
