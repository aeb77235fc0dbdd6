// What the pages of the systems are shown with: instances, tasks and dead letters of a real server, and answers for what needs databases, as outboxes with rows that failed and tenants on their way.
import { connect } from 'node:net';
import { until } from './server.mjs';

/** hostiles are texts that try to be more than text. */
export const hostiles = ['<img src=x onerror=window.hacked=1>', '"><script>window.hacked=1</script>', "javascript:window.hacked=1//'", '{{constructor.constructor("window.hacked=1")()}}', '<svg/onload=window.hacked=1>', '\u202Egnp.exe', '${window.hacked=1}'];

/** publish sends one message over NATS, as any client may. */
export function publish(server, subject, body, id) {
  const [host, port] = server.flags[6].split(':');
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), host);
    let text = '';
    socket.on('error', reject);
    socket.on('data', (d) => {
      text += d;
      if (/^PONG/m.test(text)) { socket.end(); resolve(); }
      if (/^-ERR/m.test(text)) { socket.end(); reject(new Error(text)); }
    });
    const head = `NATS/1.0\r\nNats-Msg-Id: ${id}\r\n\r\n`;
    socket.write(`CONNECT {"verbose":false,"headers":true}\r\nHPUB ${subject} ${head.length} ${head.length + Buffer.byteLength(body)}\r\n${head}${body}\r\nPING\r\n`);
  });
}

/** furnish gives a server something of each system. */
export async function furnish(server, hostile = '') {
  for (const [i, zone] of ['north', 'north', 'south', 'south'].entries()) {
    await server.ask('/v1/register', { serviceName: 'pay', instanceId: `pay-${i}`, nodeAddress: `10.0.0.${i + 1}:8080`, zone, version: i < 2 ? '1.4' : '1.5', payload: { team: 'core', note: hostile || 'plain' } });
  }
  await server.ask('/v1/register', { serviceName: 'pay', instanceId: 'pay-down', nodeAddress: '127.0.0.1:1', zone: 'south', check: { type: 'tcp', interval: '200ms' }, policy: { fall: 1 } });
  await server.ask('/v1/register', { serviceName: 'mail', instanceId: 'mail-0', nodeAddress: '10.0.1.1:25' });
  await server.ask('/v1/deregister/pay-3', {});
  await server.ask('/v1/repositories/nightly/create', { concurrency: 2 });
  await server.ask('/v1/queues/pool-gpu/configure', { limit: 2, rate: 60, interval: '1m' });
  await server.ask('/v1/queues/type-llm/pause', { reason: hostile || 'quota' });
  await server.ask('/v1/repositories/nightly/tasks/report/create', { type: 'http', params: { url: server.url + '/readyz' }, title: hostile || 'The report', run: true });
  for (const [i, priority] of [5, 1, 9].entries()) await server.ask(`/v1/repositories/nightly/tasks/train-${i}/create`, { type: 'llm', pool: 'gpu', priority, run: true });
  for (const [i, text] of (hostile ? hostiles : ['plain']).entries()) {
    await publish(server, 'instar.log.task.default.nightly.report', 'logged: ' + text, 'log/report/' + i);
    await publish(server, `instar.cmd.nothing.default.letter-${i}.go`, 'posted: ' + text, 'nothing/letter/' + i);
  }
  for (let i = 0; i < 4; i++) await publish(server, `instar.cmd.service.default.lost-${i}.refresh`, JSON.stringify({ note: hostile, i }), 'another/entity/' + i);
  await publish(server, 'instar.cmd.nothing.default.web.go', 'no JSON, and <b>no</b> machine', 'nothing/default.web/1');
  await until('dead letters are there', async () => (await server.ask('/v1/dead-letters')).body.items.length >= 6);
  await until('an instance fails', async () => (await server.ask('/v1/services/pay/instances/pay-down')).body.state === 'active.unhealthy');
}

const ago = (seconds) => new Date(Date.now() - seconds * 1000).toISOString();

/** answers has a page get these instead of what the server says, by path. A function is given the address, and reads what the server says. */
export async function answers(page, by) {
  for (const [path, value] of Object.entries(by)) {
    await page.route((url) => url.pathname === path, async (route) => {
      const body = typeof value === 'function' ? await value(new URL(route.request().url()), async () => (await route.fetch()).json()) : value;
      await route.fulfill({ json: body });
    });
  }
}

/** strange is where a made-up answer has another form than the server's OpenAPI says, as a member of a name that is not known, or one that is missing. schema is one of doc, or {$ref}. */
export function strange(doc, schema, value, at = '') {
  const s = schema.$ref ? doc.components.schemas[schema.$ref.split('/').pop()] : schema;
  const is = value === null ? 'null' : Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : typeof value;
  const may = [s.type || is].flat();
  if (!may.includes(is) && !(is === 'integer' && may.includes('number'))) return [`${at} is ${is}, not ${may}`];
  if (s.enum && !s.enum.includes(value)) return [`${at} is ${value}`];
  if (is === 'array') return value.flatMap((v, i) => strange(doc, s.items, v, `${at}[${i}]`));
  if (is !== 'object' || !(s.properties || s.additionalProperties)) return [];
  const missing = (s.required || []).filter((k) => !(k in value)).map((k) => `${at}.${k} is missing`);
  return [...missing, ...Object.entries(value).flatMap(([k, v]) => {
    const of = s.properties?.[k] ?? s.additionalProperties;
    return of === true ? [] : of ? strange(doc, of, v, `${at}.${k}`) : [`${at}.${k} is not known`];
  })];
}

/** answerOf is the schema of what the server answers to a GET. */
export const answerOf = (doc, path) => doc.paths[path].get.responses[200].content['application/json'].schema;

/** outbox is a source with rows that failed. */
export const outbox = (hostile) => ({
  '/v1/outbox': { items: [{ name: 'orders', state: 'lagging', status: {
    mode: 'log', rows: { NEW: 1240, SENT: 812345, FAILED: 2, DEAD: 1 }, oldestSeconds: 431, lag: 1240, fenceWaitSeconds: 12, rate: 318.4, at: ago(2), shards: Array.from({ length: 8 }, (_, i) => ({ number: i, owner: i === 6 ? '' : 'node-' + (i % 2), position: `0/3F${i}A${i}00` })),
    parked: [{ aggregateType: 'order', aggregateId: '4711', eventId: '0a0b0c0d-0000-4000-8000-00000000000a', state: 'FAILED', attempts: 7, nextTry: ago(-40), error: 'the payload is larger than 1,040,384 bytes', waiting: 12 },
      { aggregateType: 'order', aggregateId: '4712', eventId: '0a0b0c0d-0000-4000-8000-00000000000b', state: 'DEAD', attempts: 20, error: hostile, waiting: 0 }],
  } }, { name: 'billing', problem: 'the database does not answer' }] },
});

const steps = { requested: 'Every table is checked, and the rows are counted.', allocating_db: 'The database and its role are being created.', running_migrations: 'Migrations are being applied.', migrating_data: 'The rows are being copied.', verifying: 'Every table is being compared.', switching: 'The routing is being switched.' };
const command = (name, more) => ({ name, doc: '', report: false, from: ['failed'], ...more });
const machine = {
  name: 'database_provisioning', plural: 'database_provisionings', parent: 'tenant', doc: "A tenant's move into a database of its own.", effects: [], edges: [], events: [{ name: 'provisioning.db.requested', class: 'state', doc: '' }],
  states: [...Object.entries(steps).map(([name, doc]) => ({ name, doc, transitional: true })), { name: 'ready', doc: 'The tenant is in its own database.' }, { name: 'failed', failed: true, doc: 'It went no further.' }, { name: 'rolled_back', terminal: true, doc: 'Everything is taken back.' }],
  commands: [command('request', { birth: true, from: [''] }), command('retry'), command('rollback', { destructive: true }), command('pause', { from: ['migrating_data'] })],
};
const ledger = [['database', 'tenant_acme'], ['replication', 'tenant_acme'], ['fence', 'tenant_acme']];
const session = (parent, state, data, more) => ({
  id: 'move', parent, namespace: 'default', machine: machine.name, state, version: 9, generation: 1, revision: 9, since: ago(21), createdAt: ago(90), updatedAt: ago(2), allowedCommands: machine.commands.filter((c) => c.from.includes(state)).map((c) => c.name),
  data: { request: { enterpriseId: parent, mode: 'online' }, plan: { steps: Object.keys(steps).slice(1), rows: { orders: 51200, lines: 210400 }, total: 261600, estimatedSeconds: 60 }, attempt: 1, ledger: ledger.map(([kind, name], i) => ({ kind, name, state: 'created', at: ago(60 - i) })), ...data }, ...more,
});
const error = { code: 'VERIFICATION_FAILED', message: 'orders differs in 3 rows' };

/** tenants are four sessions: one that copies, one that failed, one that goes back, and one that is ready and tells how long it takes. */
export function tenants(hostile) {
  const all = [
    session('acme', 'migrating_data', { phase: 'executing', progress: { table: 'lines', migratedRows: 104200, totalRows: 261600, bytes: 21000000, rate: 4300, etaSeconds: 37 } }),
    session('bold', 'failed', { phase: 'held', failedFrom: 'verifying', failedAttempt: 3 }, { lastError: { ...error, message: hostile } }),
    session('cozy', 'failed', { phase: 'rollback_stuck', failedFrom: 'verifying', ledger: ledger.map(([kind, name], i) => ({ kind, name, state: i > 0 ? 'undone' : 'created', at: ago(9 - i) })), undone: [{ action: 'settle_writes', done: true, leftBehind: ['table trail', hostile] }, { action: 'lift_fence', done: true }, { action: 'remove_replication', done: true }, { action: 'delete_database', done: false, error: hostile }] }, { lastError: error }),
    session('done', 'ready', { database: { name: 'tenant_done', host: 'own-db' }, epoch: 4, completedAt: ago(300) }),
  ];
  const events = (e) => {
    const states = ['', ...Object.keys(steps), 'ready'].slice(0, e.state === 'ready' ? 8 : e.state === 'migrating_data' ? 5 : 6);
    const list = states.slice(1).map((to, i) => ({ type: i ? 'provisioning.state.transitioned' : 'provisioning.db.requested', from: states[i], to, data: { from: states[i], to }, time: ago(90 - i * 12), seq: i + 1, previous: i, id: `e-${i}`, version: i + 1 }));
    return { items: e.state === 'failed' ? [...list, { type: 'provisioning.state.transitioned', from: 'verifying', to: 'failed', data: { from: 'verifying', to: 'failed' }, time: ago(20), seq: 99, previous: 9, id: 'e-failed', version: 10 }] : list, nextCursor: '' };
  };
  const by = {
    '/v1/machines': async (_, said) => ({ items: [...(await said()).items.filter((m) => m.name !== machine.name), machine] }),
    '/v1/machines/database_provisioning/counts': { machine: machine.name, states: { ready: 1, failed: 2, migrating_data: 1 }, revision: 0 },
    '/v1/database_provisionings': (url) => ({ items: all.filter((e) => !url.searchParams.get('state') || e.state === url.searchParams.get('state')).map((e) => { const { machine: _, allowedCommands, data, lastError, ...row } = e; return { ...row, entity: e }; }), nextCursor: '', revision: 0 }),
  };
  for (const e of all) {
    by[`/v1/tenants/${e.parent}/database_provisionings/move`] = e;
    by[`/v1/tenants/${e.parent}/database_provisionings/move/events`] = events(e);
  }
  return by;
}
