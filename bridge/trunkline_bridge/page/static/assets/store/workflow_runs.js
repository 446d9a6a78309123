/** The runs of a workflow: pages of the list, read again when one of its tasks changes. */

import { getJson } from "../api.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { asApiError, useStream } from "./hooks.js";

/** @typedef {import("./task_rows.js").TaskRow & {workflowVersion?: number}} RunRow */

const PAGE_SIZE = 100;

/**
 * Loads runs page by page, newest first, and keeps them current.
 * @param {string} name Of the workflow.
 */
export function useRuns(name) {
  const path = `workflows/${encodeURIComponent(name)}/runs`;
  const [state, setState] = useState({
    rows: /** @type {RunRow[]} */ ([]),
    next: "",
    loading: true,
    error: /** @type {import("../api.js").ApiError | null} */ (null),
  });
  const abort = useRef(new AbortController());
  const busy = useRef(false);

  const load = useCallback(
    async (/** @type {string} */ pageToken) => {
      const { signal } = abort.current;
      busy.current = true;
      setState((now) => ({ ...now, loading: true, error: null }));
      try {
        const page = await getJson(path, { query: { pageSize: PAGE_SIZE, pageToken }, signal });
        setState((now) => {
          const fresh = new Map(page.tasks.map((/** @type {RunRow} */ row) => [row.id, row]));
          const others = now.rows.filter((row) => !fresh.has(row.id));
          const rows = pageToken ? [...others, ...page.tasks] : [...page.tasks, ...others];
          // A first page that is read again does not change where the next one begins.
          const next = pageToken || !others.length ? (page.nextPageToken ?? "") : now.next;
          return { rows, next, loading: false, error: null };
        });
      } catch (error) {
        if (!signal.aborted) setState((now) => ({ ...now, loading: false, error: asApiError(error) }));
      } finally {
        busy.current = false;
      }
    },
    [path],
  );

  useEffect(() => {
    abort.current = new AbortController();
    const { current } = abort;
    setState({ rows: [], next: "", loading: true, error: null });
    void load("");
    return () => current.abort();
  }, [load]);

  const status = useStream(
    "tasks:watch",
    (events) => {
      const changes = new Map(events.filter((event) => event.type === "task").map((event) => [event.data.id, event.data]));
      const isMissing = events.some((event) => event.type === "reset") || [...changes.keys()].some((id) => !state.rows.some((row) => row.id === id && row.workflowVersion));
      setState((now) => ({ ...now, rows: now.rows.map((row) => (changes.has(row.id) ? { ...row, ...changes.get(row.id) } : row)) }));
      // The version of a new run is in the list only, once its task works.
      if (isMissing) void load("");
    },
    { query: { agent: name } },
  );
  const { next, error } = state;
  const loadMore = useCallback(() => {
    if (next && !error && !busy.current) void load(next);
  }, [next, error, load]);
  return { ...state, status, loadMore, retry: () => load("") };
}
