// What all tabs share, without a browser: how often changes are told, and where the stream of them goes on; which lines of logs are told while others begin to follow, and what is asked of the server.
import assert from 'node:assert/strict';
import { beforeEach, mock, test } from 'node:test';
import { Logs, Stream } from '../../api/console/web/app/stream.js';

class Source {
  static CLOSED = 2;
  static all = [];
  constructor(url) {
    this.url = url;
    this.tasks = new URLSearchParams(url.split('?')[1]).getAll('task');
    this.on = {};
    this.readyState = 1;
    Source.all.push(this);
  }
  addEventListener(name, f) { this.on[name] = f; }
  close() { this.readyState = Source.CLOSED; }
  say(task, ...seqs) { for (const seq of seqs) this.on.log({ lastEventId: String(seq), data: JSON.stringify({ task, line: 'line ' + seq }) }); }
}

let told;
let logs;
const last = () => Source.all.at(-1);
const lines = () => told.filter((m) => m.lines).flatMap((m) => m.lines.map((l) => `${m.key} ${l.seq}`));

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ['setTimeout'] });
  globalThis.EventSource = Source;
  Source.all = [];
  told = [];
  logs = new Logs((m) => told.push(m));
});

const says = (name, data, lastEventId = '') => last().on[name]({ lastEventId, data: JSON.stringify(data) });
const settled = () => new Promise((resolve) => { setImmediate(resolve); });

const counts = [{ machine: 'service', revision: 7 }, { machine: 'task', revision: 0 }];
const answering = async (url) => ({ ok: true, status: 200, json: async () => (url === '/v1/counts' ? { items: counts } : { role: 'read' }) });

/** streams begins a stream of changes, and waits until it is open. */
async function streams() {
  globalThis.fetch = answering;
  const stream = new Stream((m) => told.push(m), () => logs.lost(), counts);
  await settled();
  last().onopen();
  return stream;
}

test('changes are told four times a second, and of each entity the newest', async () => {
  const stream = await streams();
  assert.equal(last().url, '/v1/watch?namespace=*&after=service%3A7', 'from now on, without what there is');
  assert.deepEqual(told.map((m) => m.state), ['connecting', 'live']);
  told = [];
  for (let ms = 0; ms < 1000; ms += 20) { // fifty changes in a second
    says('entity', { machine: 'service', namespace: 'default', id: 'a', version: ms });
    if (ms === 500) says('deleted', { machine: 'task', key: 'default.shop.b' });
    mock.timers.tick(20);
  }
  mock.timers.tick(250);
  assert.ok(told.length <= 5 && told.every((m) => m.type === 'changes'), `${told.length} in 1.25 s`);
  assert.deepEqual(told.at(-1).items.map((c) => [c.machine, c.key, c.item.version]), [['service', 'default.a', 980]]);
  assert.deepEqual(told.flatMap((m) => m.items).filter((c) => c.machine === 'task'), [{ machine: 'task', key: 'default.shop.b', item: undefined }]);
  stream.close();
});

test('what was loaded before anybody knew where the stream begins is loaded again, once that is known', async () => {
  let asked = 0;
  globalThis.fetch = async (url) => { asked++; return answering(url); };
  for (const [given, says] of [[counts, ['connecting', 'live']], [undefined, ['connecting', 'reset', 'live']]]) {
    told = [];
    asked = 0;
    const stream = new Stream((m) => told.push(m), () => {}, given);
    assert.deepEqual(told.map((m) => m.state || m.type), ['connecting']);
    await settled();
    last().onopen();
    assert.deepEqual([told.map((m) => m.state || m.type), asked, last().url], [says, given ? 0 : 1, '/v1/watch?namespace=*&after=service%3A7']);
    stream.close();
  }
});

/** tab is one that has the worker. */
function tab(data) {
  const port = { told: [], postMessage: (m) => port.told.push(m.state || m.type) };
  self.onconnect({ ports: [port] });
  port.says = (data) => port.onmessage({ data });
  port.says(data);
  return port;
}

test('a tab that was told nothing of what changed while it loaded loads again', async () => {
  globalThis.self = globalThis;
  globalThis.fetch = answering;
  await import('../../api/console/web/app/worker.js');
  const first = tab({ hello: { since: Date.now(), counts } });
  await settled();
  last().onopen();
  assert.deepEqual(first.told, ['connecting', 'live']);
  const before = Date.now();
  says('entity', { machine: 'service', namespace: 'default', id: 'a', version: 1 });
  const early = tab({ hello: { since: before, counts } });
  assert.deepEqual(early.told, ['live'], 'it is still to be told');
  mock.timers.tick(250);
  assert.deepEqual([first.told.at(-1), early.told.at(-1)], ['changes', 'changes']);
  assert.deepEqual(tab({ hello: { since: before, counts } }).told, ['live', 'reset']);
  assert.deepEqual(tab({ hello: { since: Date.now() + 1, counts } }).told, ['live'], 'nothing has changed since');
  assert.deepEqual(tab({ hello: { since: 0 } }).told, ['live', 'reset']);
  first.told = [];
  first.says('again');
  assert.deepEqual(first.told, ['connecting'], 'nothing is loaded before it is known where the stream begins');
  await settled();
  last().onopen();
  assert.deepEqual(first.told, ['connecting', 'reset', 'live']);
});

test('a stream that breaks goes on behind the last id, and begins anew where what it had is gone', async () => {
  const stream = await streams();
  says('entity', { machine: 'service', namespace: 'default', id: 'a', version: 1 }, 'service:61,task:3');
  last().onerror();
  assert.equal(told.at(-1).state, 'reconnecting');
  mock.timers.tick(500);
  await settled();
  assert.equal(last().url, '/v1/watch?namespace=*&after=service%3A61%2Ctask%3A3');
  last().onopen();
  assert.ok(told.every((m) => m.type !== 'reset'), 'nothing was missed');
  says('reset', {});
  mock.timers.tick(500);
  await settled();
  assert.equal(told.filter((m) => m.type === 'reset').length, 1, 'pages load again what they show');
  assert.equal(last().url, '/v1/watch?namespace=*&after=service%3A7');
  stream.close();
});

test('a stream that the server does not take back where it was begins anew', async () => {
  const stream = await streams();
  says('entity', { machine: 'service', namespace: 'default', id: 'a', version: 1 }, 'service:61');
  const { fetch } = globalThis;
  for (const status of [422, 400, 414, 431]) { // also of a proxy, for which its address is too long
    globalThis.fetch = async (url, init) => (url === '/v1/watch?namespace=*&after=service%3A61' ? { ok: false, status } : fetch(url, init));
    told = [];
    last().onerror();
    mock.timers.tick(500);
    await settled();
    assert.equal(last().url, '/v1/watch?namespace=*&after=service%3A7', status);
    assert.equal(told.filter((m) => m.type === 'reset').length, 1, 'what was there is loaded again');
    last().onopen();
    assert.equal(stream.state, 'live');
    says('entity', { machine: 'service', namespace: 'default', id: 'a', version: 1 }, 'service:61');
  }
  globalThis.fetch = async () => ({ ok: false, status: 401 });
  last().onerror();
  mock.timers.tick(500);
  await settled();
  assert.equal(stream.state, 'signedout');
  stream.close();
});

test('a server that hears nothing of the others is stale, and one that says nothing is away', async () => {
  const stream = await streams();
  says('stale', { staleSeconds: 7.5 });
  assert.equal(told.at(-1).state, 'stale');
  says('stale', { staleSeconds: 0 });
  assert.equal(told.at(-1).state, 'live');
  says('entity', { machine: 'service', namespace: 'default', id: 'a', version: 1 }, 'service:61');
  for (let s = 0; s < 60; s += 10) { // it is quiet, but there
    mock.timers.tick(10000);
    says('stale', { staleSeconds: 0 });
  }
  assert.equal(Source.all.length, 1);
  const first = last();
  mock.timers.tick(24000);
  assert.equal(stream.state, 'live');
  mock.timers.tick(1000);
  assert.deepEqual([stream.state, first.readyState], ['reconnecting', Source.CLOSED]);
  mock.timers.tick(500);
  await settled();
  assert.equal(last().url, '/v1/watch?namespace=*&after=service%3A61', 'where it was');
  logs.follow('a');
  mock.timers.tick(20);
  const log = last();
  assert.deepEqual(log.tasks, ['a']);
  mock.timers.tick(24980); // it never opens
  assert.ok(Source.all.every((s) => s.readyState === Source.CLOSED), 'nor is what else comes from there alive');
  mock.timers.tick(2000);
  assert.deepEqual([last() !== log, last().tasks], [true, ['a']]);
  stream.close();
  logs.leave('a');
});

test('a server that does not say that it is there is not taken for one that is away', async () => {
  const stream = await streams();
  mock.timers.tick(600000); // a quiet one, of an older version, which sends comments
  assert.deepEqual([stream.state, Source.all.length], ['live', 1]);
  says('stale', { staleSeconds: 0 });
  last().onerror();
  mock.timers.tick(500);
  await settled();
  assert.equal(Source.all.length, 2);
  mock.timers.tick(25000); // it never opens
  assert.equal(last().readyState, Source.CLOSED);
  mock.timers.tick(2000);
  await settled();
  last().onopen(); // the older one
  mock.timers.tick(600000);
  assert.deepEqual([stream.state, Source.all.length], ['live', 3]);
  stream.close();
});

test('a stream that is closed says nothing more, and does not open', async () => {
  const stream = await streams();
  says('entity', { machine: 'service', namespace: 'default', id: 'a', version: 1 });
  told = [];
  stream.close();
  mock.timers.tick(250);
  assert.deepEqual(told, [], 'what has come is for who looked until now');
  for (const answer of [async () => ({ ok: true, status: 200, json: async () => ({ items: [] }) }), async () => ({ status: 401 }), async () => { throw new TypeError('no answer'); }]) {
    Source.all = [];
    told = [];
    let go;
    globalThis.fetch = () => new Promise((resolve) => { go = () => resolve(answer()); });
    const early = new Stream((m) => told.push(m));
    early.close();
    go();
    await settled();
    mock.timers.tick(10000);
    await settled();
    assert.deepEqual([Source.all, told.map((m) => m.state)], [[], ['connecting']]);
  }
});

test('a stream that is asked for twice while it opens is opened once', async () => {
  const stream = await streams();
  const first = last();
  first.onerror();
  const asked = [];
  globalThis.fetch = () => new Promise((resolve) => { asked.push(() => resolve({ ok: true, status: 200, json: async () => ({ role: 'read' }) })); });
  stream.later(0); // somebody presses the mark, and again while it is asked
  mock.timers.tick(0);
  stream.later(0);
  mock.timers.tick(0);
  const before = Source.all.length;
  for (const answer of asked.reverse()) answer();
  await settled();
  assert.deepEqual([asked.length, Source.all.length - before], [2, 1]);
  const second = last();
  stream.later(0); // before it is open
  mock.timers.tick(0);
  asked.at(-1)();
  await settled();
  assert.notEqual(last(), second);
  assert.deepEqual(Source.all.map((s) => s.readyState === Source.CLOSED), [true, true, false]);
  second.onerror(); // too late
  assert.equal(last().readyState, 1);
  stream.close();
  told = [];
  says('entity', { machine: 'service', namespace: 'default', id: 'a', version: 1 });
  mock.timers.tick(250);
  assert.deepEqual(told, []);
});

test('a server that cannot say who looks is away, and nobody has signed out', async () => {
  const stream = await streams();
  says('entity', { machine: 'service', namespace: 'default', id: 'a', version: 1 }, 'service:61');
  globalThis.fetch = async () => ({ ok: false, status: 503, json: async () => ({ status: 503 }) });
  last().onerror();
  mock.timers.tick(500);
  await settled();
  assert.equal(told.filter((m) => m.state).at(-1).state, 'reconnecting');
  stream.close();
});

test('whoever begins to follow is told a log from its beginning', () => {
  logs.follow('a');
  logs.follow('b');
  mock.timers.tick(20);
  last().say('a', 1, 3, 5);
  last().say('b', 2);
  mock.timers.tick(100);
  last().say('a', 6);
  last().say('b', 7); // both wait to be told
  const before = last();
  logs.follow('a');
  assert.equal(before.readyState, Source.CLOSED, 'no line may come from where it was');
  before.say('a', 8);
  mock.timers.tick(20);
  assert.deepEqual(last().tasks, ['b:7', 'a']);
  told = [];
  last().say('a', 1, 3);
  mock.timers.tick(30);
  logs.follow('a'); // another one
  mock.timers.tick(20);
  last().say('a', 1, 3, 5, 6, 8);
  mock.timers.tick(100);
  assert.deepEqual(lines(), ['b 7', 'a 1', 'a 3', 'a 5', 'a 6', 'a 8'], 'each once, from the first');
});

test('a log that is refused is followed no more, and the others are', async () => {
  globalThis.fetch = async (url) => ({ status: url.endsWith('task=no') ? 404 : 200 });
  for (const key of ['a', 'no']) logs.follow(key);
  mock.timers.tick(20);
  last().readyState = Source.CLOSED;
  await last().onerror();
  mock.timers.tick(2000);
  assert.deepEqual(told.filter((m) => m.type === 'log'), [{ type: 'log', key: 'no', state: 'refused' }]);
  assert.deepEqual(last().tasks, ['a']);
});

test('an answer that is not about a log has none of them refused', async () => {
  globalThis.fetch = async () => ({ status: 503 });
  for (const key of ['a', 'b']) logs.follow(key);
  mock.timers.tick(20);
  last().readyState = Source.CLOSED;
  await last().onerror();
  mock.timers.tick(2000);
  assert.deepEqual(told, [{ type: 'logs', state: 'reconnecting' }]);
  assert.deepEqual(last().tasks, ['a', 'b']);
});

test('of more logs than a connection may have, the newest are followed', () => {
  for (let i = 0; i < 65; i++) logs.follow('t' + i);
  mock.timers.tick(20);
  assert.equal(last().tasks.length, 64);
  last().onopen();
  assert.deepEqual(told, [{ type: 'logs', state: 'live' }, { type: 'log', key: 't0', state: 'crowded' }]);
  logs.leave('t7');
  mock.timers.tick(20);
  assert.deepEqual(last().tasks.slice(0, 2), ['t0', 't1']);
});
