/** A task on the wire: its typed events beside the frames of each version of A2A. */

import { getJson } from "../api.js";
import { useCallback, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { asApiError, useStream } from "./hooks.js";

/**
 * @typedef {object} Frame
 * @property {string} id
 * @property {number} sequence
 * @property {string} method
 * @property {any} json
 *
 * @typedef {object} VersionFrames
 * @property {Frame[]} frames
 * @property {{title: string, curl: string}[]} requests
 * @property {string} next
 * @property {import("../api.js").ApiError | null} error
 * @property {boolean} loading
 *
 * @typedef {object} WireRow
 * @property {number} sequence Its first.
 * @property {import("./task_events.js").JournalEvent | null} event
 * @property {Record<string, Frame[]>} frames By version.
 */

/** The versions of A2A, newest first. */
export const VERSIONS = [
  { id: "1.0", label: "A2A 1.0" },
  { id: "0.3", label: "A2A 0.3" },
  { id: "0.1", label: "A2A original" },
];
const REFRESH_MS = 500;

/** @type {VersionFrames} */
const NOTHING = { frames: [], requests: [], next: "", error: null, loading: true };

/**
 * Follows a task on the wire.
 * @param {string} taskId Empty: nothing is loaded.
 */
export function useWire(taskId) {
  const path = taskId ? `tasks/${encodeURIComponent(taskId)}` : null;
  const [byVersion, setByVersion] = useState(/** @type {Record<string, VersionFrames>} */ ({}));
  const [events, setEvents] = useState(/** @type {import("./task_events.js").JournalEvent[]} */ ([]));
  const loaders = useRef({ abort: new AbortController(), busy: new Set(), again: false, timer: 0 });

  const loadVersion = useCallback(
    async (/** @type {string} */ version, /** @type {string} */ pageToken) => {
      const { abort, busy } = loaders.current;
      if (path === null || busy.has(version)) return;
      busy.add(version);
      try {
        const page = await getJson(`${path}/wire`, { query: { version, pageToken }, signal: abort.signal });
        setByVersion((now) => {
          const known = now[version] ?? NOTHING;
          const frames = pageToken ? [...known.frames, ...page.frames] : page.frames;
          return { ...now, [version]: { frames, requests: page.requests ?? known.requests, next: page.nextPageToken ?? "", error: null, loading: false } };
        });
      } catch (error) {
        if (abort.signal.aborted) return;
        setByVersion((now) => ({ ...now, [version]: { ...(now[version] ?? NOTHING), error: asApiError(error), loading: false } }));
      } finally {
        busy.delete(version);
      }
    },
    [path],
  );
  useEffect(() => {
    loaders.current = { abort: new AbortController(), busy: new Set(), again: false, timer: 0 };
    const { abort } = loaders.current;
    setByVersion({});
    setEvents([]);
    for (const { id } of VERSIONS) void loadVersion(id, "");
    return () => {
      abort.abort();
      clearTimeout(loaders.current.timer);
    };
  }, [loadVersion]);

  const newest = useRef(0);
  const latest = useRef(byVersion);
  latest.current = byVersion;
  /** Loads what follows the last frame of each version. */
  const loadMore = useCallback(() => {
    for (const { id } of VERSIONS) void loadVersion(id, latest.current[id]?.frames.at(-1)?.id ?? "");
  }, [loadVersion]);

  const status = useStream(path && `${path}/events`, (batch) => {
    const added = batch.filter((event) => event.type === "event").map((event) => event.data);
    if (!added.length) return;
    setEvents((now) => [...now, ...added.filter((each) => Number(each.sequence) > Number(now.at(-1)?.sequence ?? 0))]);
    const state = loaders.current;
    newest.current = Number(added.at(-1)?.sequence);
    if (state.timer) return;
    state.timer = window.setTimeout(() => {
      state.timer = 0;
      if (Object.values(latest.current).some((each) => !each.next && Number(each.frames.at(-1)?.sequence ?? 0) < newest.current)) loadMore();
    }, REFRESH_MS);
  });
  const rows = useMemo(() => joinRows(events, byVersion), [events, byVersion]);
  const hasMore = Object.values(byVersion).some((each) => each.next);
  return { rows, byVersion, status, hasMore, loadMore };
}

/**
 * Puts frames beside the event that they are made from.
 * @param {import("./task_events.js").JournalEvent[]} events
 * @param {Record<string, VersionFrames>} byVersion
 * @returns {WireRow[]}
 */
export function joinRows(events, byVersion) {
  /** @type {(WireRow & {last: number})[]} */
  const rows = events.map((event) => {
    const last = Number(event.sequence);
    const texts = Object.values(event.event)[0]?.texts?.length ?? 1;
    return { sequence: last - Math.max(1, texts) + 1, last, event, frames: {} };
  });
  /** @type {Map<number, WireRow & {last: number}>} */
  const without = new Map();
  for (const [version, { frames }] of Object.entries(byVersion)) {
    let index = 0;
    for (const frame of frames) {
      while (index < rows.length && /** @type {any} */ (rows[index]).last < frame.sequence) index += 1;
      let row = rows[index];
      if (!row || row.sequence > frame.sequence) {
        row = without.get(frame.sequence) ?? { sequence: frame.sequence, last: frame.sequence, event: null, frames: {} };
        without.set(frame.sequence, row);
      }
      (row.frames[version] ??= []).push(frame);
    }
  }
  return [...rows, ...without.values()].sort((a, b) => a.sequence - b.sequence);
}
