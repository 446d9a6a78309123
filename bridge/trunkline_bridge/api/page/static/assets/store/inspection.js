/** An inspection of an agent elsewhere: its steps and frames as they happen. */

import { ApiError, apiUrl, readEvents, request } from "../api.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { asApiError } from "./hooks.js";

/**
 * @typedef {object} Step
 * @property {string} name
 * @property {boolean} ok
 * @property {string} detail
 *
 * @typedef {object} WireFrame
 * @property {"sent" | "received"} direction
 * @property {string} [target]
 * @property {string} [status]
 * @property {any} [json]
 * @property {string} [text]
 *
 * @typedef {object} InspectionState
 * @property {"idle" | "running" | "done"} phase
 * @property {boolean} ok
 * @property {Step[]} steps
 * @property {WireFrame[]} frames
 * @property {ApiError | null} error
 */

/** @type {InspectionState} */
const IDLE = { phase: "idle", ok: false, steps: [], frames: [], error: null };

/** Runs inspections, one at a time. */
export function useInspection() {
  const [state, setState] = useState(IDLE);
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);

  const run = useCallback(async (/** @type {Record<string, unknown>} */ body) => {
    abort.current.abort();
    abort.current = new AbortController();
    const { signal } = abort.current;
    setState({ ...IDLE, phase: "running" });
    try {
      const response = await request(apiUrl("inspect"), {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
        body: JSON.stringify(body),
        signal,
      });
      if (!response.body) throw new ApiError("The bridge sent no stream.");
      let isDone = false;
      for await (const { type, data } of readEvents(response.body)) {
        if (type === "step") setState((now) => ({ ...now, steps: [...now.steps, data] }));
        else if (type === "frame") setState((now) => ({ ...now, frames: [...now.frames, data] }));
        else if (type === "done") {
          isDone = true;
          setState((now) => ({ ...now, phase: "done", ok: data.ok }));
          break;
        }
      }
      if (!isDone) throw new ApiError("The connection to the bridge was lost.");
    } catch (error) {
      if (!signal.aborted) setState((now) => ({ ...now, phase: "done", ok: false, error: asApiError(error) }));
    }
  }, []);
  const stop = useCallback(() => {
    abort.current.abort();
    setState((now) => ({ ...now, phase: "done" }));
  }, []);
  return { state, run, stop };
}
