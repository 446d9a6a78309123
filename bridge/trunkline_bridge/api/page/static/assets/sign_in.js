/** The form that asks for an API key or a token, or leads to the identity provider. */

import { Button } from "./components/basics.js";
import { Field } from "./components/fields.js";
import { startOidcSignIn } from "./oidc.js";
import { asApiError } from "./store/hooks.js";
import { openSession, sessionError, signIn, signInWays } from "./store/session.js";
import { html, useState } from "./vendor/preact.js";

export function SignIn() {
  const [credential, setCredential] = useState("");
  const [busy, setBusy] = useState(false);
  const ways = signInWays.value;
  const names = [ways?.apiKey && "API key", ways?.token && "token"].filter(Boolean).join(" or ") || "API key";
  /** @param {() => Promise<void>} action */
  const run = async (action) => {
    setBusy(true);
    try {
      await action();
    } catch (error) {
      sessionError.value = asApiError(error);
    }
    setBusy(false);
  };
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    if (credential.trim()) void run(() => signIn(credential.trim()));
  };
  const oidc = ways?.oidc;
  return html`<main class="centered">
    <div class="sign-in panel">
      <img src="assets/icon.svg" width="32" height="32" alt="" />
      <h1 tabindex="-1">Sign in to Trunkline</h1>
      ${sessionError.value && html`<p class="form-error" role="alert">${sessionError.value.message}</p>`}
      ${oidc &&
      html`<${Button} kind="primary" busy=${busy} onClick=${() => run(() => startOidcSignIn(oidc))}>Continue with ${new URL(oidc.issuer).host}<//>
        <div class="or muted small">or</div>`}
      <form class="stack" onSubmit=${submit}>
        <${Field} label=${names} hint="It stays in this tab, and is sent to this bridge only.">
          ${(/** @type {string} */ id) => html`<input
            id=${id}
            type="password"
            class="input mono"
            autocomplete="current-password"
            spellcheck=${false}
            value=${credential}
            onInput=${(/** @type {any} */ event) => setCredential(event.target.value)}
          />`}
        <//>
        <${Button} type="submit" kind=${oidc ? "plain" : "primary"} busy=${busy} disabled=${!credential.trim()}>Sign in<//>
      </form>
      ${ways?.anonymous && html`<${Button} kind="quiet" busy=${busy} onClick=${() => run(openSession)}>Continue without signing in<//>`}
    </div>
  </main>`;
}
