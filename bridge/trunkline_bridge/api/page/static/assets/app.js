/** Starts the page: the session first, then the shell with the view of the URL's fragment. */

import { ErrorState, Loading } from "./components/basics.js";
import { Toasts } from "./components/toasts.js";
import { finishOidcSignIn } from "./oidc.js";
import { Shell } from "./shell.js";
import { SignIn } from "./sign_in.js";
import { openSession, phase, sessionError } from "./store/session.js";
import { takeToolRedirect } from "./tool_sign_in.js";
import { html, render } from "./vendor/preact.js";

function App() {
  const parts = {
    loading: () => html`<main class="centered"><${Loading} label="Connecting to the bridge" /></main>`,
    "sign-in": () => html`<${SignIn} />`,
    error: () => html`<main class="centered">
      <${ErrorState} error=${sessionError.value} onRetry=${openSession} title="The page cannot start" />
    </main>`,
    ready: () => html`<${Shell} />`,
  };
  return html`${parts[phase.value]()}<${Toasts} />`;
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
const finishToolSignIn = takeToolRedirect();
await finishOidcSignIn();
await openSession();
await finishToolSignIn();
