/** The caller's identity and permissions, and the ways to sign in, from `session` and `sign-in`. */

import { ApiError, getJson, onSignInNeeded } from "../api.js";
import { signal } from "../vendor/preact.js";
import { hasCredential, setCredential } from "./credentials.js";
import { asApiError } from "./hooks.js";

/**
 * @typedef {object} OidcSettings
 * @property {string} issuer
 * @property {string} clientId
 *
 * @typedef {object} Session
 * @property {string} account
 * @property {string} user
 * @property {boolean} isOperator Sees the whole mesh.
 * @property {string[]} methods Names of the mesh's methods that the caller may call.
 * @property {string} defaultAgent The one that a chat begins with; empty: the credential is for no agent.
 * @property {string} version
 * @property {{messages: boolean, allMessages: boolean, workflows: boolean, inspector: boolean}} features
 *   allMessages: those of all agents may be read at once.
 * @property {OidcSettings | null} oidc
 *
 * @typedef {object} SignInWays
 * @property {boolean} anonymous
 * @property {boolean} certificate A certificate of the browser may identify the caller.
 * @property {boolean} apiKey
 * @property {boolean} token
 * @property {OidcSettings | null} oidc
 */

/** The session; null: nobody is signed in, or it is not known yet. */
export const session = signal(/** @type {Session | null} */ (null));
/** The screen that the page shows: `ready` is the views. */
export const phase = signal(/** @type {"loading" | "sign-in" | "ready" | "error"} */ ("loading"));
/** The last error of signing in. */
export const sessionError = signal(/** @type {ApiError | null} */ (null));
/** The ways to sign in that the bridge permits. */
export const signInWays = signal(/** @type {SignInWays | null} */ (null));

onSignInNeeded(() => {
  if (phase.peek() === "ready") void askForCredential(new ApiError("Your session has ended. Sign in again."));
});

/** Loads the session, and asks for a credential if the bridge needs one. */
export async function openSession() {
  try {
    if (!hasCredential() && (await needsCredential())) {
      await askForCredential(sessionError.peek());
      return;
    }
    session.value = await getJson("session");
    sessionError.value = null;
    phase.value = "ready";
  } catch (error) {
    const problem = asApiError(error);
    if (problem.status === 401 || problem.status === 403) {
      // Without a credential, the reason is that of a sign-in that failed before.
      await askForCredential(hasCredential() ? problem : sessionError.peek());
    } else {
      sessionError.value = problem;
      phase.value = "error";
    }
  }
}

/** Returns true if the bridge would only refuse a request for the session, which browsers report as an error. */
async function needsCredential() {
  const ways = await getJson("sign-in");
  return !ways.anonymous && !ways.certificate;
}

/** @param {ApiError | null} problem The reason why the last credential was refused. */
async function askForCredential(problem) {
  setCredential("");
  session.value = null;
  sessionError.value = problem;
  try {
    signInWays.value = await getJson("sign-in");
    phase.value = "sign-in";
  } catch (error) {
    sessionError.value = asApiError(error);
    phase.value = "error";
  }
}

/**
 * Signs in by an API key or a token.
 * @param {string} credential
 */
export async function signIn(credential) {
  setCredential(credential);
  await openSession();
}

/** Forgets the credential. */
export async function signOut() {
  await askForCredential(null);
}

/**
 * Returns true if the caller may call a method of the mesh, such as `CancelTask`.
 * @param {string} method
 */
export function mayCall(method) {
  return session.value?.methods.includes(method) ?? false;
}
