// Runs the client of @a2a-js/sdk 1.x: URL, API key.
import { randomUUID } from "node:crypto";
import { drive, requireSdk, cached, options, url } from "./driving.mjs";

const sdk = requireSdk("@a2a-js/sdk/client");
const { GrpcTransportFactory } = requireSdk("@a2a-js/sdk/client/grpc");
const STATES = ["", "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required"];

const client = cached((binding) => {
  const transports = [new sdk.JsonRpcTransportFactory(), new sdk.RestTransportFactory(), new GrpcTransportFactory()];
  const factory = new sdk.ClientFactory({ transports, preferredTransports: [binding] });
  return factory.createFromUrl(`${url}/`);
});

const text = (parts) => (parts ?? []).map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("");
const status = (one) => ({ state: STATES[one.state], said: text(one.message?.parts) });
const files = (artifact) =>
  artifact.parts.filter((part) => part.content?.$case === "raw").map((part) => [...part.content.value]);

function task(one) {
  return {
    kind: "task",
    task: one.id,
    context: one.contextId,
    ...status(one.status),
    text: one.artifacts.map((artifact) => text(artifact.parts)).join(""),
    files: one.artifacts.flatMap(files),
    history: one.history.map((message) => text(message.parts)),
  };
}

function toJson({ payload: { $case, value } }) {
  if ($case === "task") return task(value);
  if ($case === "message") return { kind: "message", text: text(value.parts) };
  if ($case === "statusUpdate") return { kind: "status", task: value.taskId, ...status(value.status) };
  return { kind: "artifact", task: value.taskId, text: text(value.artifact.parts) };
}

function request({ text, task = "", context = "", message_id = randomUUID(), now = false, file }) {
  const part = (content) => ({ content, metadata: undefined, filename: "", mediaType: "" });
  const parts = [part({ $case: "text", value: text })];
  if (file) parts.push({ ...part({ $case: "raw", value: Buffer.from(file) }), filename: "dot.png", mediaType: "image/png" });
  return {
    tenant: "",
    message: {
      messageId: message_id, contextId: context, taskId: task, role: 1, parts,
      metadata: undefined, extensions: [], referenceTaskIds: [],
    },
    configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: now },
    metadata: undefined,
  };
}

async function* events(stream) {
  for await (const event of stream) yield toJson(event);
}

async function* streamLater(start) {
  yield* events(await start());
}

await drive({
  async card() {
    const card = await new sdk.DefaultAgentCardResolver().resolve(`${url}/`);
    return { name: card.name, pushes: card.capabilities.pushNotifications };
  },
  async send({ binding, ...message }) {
    const answer = await (await client(binding)).sendMessage(request(message), options);
    return "messageId" in answer ? { kind: "message", text: text(answer.parts) } : task(answer);
  },
  stream: ({ binding, ...message }) =>
    streamLater(async () => (await client(binding)).sendMessageStream(request(message), options)),
  async get({ binding, task: id, history }) {
    return task(await (await client(binding)).getTask({ tenant: "", id, historyLength: history ?? undefined }, options));
  },
  async list({ binding, context }) {
    const params = { tenant: "", contextId: context, status: 0, pageToken: "", statusTimestampAfter: undefined };
    const page = await (await client(binding)).listTasks(params, options);
    return { tasks: page.tasks.map((one) => one.id), total: page.totalSize };
  },
  async cancel({ binding, task: id }) {
    return task(await (await client(binding)).cancelTask({ tenant: "", id, metadata: undefined }, options));
  },
  subscribe: ({ binding, task: id }) =>
    streamLater(async () => (await client(binding)).resubscribeTask({ tenant: "", id }, options)),
  async set_push({ binding, task: taskId, config: id, url }) {
    const config = { tenant: "", id, taskId, url, token: "", authentication: undefined };
    const created = await (await client(binding)).createTaskPushNotificationConfig(config, options);
    return { id: created.id, url: created.url };
  },
  async get_push({ binding, task: taskId, config: id }) {
    const result = await (await client(binding)).getTaskPushNotificationConfig({ tenant: "", taskId, id }, options);
    return { id: result.id, url: result.url };
  },
  async list_push({ binding, task: taskId }) {
    const params = { tenant: "", taskId, pageSize: 0, pageToken: "" };
    const page = await (await client(binding)).listTaskPushNotificationConfig(params, options);
    return page.configs.map((one) => one.id);
  },
  async delete_push({ binding, task: taskId, config: id }) {
    await (await client(binding)).deleteTaskPushNotificationConfig({ tenant: "", taskId, id }, options);
  },
  async extended_card({ binding }) {
    return (await (await client(binding)).getAgentCard(options)).skills.map((skill) => skill.id);
  },
});
