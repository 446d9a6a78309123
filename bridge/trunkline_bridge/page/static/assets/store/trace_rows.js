/** Rows of traces: pages of the list, with the traces that the stream reports. */

import { getJson } from "../api.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { asApiError, useStream } from "./hooks.js";

/**
 * @typedef {object} TraceRow
 * @property {string} traceId
 * @property {string} [rootName]
 * @property {string} [rootService]
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

/** Loads traces page by page, and keeps them current. */
export function useTraceRows() {
  const [state, setState] = useState({
    rows: /** @type {TraceRow[]} */ ([]),
    next: "",
    loading: true,
    error: /** @type {import("../api.js").ApiError | null} */ (null),
  });
  const abort = useRef(new AbortController());
  const loadingPage = useRef(false);

  const load = useCallback(async (/** @type {string} */ pageToken) => {
    const { signal } = abort.current;
    loadingPage.current = true;
    setState((now) => ({ ...now, loading: true, error: null }));
    try {
      const page = await getJson("traces", { query: { pageSize: PAGE_SIZE, pageToken }, signal });
      setState((now) => ({ rows: mergeTraces(now.rows, page.traces ?? []), next: page.nextPageToken ?? "", loading: false, error: null }));
    } catch (error) {
      if (!signal.aborted) setState((now) => ({ ...now, loading: false, error: asApiError(error) }));
    } finally {
      if (!signal.aborted) loadingPage.current = false;
    }
  }, []);

  useEffect(() => {
    abort.current = new AbortController();
    const { current } = abort;
    void load("");
    return () => current.abort();
  }, [load]);

  const status = useStream("traces:watch", (events) => {
    const changes = events.filter((event) => event.type === "trace").map((event) => event.data);
    if (changes.length) setState((now) => ({ ...now, rows: mergeTraces(now.rows, changes) }));
    if (events.some((event) => event.type === "reset")) void load("");
  });

  const { next, error } = state;
  const loadMore = useCallback(() => {
    if (next && !error && !loadingPage.current) void load(next);
  }, [next, error, load]);
  const retry = useCallback(() => load(next), [next, load]);
  return { ...state, status, loadMore, retry };
}
