/** Sign-in by OpenID Connect: the authorization code flow with PKCE, all in the browser. */

import { ApiError } from "./api.js";
import { navigate } from "./router.js";
import { setCredential } from "./store/credentials.js";
import { sessionError } from "./store/session.js";

/** @typedef {import("./store/session.js").OidcSettings} OidcSettings */

const KEY = "trunkline.oidc";

/**
 * @typedef {object} PendingSignIn
 * @property {string} state
 * @property {string} verifier
 * @property {string} tokenEndpoint
 * @property {string} clientId
 * @property {string} fragment The view that the user was at.
 */

const redirectUri = () => new URL("./", document.baseURI).href;

/** @param {ArrayBuffer | Uint8Array} bytes */
function base64Url(bytes) {
  return btoa(String.fromCharCode(...new Uint8Array(bytes)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

const randomText = () => base64Url(crypto.getRandomValues(new Uint8Array(32)));

/**
 * @param {string} url
 * @param {RequestInit} [init]
 */
async function fetchFromIssuer(url, init) {
  try {
    const response = await fetch(url, { ...init, credentials: "omit" });
    if (response.ok) return await response.json();
    throw new ApiError(`The identity provider answered ${response.status}.`, { status: response.status });
  } catch (error) {
    throw error instanceof ApiError ? error : new ApiError("The identity provider cannot be reached.");
  }
}

/**
 * Goes to the identity provider, which sends the user back with a code.
 * @param {OidcSettings} settings
 */
export async function startOidcSignIn({ issuer, clientId }) {
  const provider = await fetchFromIssuer(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  const verifier = randomText();
  const state = randomText();
  const challenge = base64Url(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)));
  /** @type {PendingSignIn} */
  const pending = { state, verifier, clientId, tokenEndpoint: provider.token_endpoint, fragment: location.hash };
  sessionStorage.setItem(KEY, JSON.stringify(pending));
  const url = new URL(provider.authorization_endpoint);
  const parameters = {
    response_type: "code",
    client_id: clientId,
    redirect_uri: redirectUri(),
    scope: "openid profile",
    state,
    code_challenge: challenge,
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  location.assign(url);
}

/** Exchanges the code that the identity provider sent, if the page was opened with one. */
export async function finishOidcSignIn() {
  const query = new URLSearchParams(location.search);
  const stored = sessionStorage.getItem(KEY);
  if (!stored || !query.has("state")) return;
  sessionStorage.removeItem(KEY);
  /** @type {PendingSignIn} */
  const pending = JSON.parse(stored);
  history.replaceState(null, "", location.pathname);
  if (pending.fragment) navigate(pending.fragment, { replace: true });
  try {
    if (query.get("state") !== pending.state) throw new ApiError("The answer belongs to another sign-in. Try again.");
    const code = query.get("code");
    if (!code) throw new ApiError(query.get("error_description") ?? query.get("error") ?? "Sign-in was refused.");
    const tokens = await fetchFromIssuer(pending.tokenEndpoint, {
      method: "POST",
      body: new URLSearchParams({
        grant_type: "authorization_code",
        code,
        redirect_uri: redirectUri(),
        client_id: pending.clientId,
        code_verifier: pending.verifier,
      }),
    });
    setCredential(tokens.access_token);
  } catch (error) {
    sessionError.value = error instanceof ApiError ? error : new ApiError(String(error));
  }
}
