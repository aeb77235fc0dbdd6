// Reads the first event of a service as an SDK of CloudEvents does, and prints its data.
import { connect } from "nats";
import { HTTP } from "cloudevents";

const nc = await connect({ servers: process.argv[2] });
const js = nc.jetstream();
const c = await js.consumers.get("EVENTS", { filterSubjects: process.argv[3] });
const m = await c.next({ expires: 20000 });
const headers = {};
for (const [k, v] of m.headers) headers[k.toLowerCase()] = v[0];
const event = HTTP.toEvent({ headers, body: m.string() });
console.log(JSON.stringify({ type: event.type, data: event.data, decoded: typeof event.data === "object" }));
await nc.close();
