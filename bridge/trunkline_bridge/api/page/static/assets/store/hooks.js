/** Hooks that load data and follow streams for as long as a component is shown. */

import { ApiError, followStream, getJson } from "../api.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";

/**
 * @typedef {import("../api.js").Query} Query
 * @typedef {import("../api.js").ServerEvent} ServerEvent
 * @typedef {import("../api.js").StreamState} StreamState
 */

/**
 * Returns an error as an ApiError.
 * @param {unknown} error
 */
export function asApiError(error) {
  return error instanceof ApiError ? error : new ApiError(String(error));
}

/**
 * Loads JSON, again when the path or the query changes. While it loads again, the data stays.
 * @template [T=any]
 * @param {string | null} path null: nothing is loaded.
 * @param {Query} [query]
 * @returns {{data: T | null, error: ApiError | null, loading: boolean, reload: () => void}}
 */
export function useJson(path, query = {}) {
  const [state, setState] = useState(
    /** @type {{data: T | null, error: ApiError | null, loading: boolean}} */ ({
      data: null,
      error: null,
      loading: path !== null,
    }),
  );
  const [attempt, setAttempt] = useState(0);
  const shown = useRef(/** @type {string | null} */ (null));
  const key = JSON.stringify(query);
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    // Data of another path would be wrong under this one's heading.
    const isSamePath = shown.current === path;
    shown.current = path;
    setState((now) => ({ data: isSamePath ? now.data : null, error: null, loading: true }));
    getJson(path, { query: JSON.parse(key), signal: abort.signal }).then(
      (data) => setState({ data, error: null, loading: false }),
      (error) => {
        if (!abort.signal.aborted) setState((now) => ({ data: now.data, error: asApiError(error), loading: false }));
      },
    );
    return () => abort.abort();
  }, [path, key, attempt]);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  return { ...state, reload };
}

/**
 * Returns a function that collects items and passes them on once a frame, or once a second in a hidden tab.
 * @template T
 * @param {(items: T[]) => void} onBatch
 */
export function batchByFrame(onBatch) {
  /** @type {T[]} */
  let items = [];
  let timer = 0;
  let frame = 0;
  const flush = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    frame = timer = 0;
    const batch = items;
    items = [];
    if (batch.length) onBatch(batch);
  };
  /** @param {T} item */
  const add = (item) => {
    items.push(item);
    if (frame) return;
    frame = requestAnimationFrame(flush);
    // Frames stop in a hidden tab.
    timer = window.setTimeout(flush, 1000);
  };
  const cancel = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    items = [];
  };
  return { add, cancel, flush };
}

/**
 * Follows a stream of the API while the component is shown; `onBatch` gets its events once a frame.
 * @param {string | null} path null: nothing is followed.
 * @param {(events: ServerEvent[]) => void} onBatch
 * @param {{query?: Query, lastEventId?: string}} [options]
 * @returns {{state: StreamState, error: ApiError | null}}
 */
export function useStream(path, onBatch, { query = {}, lastEventId = "" } = {}) {
  const [status, setStatus] = useState(
    /** @type {{state: StreamState, error: ApiError | null}} */ ({ state: "connecting", error: null }),
  );
  const latest = useRef(onBatch);
  latest.current = onBatch;
  const key = JSON.stringify(query);
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    const batches = batchByFrame((/** @type {ServerEvent[]} */ events) => latest.current(events));
    void followStream(path, {
      query: JSON.parse(key),
      lastEventId,
      signal: abort.signal,
      onEvent: batches.add,
      onState: (state, error) => setStatus({ state, error }),
    });
    return () => {
      abort.abort();
      batches.cancel();
    };
  }, [path, key]);
  return status;
}
