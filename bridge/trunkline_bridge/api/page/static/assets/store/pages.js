/** A list of the API that is loaded page by page. */

import { getJson } from "../api.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { asApiError } from "./hooks.js";

/**
 * @template Row
 * @typedef {object} LoadedRows
 * @property {Row[]} rows
 * @property {string} next The token of the page after these rows; empty: they are all.
 */

/**
 * A page of the list: its rows, and the token of the next one.
 * @template Row
 * @typedef {LoadedRows<Row> & {isFirst: boolean}} Page
 */

/**
 * Returns the rows with those of a page after them. A first page replaces them.
 * @template Row
 * @param {LoadedRows<Row>} now
 * @param {Page<Row>} page
 * @returns {LoadedRows<Row>}
 */
function appendPage(now, page) {
  return { rows: page.isFirst ? page.rows : [...now.rows, ...page.rows], next: page.next };
}

/**
 * Loads pages of a list, from the first one again when the path or the query changes.
 * @template Row
 * @param {string | null} path null: nothing is loaded.
 * @param {import("../api.js").Query} query Without the page token.
 * @param {object} options
 * @param {string} options.member The name of the rows in the answer.
 * @param {(now: LoadedRows<Row>, page: Page<Row>) => LoadedRows<Row>} [options.merge] Puts a page into the rows.
 * @param {boolean} [options.clearsRows] Another path or query empties the list; otherwise its rows stay until the first page is loaded.
 * @param {boolean} [options.abortsOlder] A page that is being loaded is aborted when another one is asked for.
 */
export function usePages(path, query, { member, merge = appendPage, clearsRows = false, abortsOlder = false }) {
  const key = JSON.stringify(query);
  const [state, setState] = useState({
    rows: /** @type {Row[]} */ ([]),
    next: "",
    first: /** @type {any} */ (null),
    loading: path !== null,
    error: /** @type {import("../api.js").ApiError | null} */ (null),
  });
  const abort = useRef(new AbortController());
  const busy = useRef(false);
  // The changes since each page that is being loaded was asked for. The page may not have them.
  const missed = useRef(/** @type {Set<((rows: Row[]) => Row[])[]>} */ (new Set()));
  const latestMerge = useRef(merge);
  latestMerge.current = merge;

  const load = useCallback(
    async (/** @type {string} */ pageToken) => {
      if (path === null) return;
      if (abortsOlder) {
        abort.current.abort();
        abort.current = new AbortController();
      }
      const { signal } = abort.current;
      /** @type {((rows: Row[]) => Row[])[]} */
      const changes = [];
      missed.current.add(changes);
      busy.current = true;
      setState((now) => ({ ...now, loading: true, error: null }));
      try {
        const answer = await getJson(path, { query: { ...JSON.parse(key), pageToken }, signal });
        const page = { rows: answer[member] ?? [], next: answer.nextPageToken ?? "", isFirst: !pageToken };
        setState((now) => {
          const loaded = latestMerge.current(now, page);
          const rows = changes.reduce((current, change) => change(current), loaded.rows);
          return { rows, next: loaded.next, first: page.isFirst ? answer : now.first, loading: false, error: null };
        });
      } catch (error) {
        if (!signal.aborted) setState((now) => ({ ...now, loading: false, error: asApiError(error) }));
      } finally {
        missed.current.delete(changes);
        if (!signal.aborted) busy.current = false;
      }
    },
    [path, member, key, abortsOlder],
  );

  useEffect(() => {
    if (path === null) return undefined;
    abort.current = new AbortController();
    if (clearsRows) setState({ rows: [], next: "", first: null, loading: true, error: null });
    void load("");
    return () => abort.current.abort();
  }, [load]);

  const { rows, next, first, loading, error } = state;
  // `loadMore` is a new function after such a load, so that a table at its end asks again for a page that was aborted.
  const isReplacing = abortsOlder && loading;
  const loadMore = useCallback(() => {
    if (next && !error && !isReplacing && !busy.current) void load(next);
  }, [next, error, isReplacing, load]);
  const retry = useCallback(() => load(next), [next, load]);
  const reload = useCallback(() => load(""), [load]);
  const changeRows = useCallback((/** @type {(rows: Row[]) => Row[]} */ change) => {
    for (const changes of missed.current) changes.push(change);
    setState((now) => ({ ...now, rows: change(now.rows) }));
  }, []);
  return { rows, next, first, loading, error, loadMore, retry, reload, changeRows };
}
