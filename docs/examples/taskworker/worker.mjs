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

// greet is the work, which takes as many seconds as the task says. What it throws fails the task for good.
async function greet(t) {
  if (t.data.type !== "greet") throw new Error(`no task of type ${t.data.type} is done here`);
  await new Promise((r) => setTimeout(r, 1000 * (t.data.params.seconds ?? 0)));
  return { worker: "node", summary: `hello ${t.data.params.name}` };
}

// report stores what came of the work, and tries again until that is stored: while nodes restart nobody answers, and work that is done has not failed by that. The id is one that nobody can guess, and
// another one each time. Of two results of one attempt the task takes one.
async function report(t, command, body) {
  for (;;) {
    const h = headers();
    h.set("Nats-Msg-Id", `task/${key(t)}/${nuid.next()}`);
    try {
      return await js.publish(`instar.cmd.task.${key(t)}.${command}`, text.encode(JSON.stringify(body)), { headers: h });
    } catch (err) {
      console.error(`the result of ${key(t)} is not stored yet:`, err.message);
      if (!(await wanted(t).catch(() => true))) return; // as one that can never be stored, when the time of its task is over
      await new Promise((r) => setTimeout(r, 1000));
    }
  }
}

// perform takes a delivery to its end, and says meanwhile that it is in progress: else it is given to another one after the ack wait.
async function perform(m, ackWait) {
  const t = m.json();
  if (await wanted(t)) {
    const beat = setInterval(() => m.working(), ackWait / 3);
    try {
      const result = await greet(t).then((data) => ["done", { attempt: t.attempt, data }], (err) => ["failed", { effect: "run", attempt: t.attempt, failure: { code: "failed", message: err.message, retryable: false } }]);
      await report(t, ...result);
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

// The queue of a pool is there while it has tasks or an entry, so it may go, and come again. One task is asked for at a time: what waited here would not be in progress.
for (;;) {
  try {
    const consumer = await js.consumers.get("EFFECTS", "fx-task-run=greeters");
    const { config } = await consumer.info(true);
    for (;;) {
      const m = await consumer.next({ expires: 5000 });
      if (!m) continue;
      running = 1;
      await perform(m, config.ack_wait / 1e6).catch((err) => console.error("left for its next delivery:", err.message));
      running = 0;
    }
  } catch {
    await new Promise((r) => setTimeout(r, 200));
  }
}
