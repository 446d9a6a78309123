/** The message that is being sent, kept for a reload before its task is known. Messages with files are not kept. */

const KEY = "trunkline.chat.pending";

/**
 * @param {string} agent
 * @param {any} message Of the SDK.
 */
export function keepPending(agent, message) {
  const isText = message.parts.every((/** @type {any} */ part) => part.content?.$case === "text");
  try {
    if (isText) sessionStorage.setItem(KEY, JSON.stringify({ agent, message }));
  } catch {
    // Storage is blocked or full: a reload at this moment loses the message.
  }
}

/** Forgets it: the bridge has it. */
export function forgetPending() {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was kept.
  }
}

/**
 * Returns the message that a reload cut off, if it was for this agent.
 * @param {string} agent
 * @returns {{agent: string, message: any} | null}
 */
export function readPending(agent) {
  try {
    const pending = JSON.parse(sessionStorage.getItem(KEY) ?? "null");
    return pending?.agent === agent ? pending : null;
  } catch {
    return null;
  }
}
