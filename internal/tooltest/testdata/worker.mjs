// A gateway in another language: takes every task of services and tells what it has done.
import { connect, headers, nuid } from "nats";

const nc = await connect({ servers: process.argv[2] });
const js = nc.jetstream();
const text = new TextEncoder();

async function send(task, command, body) {
  const h = headers();
  h.set("Nats-Msg-Id", `service/${task.namespace}.${task.id}/${nuid.next()}`);
  await js.publish(`instar.cmd.service.${task.namespace}.${task.id}.${command}`, text.encode(JSON.stringify(body)), { headers: h });
}

const work = {
  async apply(task) {
    const uid = "node-" + task.data.uid;
    await send(task, "applied", { attempt: task.attempt, data: { uid, generation: 1, resourceVersion: "1", hash: task.data.hash } });
    await send(task, "observed", { data: { exists: true, uid, generation: 1, observedGeneration: 1, specHash: task.data.hash, ready: "True", url: "http://127.0.0.1:1" } });
  },
  async delete(task) {
    await send(task, "delete-accepted", { attempt: task.attempt });
    await send(task, "deleted-observed", {});
  },
  async observe(task) {
    await send(task, "failed", { effect: "observe", attempt: task.attempt, failure: { code: "unavailable", message: "not looked at", retryable: false } });
  },
};

async function consumer(effect) {
  for (;;) {
    try {
      return await js.consumers.get("EFFECTS", "fx-service-" + effect);
    } catch {
      await new Promise((r) => setTimeout(r, 100));
    }
  }
}

console.log("working");
await Promise.all(Object.keys(work).map(async (effect) => {
  for await (const m of await (await consumer(effect)).consume()) {
    await work[effect](m.json());
    m.ack();
    console.log(effect);
  }
}));
