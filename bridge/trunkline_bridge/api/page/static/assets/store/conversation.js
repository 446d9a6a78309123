/** A conversation with one agent over A2A: it sends messages, follows their tasks, and resumes after a reload. */

import { ApiError, untracedHeaders } from "../api.js";
import { signal } from "../vendor/preact.js";
import { applyEvent, isOver, readMessage, readTask } from "./chat_task.js";
import { batchByFrame } from "./hooks.js";
import { forgetPending, keepPending, readPending } from "./pending_message.js";

/**
 * @typedef {import("./chat_task.js").ChatTask} ChatTask
 * @typedef {import("./chat_task.js").ChatMessage} ChatMessage
 *
 * @typedef {object} Exchange A message and the task that it began, or the reply that it got instead.
 * @property {string} key
 * @property {ChatMessage | null} sent Not yet in the task's history.
 * @property {ChatTask | null} task
 * @property {ChatMessage | null} reply
 * @property {string} error
 * @property {any} [unsent] The message that the bridge did not accept.
 */

// Exactly one answer for each turn, and a message that is sent again attaches to its task.
const EXTENSIONS = ["plain", "resume"].map((name) => `https://trunkline.dev/a2a/extensions/${name}/v1`);
const USER = 1;
const INPUT_REQUIRED = 6;
const AUTH_REQUIRED = 8;
const FIRST_DELAY_MS = 300;
const MAX_DELAY_MS = 10_000;
const MOST_TASKS = 50;

/**
 * Returns a message of the SDK.
 * @param {string} text
 * @param {import("../components/file_chip.js").ChatFile[]} files
 */
function writeMessage(text, files) {
  const base = { metadata: undefined, filename: "", mediaType: "" };
  const parts = files.map((file) => ({ ...base, content: { $case: "raw", value: file.content }, filename: file.name, mediaType: file.mediaType }));
  if (text || !files.length) parts.unshift(/** @type {any} */ ({ ...base, content: { $case: "text", value: text } }));
  const ids = { messageId: crypto.randomUUID(), contextId: "", taskId: "" };
  return { ...ids, role: USER, parts, metadata: undefined, extensions: [], referenceTaskIds: [] };
}

/**
 * Loads the SDK, which is a large part of the page's script, and returns its client of an agent.
 * @param {string} agent
 */
async function loadClient(agent) {
  const sdk = await import("./a2a.js").catch(() => {
    throw new ApiError("A part of the page could not be loaded from the bridge.");
  });
  return sdk.openClient(agent);
}

/** @param {number} state Of the SDK. */
const isWaitingState = (state) => state === INPUT_REQUIRED || state === AUTH_REQUIRED;

export class Conversation {
  /**
   * @param {string} agent
   * @param {(taskId: string) => void} onTask Called with the newest task, which a reload opens.
   */
  constructor(agent, onTask) {
    this.agent = agent;
    this.onTask = onTask;
    /** The exchanges that the view shows, oldest first. */
    this.exchanges = signal(/** @type {Exchange[]} */ ([]));
    this.contextId = "";
    /** True until an opened conversation is there. */
    this.loading = signal(false);
    this.error = signal(/** @type {Error | null} */ (null));
    /** True while a stream is cut. */
    this.reconnecting = signal(false);
    this.abort = new AbortController();
    /** @type {Promise<any> | null} */
    this.client = null;
    /** @type {Map<string, AbortController>} The one stream of each exchange. */
    this.streams = new Map();
  }

  /** Ends all streams; the tasks continue. */
  close() {
    this.abort.abort();
  }

  /** The last task if it has not ended. */
  get openTask() {
    const task = this.exchanges.value.at(-1)?.task ?? null;
    return isOver(task) ? null : task;
  }

  /** @param {string} taskId */
  has(taskId) {
    return this.exchanges.peek().some((each) => each.task?.id === taskId);
  }

  /** @returns {Promise<any>} */
  connect() {
    this.client ??= loadClient(this.agent).catch((error) => {
      this.client = null;
      throw error;
    });
    return this.client;
  }

  /**
   * Loads the conversation of a task, follows its open tasks, and sends a message whose sending a reload cut.
   * @param {string} taskId Empty: a new conversation.
   */
  async open(taskId) {
    this.error.value = null;
    const pending = readPending(this.agent);
    try {
      if (taskId) {
        this.loading.value = true;
        await this.load(taskId);
      }
      if (this.abort.signal.aborted) return;
    } catch (error) {
      if (!this.abort.signal.aborted) this.error.value = /** @type {Error} */ (error);
      return;
    } finally {
      this.loading.value = false;
    }
    const known = this.exchanges.peek().some((each) => each.task?.history.some((message) => message.id === pending?.message.messageId));
    if (pending && (known || pending.message.taskId !== taskId)) forgetPending();
    for (const { key, task } of this.exchanges.peek()) if (!isOver(task)) void this.follow(key, this.begin(key));
    if (pending && !known && pending.message.contextId === this.contextId) void this.submit(pending.message);
  }

  /** @param {string} taskId */
  async load(taskId) {
    const client = await this.connect();
    const opened = await client.getTask({ tenant: "", id: taskId }, this.readOptions());
    this.contextId = opened.contextId;
    const query = { tenant: "", contextId: opened.contextId, status: 0, pageSize: MOST_TASKS, pageToken: "", includeArtifacts: true };
    const page = await client.listTasks(query, this.readOptions());
    const tasks = new Map([opened, ...page.tasks].map((task) => [task.id, readTask(task)]));
    const sorted = [...tasks.values()].sort((a, b) => (a.time < b.time ? -1 : 1));
    this.exchanges.value = sorted.map((task) => ({ key: task.id, sent: null, task, reply: null, error: "" }));
  }

  /** @param {AbortSignal} [signal] */
  options(signal = this.abort.signal) {
    return { serviceParameters: { "A2A-Extensions": EXTENSIONS.join(",") }, signal };
  }

  /**
   * Returns the options of a request that only reads.
   * @param {AbortSignal} [signal]
   */
  readOptions(signal = this.abort.signal) {
    const options = this.options(signal);
    return { ...options, serviceParameters: { ...options.serviceParameters, ...untracedHeaders() } };
  }

  /**
   * Begins the stream of an exchange. It has one at a time: two would write each text twice.
   * @param {string} key
   */
  begin(key) {
    this.streams.get(key)?.abort();
    const own = new AbortController();
    this.streams.set(key, own);
    return AbortSignal.any([this.abort.signal, own.signal]);
  }

  /**
   * Sends a message: to the task that waits for it, or as a new task of the conversation.
   * @param {string} text
   * @param {import("../components/file_chip.js").ChatFile[]} files
   */
  send(text, files) {
    const message = writeMessage(text, files);
    message.taskId = this.openTask?.id ?? "";
    message.contextId = this.contextId;
    return this.submit(message);
  }

  /** @param {any} message Of the SDK; with the id of one that was sent, it attaches to its task. */
  async submit(message) {
    const sent = readMessage(message);
    const last = this.exchanges.peek().at(-1);
    const isAnswer = Boolean(message.taskId) && last?.task?.id === message.taskId;
    const key = isAnswer ? /** @type {Exchange} */ (last).key : message.messageId;
    if (this.exchanges.peek().some((each) => each.key === key)) this.change(key, { sent, error: "", unsent: undefined });
    else this.exchanges.value = [...this.exchanges.peek(), { key, sent, task: null, reply: null, error: "" }];
    keepPending(this.agent, message);
    const signal = this.begin(key);
    let isTaken = false;
    try {
      const client = await this.connect();
      const request = { tenant: "", message, configuration: undefined, metadata: undefined };
      await this.read(key, signal, client.sendMessageStream(request, this.options(signal)), () => {
        isTaken = true;
        forgetPending();
      });
    } catch (error) {
      if (signal.aborted) return;
      if (!isTaken) {
        // A reload, too, looks like a lost connection; then the message is sent again.
        if (!(error instanceof ApiError && error.isTransient)) forgetPending();
        this.change(key, { error: /** @type {Error} */ (error).message, unsent: message });
      }
    }
    await this.follow(key, signal);
  }

  /**
   * Applies a stream, once a frame. Returns true if another client answered the task: a new stream must begin.
   * @param {string} key
   * @param {AbortSignal} signal
   * @param {AsyncIterable<any>} stream
   * @param {() => void} [onFirst]
   */
  async read(key, signal, stream, onFirst = () => {}) {
    const batches = batchByFrame((/** @type {any[]} */ payloads) => this.apply(key, payloads));
    let isFirst = true;
    let isWaiting = false;
    try {
      for await (const { payload } of stream) {
        if (signal.aborted) return false;
        const status = payload?.value?.status;
        // Another client has answered. Only the stored task has its message, and the next stream begins with that task.
        if (isWaiting && status && !isWaitingState(status.state)) return true;
        if (status) isWaiting = isWaitingState(status.state);
        if (isFirst) {
          onFirst();
          this.reconnecting.value = false;
          this.apply(key, [payload]);
        } else batches.add(payload);
        isFirst = false;
      }
      return false;
    } finally {
      if (signal.aborted) batches.cancel();
      else batches.flush();
    }
  }

  /**
   * @param {string} key
   * @param {any[]} payloads Of the SDK.
   */
  apply(key, payloads) {
    const exchange = this.exchanges.peek().find((each) => each.key === key);
    if (!exchange) return;
    let { task, reply, sent } = exchange;
    for (const payload of payloads) {
      if (payload?.$case === "message") reply = readMessage(payload.value);
      else task = applyEvent(task, payload);
    }
    if (task?.history.some((message) => message.id === sent?.id)) sent = null;
    this.change(key, { task, reply, sent, error: "", unsent: undefined });
    if (task && task.id !== exchange.task?.id) {
      this.contextId = task.contextId;
      this.onTask(task.id);
    }
  }

  /**
   * Follows a task until it ends, again after each cut. Its stream begins with the whole task.
   * @param {string} key
   * @param {AbortSignal} signal
   */
  async follow(key, signal) {
    let delay = FIRST_DELAY_MS;
    const find = () => this.exchanges.peek().find((each) => each.key === key)?.task ?? null;
    for (let task = find(); task && !isOver(task) && !signal.aborted; task = find()) {
      try {
        const client = await this.connect();
        const isAnswered = await this.read(key, signal, client.resubscribeTask({ tenant: "", id: task.id }, this.readOptions(signal)), () => {
          delay = FIRST_DELAY_MS;
        });
        if (isAnswered || isOver(find())) continue;
      } catch {
        // The stored task says whether it has ended, or why it can't be followed.
      }
      if (signal.aborted) return;
      try {
        const client = await this.connect();
        const stored = readTask(await client.getTask({ tenant: "", id: task.id }, this.readOptions(signal)));
        this.change(key, { task: stored, error: "" });
        this.reconnecting.value = false;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && !error.isTransient) {
          this.change(key, { error: error.message });
          return;
        }
        this.reconnecting.value = true;
      }
      const wait = delay * (0.8 + Math.random() * 0.4);
      await new Promise((resolve) => setTimeout(resolve, wait));
      delay = Math.min(delay * 2, MAX_DELAY_MS);
    }
  }

  /** Cancels the open task. */
  async cancel() {
    const task = this.openTask;
    if (!task) return;
    const client = await this.connect();
    await client.cancelTask({ tenant: "", id: task.id, metadata: undefined }, this.options());
  }

  /**
   * @param {string} key
   * @param {Partial<Exchange>} changes
   */
  change(key, changes) {
    this.exchanges.value = this.exchanges.peek().map((each) => (each.key === key ? { ...each, ...changes } : each));
  }
}
