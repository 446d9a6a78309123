/** Chat: asks an agent over A2A, shows the progress of its task, and continues after a reload. */

import { getJson } from "../api.js";
import { Badge, Button, Empty, ErrorState, Id, Loading, PageHeader } from "../components/basics.js";
import { Select } from "../components/fields.js";
import { changeQuery, href, navigate, routePath } from "../router.js";
import { Conversation } from "../store/conversation.js";
import { asApiError } from "../store/hooks.js";
import { useAgents } from "../store/mesh.js";
import { mayCall, session } from "../store/session.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { Composer } from "./chat_composer.js";
import { Exchange } from "./chat_exchange.js";
import { RecentConversations } from "./chat_recent.js";

const NEAR_END_PX = 120;

/** @param {import("../views.js").ViewProps} props */
export default function Chat({ query }) {
  const taskId = query.get("task") ?? "";
  const [agentOfTask, error, retry] = useAgentOfTask(query.get("agent") ? "" : taskId);
  const agent = query.get("agent") || agentOfTask || (taskId ? "" : (session.value?.defaultAgent ?? ""));
  const conversation = useConversation(agent, taskId);
  const [recent, setRecent] = useState(false);
  const agents = useAgents();
  const names = agents.includes(agent) || !agent ? agents : [agent, ...agents];
  const last = conversation?.exchanges.value.at(-1)?.task;

  return html`<div class="view full chat">
    <${PageHeader} title="Chat" after=${conversation?.reconnecting.value && html`<${Badge} tone="warn">Reconnecting<//>`}>
      <${Select} label="Agent" visibleLabel value=${agent} options=${names} onChange=${(/** @type {string} */ chosen) => navigate(href(["chat"], { agent: chosen }))} />
      <${Button} onClick=${() => setRecent(true)}>Recent<//>
      <${Button} icon="chat" disabled=${!conversation?.exchanges.value.length} onClick=${() => navigate(href(["chat"], { agent }))}>New conversation<//>
    <//>
    ${!agent && !taskId && html`<${Empty} icon="chat" title="There is no agent to ask">Your credentials are for none of the agents of this mesh.<//>`}
    ${error && html`<${ErrorState} error=${error} onRetry=${retry} title="The conversation could not be loaded" />`}
    ${conversation && html`<${Thread} conversation=${conversation} taskId=${taskId} />`}
    ${conversation && (mayCall("SendStreamingMessage") ? html`<${Composer} key=${conversation.agent} conversation=${conversation} />` : html`<p class="notice">Your credentials do not allow sending messages.</p>`)}
    ${last && html`<p class="muted small chat-foot row wrap"><span>Task</span> <${Id} value=${last.id} link=${href(["tasks", last.id])} /> <a href=${href(["tasks", last.id, "trace"])}>Trace</a> <a href=${href(["wire"], { task: last.id })}>Wire</a></p>`}
    ${recent && html`<${RecentConversations} agent=${agent} onClose=${() => setRecent(false)} />`}
  </div>`;
}

/**
 * Finds the agent of a task whose link does not name it.
 * @param {string} taskId Empty: nothing is looked up.
 * @returns {[string, import("../api.js").ApiError | null, () => void]}
 */
function useAgentOfTask(taskId) {
  const [state, setState] = useState({ agent: "", error: /** @type {import("../api.js").ApiError | null} */ (null) });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    setState({ agent: "", error: null });
    if (!taskId) return undefined;
    const abort = new AbortController();
    getJson(`tasks/${encodeURIComponent(taskId)}`, { signal: abort.signal }).then(
      (answer) => setState({ agent: answer.task.agent, error: null }),
      (error) => {
        if (!abort.signal.aborted) setState({ agent: "", error: asApiError(error) });
      },
    );
    return () => abort.abort();
  }, [taskId, attempt]);
  return [state.agent, state.error, () => setAttempt((count) => count + 1)];
}

/**
 * Returns the conversation that the URL names. One that has just got its first task stays.
 * @param {string} agent
 * @param {string} taskId
 */
function useConversation(agent, taskId) {
  const current = useRef(/** @type {Conversation | null} */ (null));
  const [, redraw] = useState(0);
  useEffect(() => {
    const now = current.current;
    if (!agent || (now?.agent === agent && taskId && now.has(taskId))) return;
    now?.close();
    const next = new Conversation(agent, (id) => {
      if (current.current === next && routePath.peek() === "chat") changeQuery({ agent, task: id });
    });
    current.current = next;
    void next.open(taskId);
    redraw((count) => count + 1);
  }, [agent, taskId]);
  useEffect(() => () => current.current?.close(), []);
  return current.current;
}

/** @param {{conversation: Conversation, taskId: string}} props */
function Thread({ conversation, taskId }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const isAtEnd = useRef(true);
  const exchanges = conversation.exchanges.value;
  const isWorking = Boolean(conversation.openTask);

  useLayoutEffect(() => {
    const element = scroller.current;
    const content = element?.firstElementChild;
    if (!element || !content) return undefined;
    const onScroll = () => {
      isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    };
    // New text at the end stays in sight, unless the reader has scrolled up.
    const observer = new ResizeObserver(() => {
      if (isAtEnd.current) element.scrollTop = element.scrollHeight;
    });
    observer.observe(content);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, [conversation]);

  return html`<div class="chat-scroller" ref=${scroller} tabindex="0" role="region" aria-label="Conversation">
    <div class="chat-thread" role="log" aria-busy=${isWorking ? "true" : "false"} aria-label="Messages">
      ${conversation.error.value && html`<${ErrorState} error=${conversation.error.value} title="The conversation could not be loaded" onRetry=${() => conversation.open(taskId)} />`}
      ${conversation.loading.value && html`<${Loading} label="Loading the conversation" />`}
      ${!exchanges.length && !conversation.loading.value && !conversation.error.value && html`<${Empty} icon="chat" title=${`Ask ${conversation.agent}`}>
        Its plan, tool calls and answer appear here as they happen. You can reload at any time; the task goes on.
      <//>`}
      ${exchanges.map((exchange) => html`<${Exchange} key=${exchange.key} exchange=${exchange} conversation=${conversation} />`)}
    </div>
  </div>`;
}
