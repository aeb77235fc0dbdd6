// What the console makes of answers, without a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decided, get, Problem, send } from '../../api/console/web/app/api.js';
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
  for (const [status, code, is] of [[0, 'unreachable', false], [429, 'rate-limited', false], [409, 'idempotency-in-progress', false], [500, 'internal', false], [503, 'unavailable', false], [409, 'guard-rejected', true], [422, 'validation', true]]) {
    assert.equal(decided(new Problem(status, { code })), is, `${status} ${code}`);
  }
  assert.equal(decided(new TypeError('of the program')), false);
});
