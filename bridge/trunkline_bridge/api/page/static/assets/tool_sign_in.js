/** Sign-in to a tool server: the tool adapter has the OAuth client, and the page brings it the browser's redirect. */

import { ApiError, postJson } from "./api.js";
import { toast } from "./components/toasts.js";
import { navigate } from "./router.js";
import { phase } from "./store/session.js";

const KEY = "trunkline.tool-sign-in";

/** @typedef {{server: string, state: string, fragment: string}} PendingSignIn */

/**
 * @param {string} server
 * @param {string} operation
 */
const path = (server, operation) => `tool-servers/${encodeURIComponent(server)}:${operation}`;

/**
 * Goes to the authorization server of a tool server, which sends the person back to this page. Throws an ApiError.
 * @param {string} server
 */
export async function startToolSignIn(server) {
  const redirectUri = new URL("./", document.baseURI).href;
  const { url } = await postJson(path(server, "startSignIn"), { redirectUri });
  const target = new URL(url);
  // The page must not run a script that another server names.
  if (target.protocol !== "https:" && target.protocol !== "http:") throw new ApiError("The authorization server has no web page.");
  /** @type {PendingSignIn} */
  const pending = { server, state: target.searchParams.get("state") ?? "", fragment: location.hash };
  sessionStorage.setItem(KEY, JSON.stringify(pending));
  location.assign(url);
}

/**
 * Takes the redirect of a sign-in that this tab began, if the page was opened by one. Returns a function that ends the
 * sign-in; call it once the session is open.
 * @returns {() => Promise<void>}
 */
export function takeToolRedirect() {
  const query = new URLSearchParams(location.search);
  const stored = sessionStorage.getItem(KEY);
  /** @type {PendingSignIn | null} */
  const pending = stored && JSON.parse(stored);
  // A redirect with another state belongs to another sign-in, or is an attack.
  if (!pending?.state || query.get("state") !== pending.state) return async () => {};
  sessionStorage.removeItem(KEY);
  history.replaceState(null, "", location.pathname);
  navigate(pending.fragment || "#/", { replace: true });
  return async () => {
    if (phase.value !== "ready") return;
    try {
      await postJson(path(pending.server, "completeSignIn"), { answer: Object.fromEntries(query) });
      toast(`Signed in to ${pending.server}.`, "ok");
    } catch (error) {
      toast(error instanceof ApiError ? error.message : String(error), "error");
    }
  };
}
