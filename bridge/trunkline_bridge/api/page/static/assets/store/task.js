/** One task: its journal as it is written, and its state now or at a sequence. */

import { getJson } from "../api.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { asApiError, useStream } from "./hooks.js";
import { appendEvents } from "./task_events.js";

/** @typedef {import("./task_events.js").TimelineEntry} TimelineEntry */

// While events arrive, the state is read at most this often.
const REFRESH_MS = 600;
const TRAVEL_MS = 80;

/**
 * Follows a task.
 * @param {string} id
 * @param {number | null} at The sequence to show; null: the latest.
 */
export function useTask(id, at) {
  const path = `tasks/${encodeURIComponent(id)}`;
  const [now, setNow] = useState(/** @type {any} */ (null));
  const [past, setPast] = useState(/** @type {{at: number, task: any} | null} */ (null));
  const [error, setError] = useState(/** @type {import("../api.js").ApiError | null} */ (null));
  const entries = useRef(/** @type {TimelineEntry[]} */ ([]));
  const [version, setVersion] = useState(0);
  const last = useRef(0);
  const refresh = useRef({ timer: 0, loading: false, again: false });

  const load = useCallback(async () => {
    const state = refresh.current;
    if (state.loading) {
      state.again = true;
      return;
    }
    state.loading = true;
    try {
      const answer = await getJson(path);
      if (refresh.current !== state) return;
      last.current = Math.max(last.current, Number(answer.lastSequence ?? 0));
      setNow(answer.task);
      setError(null);
    } catch (problem) {
      if (refresh.current === state) setError(asApiError(problem));
    }
    state.loading = false;
    if (state.again) {
      state.again = false;
      schedule();
    }
  }, [path]);

  const schedule = useCallback(() => {
    const state = refresh.current;
    if (!state.timer) {
      state.timer = window.setTimeout(() => {
        state.timer = 0;
        void load();
      }, REFRESH_MS);
    }
  }, [load]);

  useEffect(() => {
    refresh.current = { timer: 0, loading: false, again: false };
    const state = refresh.current;
    entries.current = [];
    last.current = 0;
    setNow(null);
    setPast(null);
    setError(null);
    void load();
    return () => {
      clearTimeout(state.timer);
      refresh.current = { timer: 0, loading: false, again: false };
    };
  }, [load]);

  const status = useStream(`${path}/events`, (events) => {
    const written = events.filter((event) => event.type === "event").map((event) => event.data);
    appendEvents(entries.current, written);
    last.current = Math.max(last.current, entries.current.at(-1)?.last ?? 0);
    setVersion((count) => count + 1);
    schedule();
  });

  useEffect(() => {
    if (!at) {
      setPast(null);
      return undefined;
    }
    const abort = new AbortController();
    // A dragged slider passes many sequences; the state before stays until the next one is here.
    const timer = window.setTimeout(async () => {
      try {
        const answer = await getJson(path, { query: { at }, signal: abort.signal });
        setPast({ at, task: answer.task });
      } catch (problem) {
        if (!abort.signal.aborted) setError(asApiError(problem));
      }
    }, TRAVEL_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [path, at]);

  return {
    snapshot: at ? (past?.task ?? now) : now,
    current: now,
    stale: Boolean(at && past?.at !== at),
    lastSequence: last.current,
    entries: entries.current,
    version,
    status,
    error,
    reload: load,
  };
}
