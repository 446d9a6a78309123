/** The caller's API key or token. It is kept for this tab only and sent as a bearer token. */

import { signal } from "../vendor/preact.js";

const KEY = "trunkline.credential";

function stored() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

const credential = signal(stored());

/**
 * Keeps a credential for this tab; an empty one forgets it.
 * @param {string} value
 */
export function setCredential(value) {
  credential.value = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage is blocked: the credential lasts until a reload.
  }
}

/** True if the page has a credential. */
export function hasCredential() {
  return credential.value !== "";
}

/**
 * Returns the headers that identify the caller.
 * @returns {Record<string, string>}
 */
export function credentialHeaders() {
  return credential.peek() ? { Authorization: `Bearer ${credential.peek()}` } : {};
}
