/** The dialog that starts a run, with a form by the schema of the workflow's input. */

import { postJson } from "../api.js";
import { Button } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { SchemaForm, readForm, startValues } from "../components/schema_form.js";
import { toast } from "../components/toasts.js";
import { href, navigate } from "../router.js";
import { asApiError } from "../store/hooks.js";
import { html, useRef, useState } from "../vendor/preact.js";

/**
 * @param {{name: string, version: number, isCurrent: boolean, schema: import("../components/schema_form.js").Schema, onClose: () => void}} props
 */
export function StartDialog({ name, version, isCurrent, schema, onClose }) {
  const [values, setValues] = useState(() => startValues(schema));
  const [problems, setProblems] = useState(/** @type {Record<string, string>} */ ({}));
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  // A click that is repeated after a lost answer starts one run.
  const requestId = useRef(crypto.randomUUID?.() ?? `page-${Date.now()}-${Math.random()}`);

  const start = async () => {
    const form = readForm(schema, values);
    setProblems(form.problems);
    setError("");
    if (Object.keys(form.problems).length) return;
    setBusy(true);
    try {
      const { taskId } = await postJson(`workflows/${encodeURIComponent(name)}:start`, { inputs: form.object, version, requestId: requestId.current });
      toast("The run has started.", "ok");
      navigate(href(["workflows", name, "runs", taskId]));
    } catch (problem) {
      const { message, status } = asApiError(problem);
      // A refused request is not repeated: another input is another request.
      if (status) requestId.current = `${requestId.current}-`;
      setError(message);
      setBusy(false);
    }
  };
  return html`<${Dialog}
    title=${`Start ${name}`}
    onClose=${onClose}
    actions=${html`<${Button} onClick=${onClose}>Close<//><${Button} kind="primary" icon="play" busy=${busy} onClick=${start}>Start<//>`}
  >
    <div class="stack">
      <p class="muted small">Version ${version}${isCurrent ? ", the current one" : ", which is not the current one"}.</p>
      <${SchemaForm} schema=${schema} values=${values} problems=${problems} onChange=${setValues} />
      ${error && html`<p class="error-text" role="alert">${error}</p>`}
    </div>
  <//>`;
}
