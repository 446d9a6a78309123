/** The field for a message, with files. */

import { Button } from "../components/basics.js";
import { FileChip } from "../components/file_chip.js";
import { Icon } from "../components/icons.js";
import { toast } from "../components/toasts.js";
import { bytes } from "../format.js";
import { mayCall } from "../store/session.js";
import { html, useEffect, useRef, useState } from "../vendor/preact.js";

/** @typedef {import("../components/file_chip.js").ChatFile} ChatFile */

const MOST_BYTES = 8_000_000;
const MOST_ROWS = 8;

/** @param {{conversation: import("../store/conversation.js").Conversation}} props */
export function Composer({ conversation }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState(/** @type {ChatFile[]} */ ([]));
  const [canceling, setCanceling] = useState(false);
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const open = conversation.openTask;
  const isWaiting = open?.state === "input-required" || open?.state === "auth-required";
  const isSending = conversation.exchanges.value.some((each) => each.sent && !each.error);
  const isRunning = Boolean(open) && !isWaiting;
  const canSend = !isRunning && !isSending && !conversation.loading.value && Boolean(text.trim() || files.length);

  useEffect(() => {
    field.current?.focus({ preventScroll: true });
    setCanceling(false);
  }, [conversation, isRunning]);

  /** @param {File[]} chosen */
  const attach = async (chosen) => {
    const size = files.reduce((sum, file) => sum + (file.content?.length ?? 0), 0) + chosen.reduce((sum, file) => sum + file.size, 0);
    if (size > MOST_BYTES) {
      toast(`Files of a message may have ${bytes(MOST_BYTES)} together.`, "error");
      return;
    }
    const read = chosen.map(async (file) => ({
      name: file.name,
      mediaType: file.type || "application/octet-stream",
      content: new Uint8Array(await file.arrayBuffer()),
    }));
    try {
      const added = await Promise.all(read);
      setFiles((now) => [...now, ...added]);
    } catch {
      toast("The file could not be read.", "error");
    }
  };
  const send = () => {
    if (!canSend) return;
    void conversation.send(text.trim(), files);
    setText("");
    setFiles([]);
  };
  const cancel = async () => {
    setCanceling(true);
    try {
      await conversation.cancel();
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "error");
      setCanceling(false);
    }
  };
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };

  return html`<form
    class="composer"
    aria-label="Message"
    onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      send();
    }}
    onDragOver=${(/** @type {DragEvent} */ event) => event.preventDefault()}
    onDrop=${(/** @type {DragEvent} */ event) => {
      event.preventDefault();
      void attach([...(event.dataTransfer?.files ?? [])]);
    }}
  >
    ${files.length > 0 && html`<div class="composer-files">${files.map((file) => html`<${FileChip} key=${file.name} file=${file} onRemove=${() => setFiles(files.filter((each) => each !== file))} />`)}</div>`}
    <textarea
      ref=${field}
      rows=${Math.min(MOST_ROWS, Math.max(1, text.split("\n").length))}
      aria-label=${isWaiting ? "Your answer" : "Your message"}
      placeholder=${isWaiting ? "Answer" : isRunning ? "Wait for the answer, or cancel the task" : `Message to ${conversation.agent}`}
      value=${text}
      onInput=${(/** @type {any} */ event) => setText(event.target.value)}
      onKeyDown=${onKeyDown}
      onPaste=${(/** @type {ClipboardEvent} */ event) => {
        const pasted = [...(event.clipboardData?.files ?? [])];
        if (pasted.length) void attach(pasted);
      }}
    ></textarea>
    <div class="row">
      <input
        ref=${picker}
        type="file"
        multiple
        hidden
        aria-label="Files"
        onChange=${(/** @type {any} */ event) => {
          void attach([...event.target.files]);
          event.target.value = "";
        }}
      />
      <${Button} kind="quiet" icon="file" label="Attach files" onClick=${() => picker.current?.click()}>Attach<//>
      <span class="muted small grow composer-hint truncate">${isWaiting ? "The task waits for your answer." : "Enter sends, Shift+Enter begins a line."}</span>
      ${open && mayCall("CancelTask") && html`<${Button} kind="danger" icon="stop" busy=${canceling} onClick=${cancel}>Cancel task<//>`}
      <button type="submit" class="button primary" disabled=${!canSend}><${Icon} name="flow" />Send</button>
    </div>
  </form>`;
}
