/** One exchange of a conversation: messages and answers, what happened in between, and what the task waits for. */

import { Button, CopyButton, StateBadge } from "../components/basics.js";
import { FileChip } from "../components/file_chip.js";
import { JsonView } from "../components/json_view.js";
import { Markdown } from "../components/markdown.js";
import { isOver, listTurns } from "../store/chat_task.js";
import { mayCall } from "../store/session.js";
import { html, useMemo } from "../vendor/preact.js";
import { Activity } from "./chat_activity.js";

/**
 * @typedef {import("../store/chat_task.js").ChatMessage} ChatMessage
 * @typedef {import("../store/chat_task.js").ChatPart} ChatPart
 */

const SENTENCES = /** @type {Record<string, string>} */ ({
  submitted: "Waits to begin",
  working: "Working",
  failed: "The task failed.",
  rejected: "The agent rejected the request.",
  canceled: "The task was canceled.",
  "auth-required": "The agent needs you to sign in elsewhere.",
});

/** @param {{exchange: import("../store/conversation.js").Exchange, conversation: import("../store/conversation.js").Conversation}} props */
export function Exchange({ exchange, conversation }) {
  const { task, sent, reply, error, unsent } = exchange;
  const turns = useMemo(() => (task ? listTurns(task) : []), [task]);
  const parts = turns.flatMap((turn, index) => [
    turn.request && html`<${Request} key=${turn.request.id} message=${turn.request} />`,
    task && index === turns.length - 1 && html`<${Activity} key="activity" taskId=${task.id} isOver=${isOver(task)} />`,
    ...turn.artifacts.map((artifact) => html`<${Answer} key=${artifact.id} agent=${conversation.agent} parts=${artifact.parts} />`),
    ...turn.messages.map((message) => html`<${Answer} key=${message.id} agent=${conversation.agent} parts=${message.parts} />`),
  ]);
  return html`<article class="exchange" aria-label="Exchange">
    ${parts.filter(Boolean)}
    ${task && html`<${Status} task=${task} isBusy=${Boolean(sent)} />`}
    ${sent && html`<${Request} message=${sent} isUnsent=${Boolean(error)} />`}
    ${sent && !error && html`<p class="muted small" role="status"><span class="spinner inline"></span>Sending</p>`}
    ${reply && html`<${Answer} agent=${conversation.agent} parts=${reply.parts} />`}
    ${error && html`<div class="notice error row wrap" role="alert"><span class="grow">${error}</span>
      ${unsent && mayCall("SendStreamingMessage") && html`<${Button} icon="refresh" onClick=${() => conversation.submit(unsent)}>Send again<//>`}</div>`}
  </article>`;
}

/** @param {{message: ChatMessage, isUnsent?: boolean}} props */
function Request({ message, isUnsent }) {
  return html`<div class="bubble ${isUnsent ? "unsent" : ""}"><span class="visually-hidden">You: </span><${Parts} parts=${message.parts} isPlain /></div>`;
}

/** @param {{agent: string, parts: ChatPart[]}} props */
function Answer({ agent, parts }) {
  const text = parts.map((part) => ("text" in part ? part.text : "")).join("\n");
  if (!parts.length) return null;
  return html`<div class="answer">
    <div class="row"><strong class="small">${agent}</strong><span class="grow"></span>${text && html`<${CopyButton} text=${text} what="the answer" />`}</div>
    <${Parts} parts=${parts} />
  </div>`;
}

/** @param {{parts: ChatPart[], isPlain?: boolean}} props */
function Parts({ parts, isPlain }) {
  return parts.map((part, index) => {
    if ("text" in part) return isPlain ? html`<div class="plain-text" key=${index}>${part.text}</div>` : html`<${Markdown} key=${index} text=${part.text} />`;
    if ("file" in part) return html`<${FileChip} key=${index} file=${part.file} />`;
    return html`<${JsonView} key=${index} value=${part.data} />`;
  });
}

/** @param {{task: import("../store/chat_task.js").ChatTask, isBusy: boolean}} props */
function Status({ task, isBusy }) {
  const { state, notice } = task;
  const isKnown = !notice || task.history.some((message) => message.id === notice.id);
  const words = isKnown ? [] : notice.parts;
  if (state === "completed" && !words.length) return null;
  if (state === "submitted" || state === "working") {
    if (isBusy) return null;
    const text = words.map((part) => ("text" in part ? part.text : "")).join(" ");
    return html`<p class="muted small" role="status"><span class="spinner inline"></span>${text || SENTENCES[state]}</p>`;
  }
  if (state === "completed" || state === "input-required") return words.length ? html`<div class="answer"><${Parts} parts=${words} /></div>` : null;
  return html`<div class="status-line row wrap"><${StateBadge} state=${state} />${words.length ? html`<div class="grow"><${Parts} parts=${words} /></div>` : html`<span>${SENTENCES[state] ?? ""}</span>`}</div>`;
}
