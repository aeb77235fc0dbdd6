// What the console makes of answers, without a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { get, Key, Problem, send } from '../../api/console/web/app/api.js';
import { passes } from '../../api/console/web/app/store.js';

const answer = (status, text) => ({ ok: status < 300, status, headers: new Headers(), text });
const broken = (name) => async () => { throw Object.assign(new TypeError('it broke off'), { name }); };

test('what is no answer, or of a server that is away, is asked for again', async () => {
  for (const [status, asked] of Object.entries({
    0: broken('TypeError'),
    '0 within its body': async () => answer(200, broken('TypeError')),
    502: async () => answer(502, async () => '<h1>Bad Gateway</h1>'),
  })) {
    globalThis.fetch = asked;
    await assert.rejects(get('/v1/counts'), (e) => e.status === parseInt(status, 10) && passes(e), status);
  }
});

test('an answer that nobody waits for any more is no failure of the server', async () => {
  for (const asked of [broken('AbortError'), async () => answer(200, broken('AbortError'))]) {
    globalThis.fetch = asked;
    await assert.rejects(get('/v1/counts'), (e) => e.name === 'AbortError' && !passes(e));
  }
});

test('a header has any text, as UTF-8, and what it cannot have is no failure of the server', async () => {
  const sent = [];
  globalThis.fetch = async (_, init) => { sent.push(new Headers(init.headers).get('Instar-Reason')); return answer(200, async () => ''); };
  for (const text of ['plain', 'für', 'it’s – 我 🚀']) {
    await send('POST', '/v1/batches', { headers: { 'Instar-Reason': text } });
    assert.equal(Buffer.from(sent.pop(), 'latin1').toString(), text);
  }
  await assert.rejects(send('POST', '/v1/batches', { headers: { 'Instar-Reason': 'a\0b' } }), (e) => e.status === undefined);
});

test('what is no decision leaves its key to what is sent again', () => {
  const another = (...answers) => {
    const key = new Key();
    const first = key.value;
    for (const [status, code, more] of answers) key.after(new Problem(status, { code, ...more }));
    return key.value !== first;
  };
  const lost = [0, 'unreachable'];
  const state = { currentState: 'READY' };
  for (const one of [lost, [429, 'rate-limited'], [409, 'idempotency-in-progress'], [500, 'internal'], [503, 'unavailable'], [504, 'operation-timeout']]) assert.equal(another(one), false, one.join(' '));
  for (const one of [[409, 'guard-rejected', state], [412, 'precondition-failed', state], [409, 'guard-rejected', { allowedCommands: ['create'] }], [404, 'not-found', { replayed: true }], [422, 'idempotency-key-reused'], [409, 'outcome-unknown'], [422, 'validation', state], [500, 'dead']]) {
    assert.equal(another(one), true, one.join(' '));
    assert.equal(another(lost, one), true, `${one.join(' ')}, after an answer that was lost`);
  }
  // The last four are of doors, which are before the key, and of a proxy.
  for (const one of [[403, 'forbidden'], [408, 'timeout'], [413, 'payload-too-large'], [415, 'unsupported-media-type'], [422, 'validation'], [404, 'not-found'], [409, 'quota-exceeded'], [412, 'precondition-failed'], [404, undefined]]) {
    assert.equal(another(one), true, one.join(' '));
    assert.equal(another(lost, one), false, `${one.join(' ')} says nothing of an answer that was lost`);
    const key = new Key();
    const first = key.value;
    key.after({ status: 202 });
    key.after(new Problem(one[0], { code: one[1] }));
    assert.equal(key.value, first, `${one.join(' ')} says nothing of what goes on`);
  }
  assert.equal(another(lost, [403, 'forbidden'], [409, 'guard-rejected', state]), true);
  const key = new Key();
  const first = key.value;
  key.after(new TypeError('of the program'));
  assert.equal(key.value, first);
});

test('a refusal says whether it is the answer that was kept', async () => {
  for (const replayed of [true, false]) {
    globalThis.fetch = async () => ({ ok: false, status: 404, headers: new Headers({ 'Content-Type': 'application/problem+json', ...(replayed && { 'Idempotent-Replayed': 'true' }) }), text: async () => '{"status":404,"code":"not-found"}' });
    await assert.rejects(send('POST', '/v1/services/web/refresh'), (e) => e.code === 'not-found' && e.replayed === replayed);
  }
});
