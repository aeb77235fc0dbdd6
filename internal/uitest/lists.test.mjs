// What the console says must be so: of long lists, of what is paused, of batches that did not end well, of what is tried again, and of addresses that are passed on. Answers that take long to come about are made up, and have the form that the server's own have.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { desktop, loaded, openPage, phone, stage, until, violations } from './server.mjs';
import { answerOf, answers, publish, strange } from './systems.mjs';

let server;
let browser;
stage(async (s, b) => {
  server = s;
  browser = b;
  await server.state('/v1/services/hello', 'READY');
  for (let i = 0; i < 3; i++) assert.equal((await server.ask(`/v1/services/web-${i}/create`, { spec: { image: 'hello' } })).status, 200);
  await server.state('/v1/services/web-2', 'READY');
});

const frame = (page) => page.locator('[role=region][aria-label="List of services"]');

/** long has a context get a list of 700 services, whose names begin so, in pages of 500 at most. asked has what was asked. */
async function long(context, asked, name = () => 'old', more = {}) {
  const since = new Date(Date.now() - 3600000).toISOString();
  await answers(context, { '/v1/services': (url) => {
    asked.push(url.searchParams);
    const [from, limit] = ['cursor', 'limit'].map((n) => Number(url.searchParams.get(n) || 0));
    const to = Math.min(700, from + limit);
    return { items: Array.from({ length: to - from }, (_, i) => ({ id: `${name()}-${from + i}`, namespace: 'default', machine: 'service', state: 'READY', version: 1, since, createdAt: since, updatedAt: since, labels: {}, ...more })), nextCursor: to < 700 ? String(to) : '' };
  } });
}

test('a long list is loaded anew when changes were missed', async () => {
  const context = await browser.newContext({ viewport: desktop });
  let name = 'old';
  await long(context, [], () => name);
  const page = await openPage(context, server, '/ui/machines/service');
  await page.waitForSelector('.pill:has-text("Live")');
  await until('more than 500 are loaded', async () => {
    await frame(page).evaluate((f) => { f.scrollTop = f.scrollHeight; });
    return page.locator('.list >> text=Load it anew').count();
  });
  await page.getByLabel('Select all that are loaded').check();
  await page.waitForSelector('.bulk >> text=500 that are selected at most');
  assert.equal(await page.locator('.bulk select').count(), 0, 'the server would refuse them');
  name = 'new';
  await page.click('.pill:has-text("Live")');
  await page.click('.pill:has-text("Paused")');
  await frame(page).evaluate((f) => { f.scrollTop = 0; });
  await page.waitForSelector('.table >> text="new-0"');
  assert.equal(await page.locator('.table >> text=/^old-/').count(), 0);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a row that comes again with a later page is there once', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const since = new Date(Date.now() - 3600000).toISOString();
  await answers(context, { '/v1/services': (url) => { // the first row has changed before the second page is asked for, and is the last one now
    const from = Number(url.searchParams.get('cursor') || 0);
    const row = (i) => ({ id: `s-${i}`, namespace: 'default', machine: 'service', state: 'READY', version: 1, since, createdAt: since, updatedAt: since, labels: {} });
    return { items: [...Array.from({ length: 100 }, (_, i) => row(from + i)), ...(from ? [row(0)] : [])], nextCursor: from ? '' : '100' };
  } });
  const page = await openPage(context, server, '/ui/machines/service?order=since');
  await until('both pages are loaded', async () => {
    await frame(page).evaluate((f) => { f.scrollTop = f.scrollHeight; });
    return page.locator('.table >> text="s-199"').count();
  });
  await page.locator('.list [role=status]', { hasText: /^200\b/ }).waitFor();
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what can be read again leaves a long list of what cannot', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await long(context, [], () => 'web', { problem: 'the stored value cannot be read' });
  const page = await openPage(context, server, '/ui/machines/service?preset=parked');
  await page.waitForSelector('.pill:has-text("Live")');
  await until('more than 500 are loaded', async () => {
    await frame(page).evaluate((f) => { f.scrollTop = f.scrollHeight; });
    return page.locator('.list >> text=Load it anew').count();
  });
  await frame(page).evaluate((f) => { f.scrollTop = 0; });
  await page.locator('.table >> text="web-1"').waitFor();
  assert.equal((await server.ask('/v1/services/web-1/label', { labels: { seen: 'again' } })).status, 200);
  await page.locator('.table >> text="web-1"').waitFor({ state: 'detached' });
  await page.locator('.table >> text="web-3"').waitFor();
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what is paused asks for nothing', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await context.clock.install();
  const page = await openPage(context, server, '/ui/nodes');
  await loaded(page, '/ui/nodes');
  await page.click('.pill:has-text("Live")');
  let asked = 0;
  page.on('request', (r) => { if (r.url().endsWith('/v1/nodes')) asked++; });
  await page.clock.runFor(20000);
  assert.equal(asked, 0);
  await page.click('.pill:has-text("Paused")');
  await until('it asks again', async () => asked > 0);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a batch that is sent while the page is paused is followed to its end', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/machines/service');
  await page.click('.pill:has-text("Live")');
  await page.route('**/v1/batches', (route) => route.fulfill({ status: 202, json: batch('running', { done: false }) }));
  let asked = 0;
  await answers(page, { '/v1/operations/batch.default.k': () => (++asked < 4 ? batch('running', { done: false }) : batch('done', { response: batch('done').metadata.progress })) });
  await page.selectOption('.bulk select', 'refresh');
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('dialog [role=status]:has-text("Done.")');
  await page.click('dialog button:has-text("Close") >> nth=-1');
  await page.waitForSelector('.pill:has-text("Paused")');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

const batch = (step, more) => ({ name: 'batch.default.k', kind: 'batch', done: step !== 'stalled', metadata: {
  machine: 'service', namespace: 'default', command: 'refresh', commandId: 'batch.default.k', step, startedAt: new Date().toISOString(), updatedAt: new Date().toISOString(),
  progress: { matched: 3, applied: 2, unchanged: 0, stored: 1, refused: 0, failed: 0, failures: [] } }, ...more });

test('a batch has a page, which says how it ended', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const { status, body } = await server.ask('/v1/batches', { machine: 'service', command: 'refresh', filter: { keys: ['default.web-0', 'default.web-1'] } });
  assert.equal(status, 202);
  const page = await openPage(context, server, '/ui/operations/' + body.name);
  await page.waitForSelector('[role=status]:has-text("2 applied"):has-text("Done.")');
  assert.deepEqual(await violations(page), []);
  const doc = (await server.ask('/openapi.json')).body;
  for (const [op, says] of [[batch('cancelled', { error: { code: 'cancelled', message: 'it was cancelled; what was sent is not taken back' } }), 'what was sent is not taken back'], [batch('stalled'), 'It has stalled']]) {
    assert.deepEqual(strange(doc, answerOf(doc, '/v1/operations/{operation}'), op), []);
    await answers(page, { '/v1/operations/batch.default.k': op });
    await page.goto(server.url + '/ui/operations/batch.default.k');
    await page.waitForSelector(`main >> text=${says}`);
    await page.waitForSelector('main >> text=1 stored and not answered yet');
    assert.equal(await page.locator('main >> text=Done.').count(), 0);
    assert.equal(await page.locator('main button:has-text("Stop")').count(), op.done ? 0 : 1);
    if (op.done) continue;
    const stopped = page.waitForRequest((r) => r.method() === 'POST' && r.url().endsWith('/v1/operations/batch.default.k/cancel'));
    await page.route('**/cancel', (route) => route.fulfill({ json: op }));
    await page.click('main button:has-text("Stop")');
    await stopped;
  }
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a command goes to all that are stuck, and what goes on has an address', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await long(context, []);
  const page = await openPage(context, server, '/ui/machines/service?preset=stuck-5');
  let sent;
  const keys = [];
  await page.route('**/v1/batches', (route) => {
    sent = route.request().postDataJSON();
    keys.push(route.request().headers()['idempotency-key']);
    return route.fulfill(keys.length === 2 ? { status: 404, contentType: 'text/plain', body: 'of a proxy' } : { status: 202, json: batch('stalled') });
  });
  await answers(page, { '/v1/operations/batch.default.k': batch('stalled') });
  await page.selectOption('.bulk select', 'refresh');
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('dialog >> text=It has stalled');
  assert.ok(Math.abs(Date.parse(sent.filter.sinceBefore) - Date.now() + 300000) < 60000, sent.filter.sinceBefore);
  const { sinceBefore } = sent.filter;
  await page.click('dialog button:has-text("Go on with it")');
  await page.locator('dialog .failure:has-text("of a proxy")').waitFor();
  await page.click('dialog button:has-text("Go on with it")');
  await until('it is sent again', async () => keys.length === 3);
  assert.deepEqual([keys[1], keys[2], sent.filter.sinceBefore], [keys[0], keys[0], sinceBefore], 'under another key it would be another batch');
  await page.click('dialog button:has-text("Leave it running")');
  await page.click('.toast >> text=See how far it is');
  await page.waitForURL('**/ui/operations/batch.default.k');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a command goes to what is selected and still there, as long as it is what it was selected for', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const since = new Date(Date.now() - 3600000).toISOString();
  let ids = ['web-0', 'web-1', 'web-2'];
  await answers(context, { '/v1/services': () => ({ items: ids.map((id) => ({ id, namespace: 'default', machine: 'service', state: 'FAILED', version: 1, since, createdAt: since, updatedAt: since, labels: {} })), nextCursor: '' }) });
  const sent = [];
  await context.route('**/v1/batches', (route) => { sent.push(route.request().postDataJSON().filter); return route.fulfill({ json: { matched: 2, keys: [] } }); });
  const page = await openPage(context, server, '/ui/machines/service?preset=failed&label=team%3Dweb&q=web');
  await page.waitForSelector('.pill:has-text("Live")');
  await page.getByLabel('Select all that are loaded').check();
  await page.waitForSelector('.bulk >> text=3 selected');
  ids = ['web-0', 'web-2']; // one has recovered
  assert.equal((await server.ask('/v1/services/web-1/label', { labels: { team: 'web' } })).status, 200);
  await page.locator('.table >> text="web-1"').waitFor({ state: 'detached' });
  await page.waitForSelector('.bulk >> text=2 selected');
  const act = async () => { await page.selectOption('.bulk select', 'refresh'); await page.click('dialog >> text=Dry run'); await page.waitForSelector('dialog >> text=2 match now'); await page.keyboard.press('Escape'); };
  await act();
  assert.deepEqual(sent.pop(), { namespace: '*', idPrefix: 'web', keys: ['default.web-0', 'default.web-2'], states: ['FAILED'], labels: ['team=web'] });
  await page.goto(server.url + '/ui/machines/service?preset=stuck-5');
  await page.getByLabel('Select default.web-2').check();
  await act();
  const { keys, sinceBefore } = sent.pop();
  assert.deepEqual(keys, ['default.web-2']);
  assert.ok(Date.parse(sinceBefore) < Date.now() - 290000);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what is tried again says how often, when, and why', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const nextTry = new Date(Date.now() + 3600000).toISOString();
  const error = { code: 'UNREACHABLE', message: 'nobody answers' };
  await answers(context, {
    '/v1/services/web-1': async (_, said) => ({ ...await said(), effects: { apply: { id: 'a', try: 2, since: new Date().toISOString(), nextTry, error } } }),
    '/v1/services/web-1/events': async (_, said) => { const page = await said(); const last = page.items.at(-1); const odd = { ...last, seq: last.seq + 2, version: last.version + 2, data: { notBefore: 1e300, message: 'no time at all' } }; return { ...page, items: [...page.items, { ...last, seq: last.seq + 1, version: last.version + 1, type: 'effect.retrying', data: { effect: 'apply', try: 2, of: 5, nextTry, error } }, odd] }; },
  });
  const page = await openPage(context, server, '/ui/entities/service/web-1');
  const facts = page.locator('.card', { has: page.locator('h2:has-text("Under way")') });
  await facts.locator('text=attempt 2').waitFor();
  await facts.locator('text=UNREACHABLE: nobody answers').waitFor();
  const line = page.locator('.step-events .small', { hasText: 'effect apply · try 2 of 5 · the next try in' });
  assert.equal(await line.locator('time').getAttribute('datetime'), nextTry);
  await page.locator('.step-events .small', { hasText: 'no time at all' }).first().waitFor();
  assert.deepEqual(strange((await server.ask('/openapi.json')).body, { $ref: 'Attempt' }, { id: 'a', try: 2, since: nextTry, nextTry, error }), [], 'as the server has them');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('only a command is refused: what else has that in its name shows where it led', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await answers(context, { '/v1/services/web-1/events': async (_, said) => {
    const page = await said();
    const last = page.items.at(-1);
    return { ...page, items: [...page.items, { ...last, seq: last.seq + 1, version: last.version + 1, command: 'undone', from: 'UPDATING', to: 'READY', type: 'provisioning.db.revert.refused' }] };
  } });
  const page = await openPage(context, server, '/ui/entities/service/web-1');
  const step = page.locator('.step', { hasText: 'undone' }).first();
  await step.locator('.step-move', { hasText: 'READY' }).waitFor();
  assert.equal(await step.locator('text=/^refused$/').count(), 0);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('the address of a list has its namespace', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/machines/service?namespace=acme');
  await page.waitForSelector('.bar .namespace:has-text("acme")');
  await page.waitForSelector('main >> text=in the namespace acme');
  await page.click('.bar .namespace');
  await page.fill('.bar .namespace input', '*');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.table >> text="web-1"');
  assert.equal(new URL(page.url()).searchParams.get('namespace'), '*');
  await page.click('.bar .namespace');
  await page.fill('.bar .namespace input', 'default');
  await page.keyboard.press('Enter');
  await page.waitForURL('**/ui/machines/service?namespace=default');
  await page.click('.side >> text=Tasks');
  await page.waitForURL('**/ui/tasks?namespace=default', { timeout: 60000 });
  await page.goBack();
  await page.click('.table >> text="web-1"');
  await page.waitForSelector('h1:has-text("web-1")');
  assert.equal(new URL(page.url()).search, '', 'that of an entity is its own');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('the data of two versions that were seen is compared', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/entities/service/web-2?tab=data');
  await page.waitForSelector('.pill:has-text("Live")');
  const since = page.getByLabel('What changed since');
  for (const [n, seen] of [['one', 2], ['two', 3]]) {
    await until('it is updated', async () => (await server.ask('/v1/services/web-2/update', { spec: { image: 'hello', env: { GREETING: n } }, supersede: true })).status === 200);
    await until('a version more is there', async () => await since.locator('option').count() >= seen);
  }
  const values = await since.locator('option').evaluateAll((all) => all.map((o) => o.value).filter(Boolean));
  await since.selectOption(values[values.length - 1]);
  await page.locator('tr', { has: page.locator('th:text-is("spec.env.GREETING")') }).locator('.diff-to', { hasText: 'two' }).waitFor();
  await page.getByLabel('until').selectOption(values[values.length - 1]);
  await page.waitForSelector('main >> text=The data is the same');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('on a phone the namespace, the clock and the colours are in the menu', async () => {
  const context = await browser.newContext({ viewport: phone });
  const page = await openPage(context, server, '/ui/machines');
  await page.click('.menu-button');
  await page.click('.side .clock-button');
  await page.waitForSelector('.side .clock-button:has-text("local")');
  await page.click('.side .namespace');
  await page.fill('.side .namespace input', 'default');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.side .namespace:has-text("default")');
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a view is kept under a name, and forgotten; times are in UTC for who wants that', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/machines/service?q=web');
  await page.click('text=Keep this view');
  await page.fill('[aria-label="Name of the view"]', 'of the web');
  await page.keyboard.press('Enter');
  await page.click('.chip:has-text("All") >> nth=0');
  await page.waitForSelector('.table >> text="hello"');
  await page.reload();
  await page.click('.chip:has-text("of the web")');
  await page.locator('.table >> text="hello"').waitFor({ state: 'detached' });
  assert.equal(new URL(page.url()).searchParams.get('q'), 'web');
  const other = await openPage(context, server, '/ui/machines/service?q=web-0');
  await page.goto(server.url + '/ui/machines/service?q=hel');
  for (const [tab, name] of [[page, 'of hello'], [other, 'of one']]) {
    await tab.click('text=Keep this view');
    await tab.fill('[aria-label="Name of the view"]', name);
    await tab.keyboard.press('Enter');
  }
  await other.close();
  await page.reload();
  for (const name of ['of hello', 'of one']) await page.click(`[aria-label="Forget the view ${name}"]`); // each tab has kept that of the other
  await page.click('[aria-label="Forget the view of the web"]');
  assert.equal(await page.locator('.chip:has-text("of the web")').count(), 0);
  for (const clock of ['local', 'UTC']) await page.click('.bar .clock-button').then(() => page.waitForSelector(`.bar .clock-button:has-text("${clock}")`));
  const time = page.locator('.table td:last-child time').first();
  const iso = await time.getAttribute('title');
  assert.equal(new Date(iso).toISOString(), iso);
  assert.equal(await time.textContent(), iso.replace('T', ' ').replace(/\.\d+Z$/, 'Z'));
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('arrows go from row to row, and Enter opens, in a list and in a table', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/machines/service?q=web');
  await page.locator('.table >> text="web-2"').waitFor();
  await frame(page).focus();
  for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowUp', 'x']) await page.keyboard.press(key);
  assert.ok(await page.getByLabel('Select default.web-1').isChecked());
  await page.keyboard.press('Enter');
  await page.waitForURL('**/ui/entities/service/web-1');
  await page.goto(server.url + '/ui/workers');
  await page.locator('[aria-label=Queues] tbody tr').nth(1).waitFor();
  await page.locator('[aria-label=Queues]').focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const second = page.locator('[aria-label=Queues] tbody tr').nth(1).locator('a').first();
  assert.ok(await second.evaluate((a) => a === document.activeElement));
  const href = await second.getAttribute('href');
  await page.keyboard.press('Enter');
  await page.waitForURL('**' + href + '*');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('heartbeats are asked for as far as the list of instances goes', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const since = new Date(Date.now() - 3600000).toISOString();
  const name = (i) => 'i-' + String(i).padStart(3, '0');
  const beats = []; // the pages of heartbeats that were asked for
  const paged = (make) => (url) => {
    const from = Number(url.searchParams.get('cursor') || 0);
    return make(Array.from({ length: Math.min(500, 700 - from) }, (_, i) => name(from + i)), from ? '' : '500', url);
  };
  await answers(context, {
    '/v1/discover/pay': { service: 'pay', namespace: 'default', instances: [] },
    '/v1/instances': paged((ids, nextCursor) => ({ nextCursor, items: ids.map((id) => ({ id, parent: 'pay', namespace: 'default', state: 'active.healthy', since, updatedAt: since, entity: { data: { check: { type: 'ttl' } } } })) })),
    '/v1/services/pay/heartbeats': paged((ids, nextCursor, url) => {
      beats.push(url.searchParams.get('cursor'));
      return { service: 'pay', namespace: 'default', instances: ids.filter((id) => id !== 'i-001').map((instanceId) => ({ instanceId, ageMillis: 61000 })), nextCursor };
    }),
  });
  const page = await openPage(context, server, '/ui/discovery/pay');
  await page.locator('tr', { hasText: 'i-000' }).locator('text=/^1m/').waitFor();
  await page.locator('tr', { hasText: 'i-001' }).locator('text=not yet').waitFor();
  await until('they are asked for again', async () => beats.length > 1);
  assert.deepEqual(beats.filter(Boolean), [], 'one that was never heard does not make it read the next page');
  const list = page.locator('[role=region][aria-label=Instances]');
  await until('all are loaded', async () => { await list.evaluate((f) => { f.scrollTop = f.scrollHeight; }); return page.locator('.table >> text="i-699"').count(); });
  await page.locator('tr', { hasText: 'i-699' }).locator('text=/^1m/').waitFor();
  await context.close();
});

test('what cannot be read is counted among what needs somebody, and found', async () => {
  assert.equal((await server.ask('/v1/queues/pool-gpu/configure', { limit: 2 })).status, 200);
  await publish(server, '$KV.queues.default.broken', '{"schema":', 'broken'); // a machine that has no state of failure
  await until('it is parked', async () => (await server.ask('/v1/machines/queue/counts')).body.parked === 1);
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/');
  await page.locator('.stat.tone-bad', { hasText: 'Failing' }).click();
  await page.waitForURL('**/ui/machines/queue?preset=parked*');
  await page.locator('.side a[href^="/ui/machines/queue"] .badge-bad', { hasText: '1' }).waitFor();
  await page.locator('tr', { hasText: 'broken' }).locator('text=unreadable').waitFor();
  assert.equal(await page.locator('.list tbody tr').count(), 1);
  assert.equal(await page.locator('.bulk').count(), 0, 'it takes no command');
  assert.deepEqual(await violations(page), []);
  await page.click('.chip:has-text("All") >> nth=0');
  await page.waitForSelector('.list >> text=2 of 2');
  assert.deepEqual(page.wrong, []);
  await context.close();
});
