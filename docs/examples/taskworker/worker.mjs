// A worker of the tasks of the pool greeters in JavaScript (npm install nats): node worker.mjs [nats://127.0.0.1:4222]
import { connect, headers, nuid } from "nats";

const nc = await connect({ servers: process.argv[2] ?? "nats://127.0.0.1:4222", maxReconnectAttempts: -1 });
const js = nc.jetstream();
const text = new TextEncoder();
const key = (t) => `${t.namespace}.${t.parent}.${t.id}`;

// wanted reports whether the task still waits for this attempt: it may be canceled, have another one, or be gone. Where nobody says so, it is left for its next delivery.
async function wanted(t) {
  const m = await nc.request(`instar.api.get.task.${key(t)}`, undefined, { timeout: 5000 });
  const code = m.headers?.get("Nats-Service-Error-Code");
  if (code && code !== "404") throw new Error(`cannot ask for ${key(t)}: ${m.headers.get("Nats-Service-Error")}`);
  if (code) return false;
  return m.json().effects?.run?.id === t.attempt;
}

// send stores a result. Its id is one that nobody can guess.
async function send(t, command, body) {
  const h = headers();
  h.set("Nats-Msg-Id", `task/${key(t)}/${nuid.next()}`);
  await js.publish(`instar.cmd.task.${key(t)}.${command}`, text.encode(JSON.stringify(body)), { headers: h });
}

async function perform(m) {
  const t = m.json();
  if (await wanted(t)) {
    const beat = setInterval(() => m.working(), 10_000); // or it is given to another one after 30 s
    try {
      if (t.data.type !== "greet") throw new Error(`no task of type ${t.data.type} is done here`);
      await send(t, "done", { attempt: t.attempt, data: { worker: "node", summary: `hello ${t.data.params.name}` } });
    } catch (err) {
      await send(t, "failed", { effect: "run", attempt: t.attempt, failure: { code: "failed", message: err.message, retryable: false } });
    } finally {
      clearInterval(beat);
    }
  }
  await m.ackAck();
}

// The console lists who says so every 5 s.
let running = 0;
const id = nuid.next();
setInterval(() => nc.publish("instar.worker.fx-task-run=greeters", text.encode(JSON.stringify({ id, queue: "fx-task-run=greeters", name: "worker.mjs", concurrency: 1, running }))), 5000);

// The queue of a pool is there while it has tasks or an entry, so it may go, and come again.
for (;;) {
  try {
    const consumer = await js.consumers.get("EFFECTS", "fx-task-run=greeters");
    for await (const m of await consumer.consume({ max_messages: 1 })) {
      running = 1;
      await perform(m).catch((err) => console.error("left for its next delivery:", err.message));
      running = 0;
    }
  } catch {
    await new Promise((r) => setTimeout(r, 200));
  }
}
