/** A list of the API that is loaded page by page. */

import { getJson } from "../api.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { asApiError } from "./hooks.js";

/**
 * Loads pages of a list, from the first one again when the filter changes.
 * @template Row
 * @param {string | null} path null: nothing is loaded.
 * @param {string} member The name of the rows in the answer.
 * @param {import("../api.js").Query} filter
 */
export function usePages(path, member, filter) {
  const key = JSON.stringify(filter);
  const [state, setState] = useState({
    rows: /** @type {Row[]} */ ([]),
    next: "",
    first: /** @type {any} */ (null),
    loading: path !== null,
    error: /** @type {import("../api.js").ApiError | null} */ (null),
  });
  const abort = useRef(new AbortController());

  const load = useCallback(
    async (/** @type {string} */ pageToken) => {
      if (path === null) return;
      // A page of an older filter, or a second one of the same, is given up.
      abort.current.abort();
      abort.current = new AbortController();
      const { signal } = abort.current;
      setState((now) => ({ ...now, loading: true, error: null }));
      try {
        const page = await getJson(path, { query: { ...JSON.parse(key), pageToken }, signal });
        setState((now) => ({
          rows: pageToken ? [...now.rows, ...page[member]] : page[member],
          next: page.nextPageToken ?? "",
          first: pageToken ? now.first : page,
          loading: false,
          error: null,
        }));
      } catch (error) {
        if (!signal.aborted) setState((now) => ({ ...now, loading: false, error: asApiError(error) }));
      }
    },
    [path, member, key],
  );
  useEffect(() => {
    void load("");
    return () => abort.current.abort();
  }, [load]);

  const { next, loading, error } = state;
  const loadMore = useCallback(() => {
    if (next && !loading && !error) void load(next);
  }, [next, loading, error, load]);
  const reload = useCallback(() => load(""), [load]);
  return { ...state, loadMore, reload };
}
