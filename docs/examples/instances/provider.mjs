// A provider of tenants' instances in JavaScript (npm install nats): node provider.mjs nats://127.0.0.1:4222 /srv/instances
// It runs the command of a version as a process of its own user, and answers the requests that docs/platform.md describes. What it knows of releases is in its memory:
// one that is to outlive its own restart stores releases and fences, and finds what runs.
import { spawn } from "node:child_process";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { connect, JSONCodec, nuid } from "nats";

const [url = "nats://127.0.0.1:4222", root = "/srv/instances", prefix = "instar.provider.instance."] = process.argv.slice(2);
const { NATS_USER: user, NATS_PASSWORD: pass } = process.env; // of the role provide
const nc = await connect({ servers: url, user, pass, maxReconnectAttempts: -1 });
const json = JSONCodec();
const releases = new Map(); // by namespace and name
const fences = new Map(); // of all that were asked for, also when they are gone
const owners = new Map(); // of tenants

class Trouble extends Error {
  constructor(code, message, more) { super(message); this.body = { code, message, ...more }; }
}
const key = (q) => `${q.namespace}.${q.name}`;
const tenant = (q) => `${root}/tenants/${q.namespace}.${q.tenant}`;
const home = (q) => `${root}/releases/${key(q)}`;

// fence refuses what is older than something that was seen, and remembers it otherwise.
function fence(q) {
  const seen = fences.get(key(q)) ?? 0;
  if (q.fence < seen) throw new Trouble("fenced", `fence ${q.fence} is older than ${seen}`, { fence: seen });
  fences.set(key(q), q.fence);
}

// free is a port that nobody listens on, of the server's platform.ports: on its own host, the proxy connects to no others.
const free = () => new Promise((done, failed) => {
  const port = 20000 + Math.floor(Math.random() * 10000);
  const s = createServer().on("error", (err) => err.code === "EADDRINUSE" ? done(free()) : failed(err)).listen(port, "127.0.0.1", () => s.close(() => done(port)));
});

// start runs the command, again and again until the release is removed or has failed three times before it was ready.
function start(r) {
  const [program, ...args] = r.q.command;
  r.child = spawn(program, args, { cwd: home(r.q), env: r.env, stdio: ["ignore", "pipe", "pipe"] });
  r.ended = new Promise((done) => r.child.on("close", done).on("error", (err) => { r.last = err.message; done(); }));
  for (const out of [r.child.stdout, r.child.stderr]) {
    out.on("data", (text) => { r.last = hide(r.q, text.toString().trim().split("\n").pop()); });
  }
  r.ended.then((code) => {
    if (r.removed) return;
    if (!r.ready && ++r.crashes >= 3) { r.failed = `exit code ${code}: ${r.last}`; return; }
    setTimeout(() => r.removed || start(r), 200);
  });
}

// hide takes the secrets out of what a program has written, with passwords of URLs.
function hide(q, text) {
  for (const s of Object.values(q.secrets ?? {})) {
    text = text.replaceAll(s, "***");
    const word = URL.canParse(s) && new URL(s).password;
    if (word) text = text.replaceAll(word, "***");
  }
  return text.replace(/(:\/\/[^\s/:@]*:)[^\s/@]+@/g, "$1***@");
}

// healthy asks the release.
async function healthy(r) {
  try {
    const answer = await fetch(`http://${r.address}${r.q.health || "/"}`, { redirect: "manual", signal: AbortSignal.timeout(2000) });
    await answer.body?.cancel();
    return answer.status < 400;
  } catch { return false; }
}

const verbs = {
  async ensure(q) {
    const has = owners.get(tenant(q));
    if (has && has !== q.owner) throw new Trouble("invalid", `${q.tenant} is of ${has}`);
    owners.set(tenant(q), q.owner);
    await mkdir(tenant(q), { recursive: true, mode: 0o700 });
  },
  async forget(q) {
    const has = owners.get(tenant(q));
    if (has && has !== q.owner) return;
    await rm(tenant(q), { recursive: true, force: true });
    owners.delete(tenant(q));
  },
  // deploy begins, and is repeated without harm: the server looks at how far it is.
  async deploy(q) {
    fence(q);
    if (releases.has(key(q))) return;
    const r = { q, crashes: 0, last: "", ready: false };
    releases.set(key(q), r);
    const port = await free();
    r.address = `127.0.0.1:${port}`;
    r.env = { ...q.env, HOST: "127.0.0.1", PORT: String(port), HOME: home(q), TENANT_DIR: tenant(q) };
    await mkdir(`${home(q)}/.secrets`, { recursive: true, mode: 0o700 });
    for (const [name, value] of Object.entries(q.secrets ?? {})) {
      r.env[`${name}_FILE`] = `${home(q)}/.secrets/${name.toLowerCase()}`;
      await writeFile(r.env[`${name}_FILE`], value, { mode: 0o600 });
    }
    start(r);
  },
  async look(q) {
    const r = releases.get(key(q));
    if (!r) throw new Trouble("not-found", `there is no release ${q.name}`);
    const hash = r.q.hash;
    if (r.failed) return { status: r.failed, failed: true, hash };
    if (r.address && await healthy(r)) r.ready = true;
    return r.ready ? { status: "ready", ready: true, address: r.address, hash } : { status: "starting", hash };
  },
  async remove(q) {
    fence(q);
    const r = releases.get(key(q));
    if (r) {
      r.removed = true;
      r.child?.kill("SIGTERM");
      const late = setTimeout(() => r.child?.kill("SIGKILL"), 5000);
      await r.ended;
      clearTimeout(late);
      releases.delete(key(q));
    }
    await rm(home(q), { recursive: true, force: true });
  },
};

for (const [verb, perform] of Object.entries(verbs)) {
  const sub = nc.subscribe(prefix + verb, { queue: "provider" });
  (async () => {
    for await (const m of sub) {
      perform(json.decode(m.data)).then((a) => m.respond(json.encode(a ?? {})), (err) => {
        m.respond(json.encode({ error: err.body ?? { code: "internal", message: err.message } }));
      });
    }
  })();
}
// The console lists who says so every 5 s.
const id = nuid.next();
const here = () => nc.publish("instar.worker.provider-instance", json.encode({ id, queue: "provider-instance", name: `provider.mjs at ${root}` }));
setInterval(here, 5000);
here();
await nc.flush();
console.log("ready");
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => { for (const r of releases.values()) { r.removed = true; r.child?.kill("SIGKILL"); } process.exit(0); });
}
