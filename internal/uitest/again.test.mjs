// What is shown must be of now, also after an answer that failed: nothing else tells a page that it is to ask again, as the stream goes on behind what it has had.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { desktop, loaded, openPage, stage, until } from './server.mjs';
import { answers } from './systems.mjs';

let server;
let browser;
stage(async (s, b) => {
  server = s;
  browser = b;
  await server.state('/v1/services/hello', 'READY');
});

/** failing has what a page asks for at these paths fail so, until all have failed and what it returns is called. */
async function failing(page, how, ...paths) {
  const failed = new Set();
  const match = (url) => paths.includes(url.pathname);
  await page.route(match, (route) => { failed.add(new URL(route.request().url()).pathname); return how(route); });
  return async () => {
    await until(`${paths} have failed`, async () => failed.size === paths.length);
    await page.unroute(match);
  };
}

const killed = (route) => route.abort('connectionrefused');
const starting = (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"status":503,"code":"unavailable","title":"Not now","detail":"the index is being read"}' });

for (const [what, how] of Object.entries({ 'a server that was killed': killed, 'a server that starts': starting })) {
  test(`what is asked of ${what} is asked again`, async () => {
    const context = await browser.newContext({ viewport: desktop });
    const id = how === killed ? 'killed' : 'starts';
    const page = await openPage(context, server, '/ui/machines/queue');
    await page.waitForSelector('.pill:has-text("Live")');
    let lift = await failing(page, how, '/v1/machines/queue/counts', '/v1/queues');
    assert.equal((await server.ask(`/v1/queues/type-${id}/configure`, { limit: 1 })).status, 200);
    await lift();
    await page.locator(`.list tbody >> text="type-${id}"`).waitFor();
    const n = (await server.ask('/v1/machines/queue/counts')).body.states.active;
    await page.locator('.list .chip', { hasText: new RegExp(`^active${n}$`) }).waitFor();
    await page.locator('main .failure').waitFor({ state: 'detached' });

    await page.goto(`${server.url}/ui/entities/queue/type-${id}`);
    await page.waitForSelector('.pill:has-text("Live")');
    await page.locator('main >> text=queue.configured').first().waitFor();
    lift = await failing(page, how, `/v1/queues/type-${id}/events`, `/v1/queues/type-${id}`);
    assert.equal((await server.ask(`/v1/queues/type-${id}/pause`, { reason: 'quota' })).status, 200);
    await lift();
    await page.locator('main >> text=queue.paused').first().waitFor();
    await page.locator('main .failure').waitFor({ state: 'detached' });

    lift = await failing(page, how, '/v1/machines/queue/counts', '/v1/queues');
    await page.goto(server.url + '/ui/machines/queue'); // nothing has been read yet
    await lift();
    await page.locator(`.list tbody >> text="type-${id}"`).waitFor();
    await page.locator('.list .chip', { hasText: /^paused\d$/ }).waitFor();
    assert.deepEqual(page.wrong.filter((w) => !/status of 503/.test(w)), []);
    await context.close();
  });
}

/** timed has the pages of a context note what they have put off: waits are ms by the timers that are still to come, and most how many of 2 s of the timeline there were at once, which is what it asks again. */
const timed = (context) => context.addInitScript(() => {
  const { setTimeout: set, clearTimeout: clear } = window;
  window.waits = new Map();
  window.most = 0;
  const own = new Set();
  window.setTimeout = (f, ms, ...more) => {
    const id = set(() => { window.waits.delete(id); own.delete(id); f(...more); }, ms);
    window.waits.set(id, ms);
    if (ms === 2000 && new Error().stack.includes('/pages/timeline.js')) own.add(id);
    window.most = Math.max(window.most, own.size);
    return id;
  };
  window.clearTimeout = (id) => { window.waits.delete(id); own.delete(id); clear(id); };
});

const label = (n) => server.ask('/v1/services/hello/label', { labels: { n: String(n) } });

test('a timeline that cannot be read is asked for again once, whatever changes meanwhile', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await timed(context);
  const page = await openPage(context, server, '/ui/entities/service/hello');
  await page.waitForSelector('.pill:has-text("Live")');
  await page.locator('main >> text=service.ready').first().waitFor();
  let failed = 0;
  const events = (url) => url.pathname === '/v1/services/hello/events' && !url.searchParams.has('type');
  await page.route(events, (route) => { failed++; return starting(route); });
  await page.route((url) => url.pathname === '/v1/services/hello', starting); // which is asked for again beside it
  let i = 0;
  await until('it has failed many times', async () => { await label('line' + i++); return failed >= 6; });
  assert.equal(await page.evaluate(() => window.most), 1);
  await page.unrouteAll();
  await page.locator('main .failure').first().waitFor({ state: 'detached' });
  assert.deepEqual(page.wrong.filter((w) => !/status of 503/.test(w)), []);
  await context.close();
});

/** list is the answer to a list of n services from one on. */
function list(n, from, limit) {
  const since = new Date(Date.now() - 3600000).toISOString();
  const to = Math.min(n, from + limit);
  return { items: Array.from({ length: Math.max(0, to - from) }, (_, i) => ({ id: `s-${from + i}`, namespace: 'default', machine: 'service', state: 'READY', version: 1, since, createdAt: since, updatedAt: since, labels: {} })), nextCursor: to < n ? String(to) : '' };
}

test('a next page that was not there yet is not asked for when there is none any more', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await timed(context);
  const asked = [];
  let n = 150;
  let anew = false; // the list was, since its next page failed
  await context.route((url) => url.pathname === '/v1/services', (route) => {
    const q = new URL(route.request().url()).searchParams;
    asked.push(q);
    const [from, limit] = ['cursor', 'limit'].map((name) => Number(q.get(name) || 0));
    if (from && !anew) { n = 90; return starting(route); }
    anew = n === 90;
    return route.fulfill({ json: list(n, from, limit) });
  });
  const page = await openPage(context, server, '/ui/machines/service');
  await page.waitForSelector('.pill:has-text("Live")');
  const frame = page.locator('[role=region][aria-label="List of services"]');
  await until('the next page has failed', async () => { await frame.evaluate((f) => { f.scrollTop = f.scrollHeight; }); return n === 90; });
  let i = 0;
  await until('the list is loaded anew', async () => { await label('next' + i++); return anew; });
  await page.locator('.list [role=status]', { hasText: /^90\b/ }).waitFor();
  await until('it would have been asked for again', () => page.evaluate(() => ![...window.waits.values()].includes(2000)));
  const before = asked.length;
  await until('the list is loaded anew once more', async () => { await label('next' + i++); return asked.length > before + 1; });
  assert.deepEqual(asked.filter((q) => q.get('limit') === '200' && !q.get('cursor')).map(String), [], 'the first page would be there twice');
  assert.deepEqual(page.wrong.filter((w) => !/status of 503/.test(w)), []);
  await context.close();
});

test('the next page comes also while what is there changes all the time', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await timed(context);
  let changing = false;
  let held = 0;
  let i = 0;
  let page;
  const put = () => page.evaluate(() => [...window.waits.values()].includes(700));
  await context.route((url) => url.pathname === '/v1/services', async (route) => {
    const [from, limit] = ['cursor', 'limit'].map((name) => Number(new URL(route.request().url()).searchParams.get(name) || 0));
    if (changing && !from) { // something changes while it is loaded, each time
      held++;
      await until('it is to be loaded anew', async () => { await label('busy' + i++); return put(); });
      await until('it would be', async () => !await put());
    }
    await route.fulfill({ json: list(300, from, limit) });
  });
  page = await openPage(context, server, '/ui/machines/service');
  await page.waitForSelector('.pill:has-text("Live")');
  await page.locator('.list [role=status]', { hasText: /^100\b/ }).waitFor();
  changing = true;
  await until('it is loaded anew', async () => { await label('busy' + i++); return held; });
  await page.locator('[role=region][aria-label="List of services"]').evaluate((f) => { f.scrollTop = f.scrollHeight; });
  await page.locator('.list [role=status]', { hasText: /^300\b/ }).waitFor();
  changing = false;
  await context.unrouteAll({ behavior: 'wait' });
  assert.deepEqual(page.wrong, []);
  await context.close();
});

for (const [where, at] of [['in what is there', 0], ['in the page that comes', 600]]) {
  test(`a list that becomes long while something changes ${where} keeps its rows, and shows it`, async () => {
    const context = await browser.newContext({ viewport: desktop });
    await timed(context);
    let begun = 0; // how often the list was asked for from its beginning
    let holds = false;
    let release;
    const held = new Promise((resolve) => { release = resolve; });
    await context.route((url) => url.pathname === '/v1/services', async (route) => {
      const [from, limit] = ['cursor', 'limit'].map((name) => Number(new URL(route.request().url()).searchParams.get(name) || 0));
      if (!from) begun++;
      const answer = list(700, from, limit);
      if (answer.items[at - from]) answer.items[at - from].id = 'hello';
      if (from === 500) { holds = true; await held; }
      await route.fulfill({ json: answer });
    });
    const page = await openPage(context, server, '/ui/machines/service');
    await page.waitForSelector('.pill:has-text("Live")');
    const frame = page.locator('[role=region][aria-label="List of services"]');
    await until('there are 500 rows, and more are asked for', async () => { await frame.evaluate((f) => { f.scrollTop = f.scrollHeight; }); return holds; });
    const put = () => page.evaluate(() => [...window.waits.values()].includes(700));
    await until('what has changed is put off', async () => { await label(`long${at}`); return put(); });
    const before = begun;
    release();
    await page.locator('.list [role=status]', { hasText: /^700\b/ }).waitFor();
    await until('it is put off no more', async () => !await put());
    await frame.evaluate((f, y) => { f.scrollTop = y; }, at * 44);
    await page.locator('.list tbody tr', { hasText: 'hello' }).locator(`text=long${at}`).waitFor();
    assert.equal(await page.locator('.list [role=status]', { hasText: /^700\b/ }).count(), 1);
    assert.equal(begun, before, 'it was not loaded anew');
    assert.deepEqual(page.wrong, []);
    await context.close();
  });
}

test('a page that is four times as long is loaded anew a fourth as often', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await timed(context);
  const since = new Date(Date.now() - 3600000).toISOString();
  let begun = 0; // how often the list was asked for from its beginning
  await answers(context, { '/v1/services': (url) => {
    const from = Number(url.searchParams.get('cursor') || 0);
    if (!from) begun++;
    return { items: Array.from({ length: 500 }, (_, i) => ({ id: `s-${from + i}`, namespace: 'default', machine: 'service', state: 'READY', version: 1, since, updatedAt: since })), nextCursor: from < 1500 ? String(from + 500) : '' };
  } });
  const page = await openPage(context, server, '/ui/services');
  await page.waitForSelector('.pill:has-text("Live")');
  const frame = page.locator('[role=region][aria-label=Services]');
  await until('all are loaded', async () => { await frame.evaluate((f) => { f.scrollTop = f.scrollHeight; }); return page.locator('.table >> text="s-1999"').count(); });
  const n = begun;
  let i = 0;
  await until('it is put off for about four seconds', async () => { await label(i++); return page.evaluate(() => [...window.waits.values()].some((ms) => ms > 3000 && ms <= 4000)); });
  const put = begun;
  assert.ok(put > n, 'it was loaded anew at once before');
  await until('then it is loaded anew', async () => begun > put);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

/** alone has the pages of a context follow what happens by themselves, each by its own stream, so that a test can say what comes over it: stale(seconds), and end(). */
const alone = (context) => context.addInitScript(() => {
  delete window.SharedWorker;
  window.EventSource = class extends window.EventSource {
    addEventListener(name, f) {
      if (name === 'stale') window.stale = (staleSeconds) => f({ data: JSON.stringify({ staleSeconds }) });
      else super.addEventListener(name, f);
      if (name === 'end') window.end = () => f({ data: '{}' });
    }
  };
});

test('what is stale says so, and is loaded anew when that ends', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await alone(context);
  let staleSeconds;
  await answers(context, { '/v1/services': async (_, said) => ({ ...await said(), staleSeconds }) });
  const page = await openPage(context, server, '/ui/machines/service');
  await page.waitForSelector('.pill:has-text("Live")');
  const warning = page.locator('main >> text=This node hears nothing of the others');
  assert.equal(await warning.count(), 0);
  staleSeconds = 9;
  await page.evaluate(() => window.stale(9));
  await page.waitForSelector('.pill:has-text("Stale")');
  await warning.waitFor();
  staleSeconds = undefined;
  await page.evaluate(() => window.stale(0));
  await page.waitForSelector('.pill:has-text("Live")');
  await warning.waitFor({ state: 'detached' });
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what changes before a page follows what happens is shown, and nothing is loaded twice for that', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await alone(context);
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  await context.route('**/app/worker.js', async (route) => { await held; await route.continue(); });
  const asked = [];
  await context.route((url) => url.pathname === '/v1/services/hello', (route) => { asked.push(route.request().url()); return route.continue(); });
  const page = await openPage(context, server, '/ui/entities/service/hello');
  await page.locator('.facts .state').first().waitFor();
  await label('early');
  assert.equal(await page.locator('.facts >> text=early').count(), 0);
  assert.equal(asked.length, 1);
  release();
  await page.waitForSelector('.facts >> text=early');
  const quiet = await openPage(context, server, '/ui/machines');
  const again = [];
  quiet.on('request', (r) => again.push(new URL(r.url()).pathname));
  await quiet.goto(server.url + '/ui/machines/queue');
  await quiet.waitForSelector('.pill:has-text("Live")');
  await loaded(quiet, 'queues');
  assert.equal(again.filter((path) => path === '/v1/queues').length, 1, again.join());
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a page that comes back from the history is of now, and knows who looks', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/entities/service/hello');
  await page.waitForSelector('.pill:has-text("Live")');
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true })));
  await label('gone');
  await until('it is seen in another tab', async () => {
    const other = await openPage(context, server, '/ui/entities/service/hello');
    await other.waitForSelector('.facts >> text=gone');
    return other.close().then(() => true);
  });
  assert.equal(await page.locator('.facts >> text=gone').count(), 0, 'the page was away');
  const asked = page.waitForRequest((r) => r.url().endsWith('/v1/session'));
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })));
  await asked;
  await page.waitForSelector('.facts >> text=gone');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a machine that is new is there when the stream begins anew', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await alone(context);
  let more = [];
  await answers(context, { '/v1/machines': async (_, said) => { const { items } = await said(); return { items: [...items, ...more.map((name) => ({ ...items[0], name, plural: name + 's' }))] }; } });
  const page = await openPage(context, server, '/ui/machines/service');
  await page.waitForSelector('.pill:has-text("Live")');
  await page.locator('.side a', { hasText: 'services' }).first().waitFor();
  more = ['newcomer'];
  await page.evaluate(() => window.end());
  await page.locator('.side a', { hasText: 'newcomers' }).click();
  await page.waitForSelector('h1:has-text("newcomers")');
  await context.close();
});

test('what is made of a machine is of its new table when the stream begins anew, and what is entered stays', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await alone(context);
  let changed = false;
  const text = 'Another text.';
  const anew = (m) => ({ ...m, doc: text, commands: m.commands.map((c) => ({ ...c, doc: text })) });
  await answers(context, { '/v1/machines': async (_, said) => { const { items } = await said(); return { items: changed ? items.map((m) => (m.name === 'service' ? anew(m) : m)) : items }; } });
  for (const [path, wanted] of [
    ['/ui/machines/service', `.sub >> text=${text}`], ['/ui/machines', `.machine-doc >> text=${text}`], ['/ui/', `.machine-doc >> text=${text}`], ['/ui/entities/service/hello', `.heading-actions button[title="${text}"]`],
  ]) {
    changed = false;
    const page = await openPage(context, server, path);
    await page.waitForSelector('.pill:has-text("Live")');
    const entered = path === '/ui/machines/service';
    if (entered) {
      await page.locator('.heading-actions button', { hasText: 'create service' }).first().click();
      await page.locator('dialog input').first().fill('kept');
    }
    changed = true;
    await page.evaluate(() => window.end());
    await page.waitForSelector(wanted, { state: 'attached' });
    if (entered) assert.equal(await page.locator('dialog input').first().inputValue(), 'kept');
    await page.close();
  }
  changed = false;
  const page = await openPage(context, server, '/ui/machines');
  await page.click('.pill:has-text("Live")');
  let asked = 0;
  page.on('request', (r) => { if (r.url().endsWith('/v1/machines')) asked++; });
  changed = true;
  const again = page.waitForRequest((r) => r.url().endsWith('/v1/session')); // which is asked when the stream has begun anew
  await page.evaluate(() => window.end());
  await again;
  assert.equal(asked, 0, 'nothing that is shown changes in a pause');
  await page.click('.pill:has-text("Paused")');
  await page.waitForSelector(`.machine-doc >> text=${text}`);
  await context.close();
});
