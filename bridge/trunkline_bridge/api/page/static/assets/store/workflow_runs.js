/** The runs of a workflow: pages of the list, read again when one of its tasks changes. */

import { useStream } from "./hooks.js";
import { usePages } from "./pages.js";

/** @typedef {import("./task_rows.js").TaskRow & {workflowVersion?: number}} RunRow */

const PAGE_SIZE = 100;

/**
 * Puts a page into the list: a first page before the other runs, a later one after them.
 * @param {import("./pages.js").LoadedRows<RunRow>} now
 * @param {import("./pages.js").Page<RunRow>} page
 */
function mergePage(now, page) {
  const loaded = new Set(page.rows.map((row) => row.id));
  const others = now.rows.filter((row) => !loaded.has(row.id));
  const rows = page.isFirst ? [...page.rows, ...others] : [...others, ...page.rows];
  // A first page that is read again does not change where the next one begins.
  return { rows, next: page.isFirst && others.length ? now.next : page.next };
}

/**
 * Loads runs page by page, newest first, and keeps them current.
 * @param {string} name Of the workflow.
 */
export function useRuns(name) {
  const path = `workflows/${encodeURIComponent(name)}/runs`;
  const list = usePages(path, { pageSize: PAGE_SIZE }, { member: "tasks", merge: mergePage, clearsRows: true });
  const { rows, next, loading, error, loadMore, reload, changeRows } = list;
  const status = useStream(
    "tasks:watch",
    (events) => {
      const changes = new Map(events.filter((event) => event.type === "task").map((event) => [event.data.id, event.data]));
      const isMissing = events.some((event) => event.type === "reset") || [...changes.keys()].some((id) => !rows.some((row) => row.id === id && row.workflowVersion));
      changeRows((now) => now.map((row) => (changes.has(row.id) ? { ...row, ...changes.get(row.id) } : row)));
      // The version of a new run is in the list only, once its task works.
      if (isMissing) void reload();
    },
    { query: { agent: name } },
  );
  return { rows, next, loading, error, status, loadMore, retry: reload };
}
