// The API, as any client has it. get(path, query) and send(method, path, {body, headers, query}) answer {data, text, etag, status, headers} or throw a Problem
// (RFC 9457). Machines are loaded once (machines()), and anew for what ofMachines keeps, and their paths made here (collection, entityPath), as those of pages (pageOf). session says who asks.
import { useEffect, useRef } from './base.js';
import { again, connection } from './live.js';
import { paused, store } from './store.js';

/** Problem is an answer that is an error: status, code, title, detail, errors, currentState, allowedCommands, requestId as the API has them, and replayed: whether it was kept under an Idempotency-Key. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || 'HTTP ' + status);
    Object.assign(this, body, { status });
  }
}

/** session is {open, signedIn, name, role, namespace, readOnly, until}; undefined until it is known. */
export const session = store(undefined);

const rank = { read: 1, operate: 2, admin: 3 };

/** may reports whether who looks may do what needs a role: 'read', 'operate', 'admin'. What is read-only shows no actions. */
export function may(role, s = session.get()) {
  if (!s || (s.readOnly && role !== 'read')) return false;
  return (rank[s.role] || 0) >= rank[role];
}

/** own is the namespace of a session that sees only that one. */
export const own = (s = session.get()) => (s?.namespace && s.namespace !== '*' ? s.namespace : undefined);

/** ofAll reports whether who looks sees all namespaces. */
export const ofAll = () => !own();

/** namespaceOf is that of what an address names: where it says none, that of the session, or default, as for the API. */
export const namespaceOf = (query) => query.get('namespace') || own() || 'default';

export async function loadSession() {
  const { data } = await get('/v1/session');
  session.set(data);
  return data;
}

export async function signIn(token) {
  const { data } = await send('POST', '/v1/session', { body: { token } });
  forget();
  session.set(data);
  again();
}

export async function signOut() {
  const { data } = await send('DELETE', '/v1/session');
  forget();
  session.set(data);
  again();
}

function withQuery(path, query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query || {})) {
    for (const v of Array.isArray(value) ? value : [value]) if (v !== undefined && v !== null && v !== '') params.append(name, v);
  }
  const text = params.toString();
  return text ? path + (path.includes('?') ? '&' : '?') + text : path;
}

/** get reads. */
export const get = (path, query, signal) => send('GET', path, { query, signal });

/** optional is what there is at a path, or null where there is nothing, or not for who asks. */
export const optional = (path, query, signal) => get(path, query, signal).then(({ data }) => data, (e) => { if ([403, 404].includes(e.status)) return null; throw e; });

/** atLeast is so many items of a list, if it has them, and whether there are more. by is what the next page is asked for with. */
export async function atLeast(least, path, query, signal, by = 'cursor') {
  const items = [];
  let next;
  do {
    const { data } = await get(path, { limit: 500, ...query, [by]: next }, signal);
    items.push(...data.items);
    next = data.nextCursor;
  } while (next && items.length < least);
  return { items, more: !!next };
}

/** living are the states of a machine that are no end. */
export const living = (m) => m.states.filter((s) => !s.terminal).map((s) => s.name);

/** isName reports whether a text can be a namespace, or the name of an entity. */
export const isName = (text) => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(text);

/** bytes is a text as its bytes in UTF-8, each of which is a character: the value of a header can be nothing else. */
const bytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));

/** send sends a request of any method; a body is sent as JSON, and json is one that is JSON already: a number in it may be one that JavaScript cannot hold. */
export async function send(method, path, { body, json = body === undefined ? undefined : JSON.stringify(body), headers = {}, query, signal } = {}) {
  const init = { method, headers: new Headers({ Accept: 'application/json', ...(json !== undefined && { 'Content-Type': 'application/json' }) }), body: json, credentials: 'same-origin', signal };
  for (const [name, value] of Object.entries(headers)) init.headers.set(name, bytes(value)); // what no header can have throws here: the server does answer
  let res;
  let text;
  try {
    res = await fetch(withQuery(path, query), init);
    text = await res.text(); // which breaks off where the server is killed meanwhile
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Problem(0, { code: 'unreachable', title: 'The server does not answer', detail: 'The server cannot be reached. It is asked again.' });
  }
  let data = text;
  if ((res.headers.get('Content-Type') || '').includes('json')) {
    try { data = JSON.parse(text); } catch { data = undefined; }
  }
  if (res.ok) return { data, text, etag: res.headers.get('ETag'), status: res.status, headers: res.headers };
  if (res.status === 401 && path !== '/v1/session') session.set((s) => ({ ...s, signedIn: false, role: undefined }));
  throw new Problem(res.status, { ...(typeof data === 'object' && data ? data : { detail: String(text).slice(0, 400) }), replayed: res.headers.get('Idempotent-Replayed') === 'true' });
}

const newKey = () => 'ui-' + crypto.getRandomValues(new Uint32Array(4)).reduce((t, n) => t + n.toString(36), '');

/**
 * Key is an Idempotency-Key: what is sent twice under its value is done once. after says what became of it, as there is another value for the next attempt once an answer is kept under this one,
 * that is a decision or a dead letter. An answer that was lost may be one, and so is that of a batch, which goes on under its key; a refusal that was made before anybody looked for the key, as of who
 * may no more, of a limit, or of a proxy, does not say whether there is one. One of the engine says the state, or what may be asked where there is none, or that it was kept; codes are those that only who has looked for it gives.
 */
export class Key {
  value = newKey();

  after({ status, code, currentState, allowedCommands, replayed }) {
    const refused = status >= 400 && status < 500 && status !== 429 && code !== 'idempotency-in-progress';
    const kept = ['dead', 'idempotency-key-reused', 'outcome-unknown'].includes(code) || (refused && (replayed || (currentState ?? allowedCommands) !== undefined));
    if (kept || (refused && !this.lost)) Object.assign(this, { value: newKey(), lost: false });
    else if (!refused) this.lost = true;
  }
}

let cached; // of all machines
const known = new Map(); // each as it was last, with its JSON: one that has not changed stays the same, and so does what was drawn of it
const schemas = new Map();
const forgotten = store(0); // how often

/** forget drops what was cached, as when somebody else signs in, or there is another machine. */
export function forget() {
  cached = undefined;
  schemas.clear();
  forgotten.set((n) => n + 1);
}

let begun = false;
connection.follow((is) => { // where a server has a new machine, or is a new one, the stream begins anew
  if (is !== 'live') return;
  if (begun) forget();
  begun = true;
});

/** ofMachines has a resource loaded anew when machines are forgotten, or after a pause: what was made from their tables would be of those before. It keeps what it has until then, and what is entered. */
export function ofMachines(resource) {
  const seen = useRef(forgotten.get());
  useEffect(() => {
    const look = () => {
      if (paused.get() || seen.current === forgotten.get()) return;
      seen.current = forgotten.get();
      resource.reload();
    };
    const ends = [forgotten.follow(look), paused.follow(look)];
    return () => ends.forEach((end) => end());
  }, []);
  return resource;
}

/** machines are the tables of all machines. */
export function machines() {
  cached ??= get('/v1/machines').then(({ data }) => data.items.map((m) => {
    const text = JSON.stringify(m);
    if (known.get(m.name)?.text !== text) known.set(m.name, { text, m });
    return known.get(m.name).m;
  }), (e) => { cached = undefined; throw e; });
  return cached;
}

/** machine is one of them; it throws a Problem 404 for one that is not there. */
export async function machine(name) {
  const m = (await machines()).find((m) => m.name === name || m.plural === name);
  if (!m) throw new Problem(404, { code: 'not-found', detail: `This server has no machine "${name}".` });
  return m;
}

/** commandSchema is how a command of a machine is sent: {command, path, role, schema, schemas}; schema is absent for one without a body. */
export function commandSchema(m, command) {
  const name = m + '/' + command;
  if (!schemas.has(name)) {
    schemas.set(name, get(`/v1/machines/${enc(m)}/commands/${enc(command)}`).then(({ data }) => data, (e) => { schemas.delete(name); throw e; }));
  }
  return schemas.get(name);
}

const enc = encodeURIComponent;

/** collection is the path of the list of all entities of a machine, whatever their parents. */
export const collection = (m) => '/v1/' + m.plural;

/** entityPath is the path of an entity in the API, without its namespace, which goes into the query. parents are the plurals of parents by their names. */
export async function entityPath(m, e) {
  if (!m.parent) return `/v1/${m.plural}/${enc(e.id)}`;
  const parent = (await machines()).find((p) => p.name === m.parent);
  return `/v1/${parent ? parent.plural : m.parent + 's'}/${enc(e.parent)}/${m.plural}/${enc(e.id)}`;
}

/** pageOf is a page below /ui/ of something that has a namespace: its names are parts of the address. */
export const pageOf = (names, { namespace }, query) => withQuery('/ui/' + names.filter(Boolean).map(enc).join('/'), { ...(namespace !== 'default' && { namespace }), ...query });

/** entityURL is the page of an entity. */
export const entityURL = (m, e, query) => pageOf(['entities', m.name || m, e.parent, e.id], e, query);

/** machineURL is the page of a machine. */
export const machineURL = (m, query) => withQuery('/ui/machines/' + enc(m.name || m), query);

/** keyOf is the name of an entity within its machine, as watches and batches have it. */
export const keyOf = (e) => [e.namespace, e.parent, e.id].filter(Boolean).join('.');

/** ofKey is what a key names. */
export function ofKey(key) {
  const parts = key.split('.');
  return { namespace: parts[0], parent: parts.length > 2 ? parts[1] : undefined, id: parts[parts.length - 1] };
}
