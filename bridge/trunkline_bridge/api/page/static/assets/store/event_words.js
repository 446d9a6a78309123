/** What the kinds of events in a journal are called. `trunkline events` has the same words. */

/** @type {Record<string, string>} */
export const EVENT_WORDS = {
  created: "task created",
  status: "state",
  delta: "artifact",
  rewound: "rewound",
  plan: "plan",
  toolStarted: "tool called",
  toolTaskStarted: "tool task",
  toolFinished: "tool returned",
  approvalRequested: "approval asked",
  approvalAnswered: "approval",
  childStarted: "agent called",
  childFinished: "agent ended",
  routeDecided: "routed",
  turnStarted: "turn",
  stepStarted: "step started",
  stepFinished: "step finished",
};

/**
 * What an event is called instead if it says that something failed.
 * @type {Record<string, string>}
 */
export const FAILURE_WORDS = {
  toolFinished: "tool failed",
  stepFinished: "step failed",
};

/**
 * Returns what an event is called, with a capital.
 * @param {string} kind
 * @param {{isError?: boolean}} event
 */
export function eventWord(kind, event) {
  const word = (event.isError && FAILURE_WORDS[kind]) || EVENT_WORDS[kind] || kind;
  return word.charAt(0).toUpperCase() + word.slice(1);
}
