// The web console in a real browser: every page at the width of a desk and of a phone, light and dark, and what people do with it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { desktop, hold, loaded, openPage, Server, stage, until, violations } from './server.mjs';
import { hostiles as hostile } from './systems.mjs';

let server;
let browser;
stage(async (s, b) => {
  server = s;
  browser = b;
  await server.state('/v1/services/hello', 'READY');
  const put = async (...of) => { const { status, body } = await server.ask(...of); assert.equal(status, 200, JSON.stringify(body)); };
  for (let i = 0; i < 8; i++) await put(`/v1/services/web-${i}/create`, { spec: { image: i === 3 ? 'missing' : 'hello' }, labels: { team: i % 2 ? 'web' : 'api' } });
  for (const [i, text] of hostile.entries()) {
    await put(`/v1/services/hostile-${i}/create`, { spec: { image: 'hello', env: { TEXT: text } } }, { 'Instar-Reason': Buffer.from(text).toString('latin1') }); // a label is refused that has more than letters, digits, and some marks between
    await put(`/v1/services/hostile-x${i}/create`, { spec: { image: text.replace(/\s/g, '') } });
  }
  await server.state('/v1/services/web-3', 'FAILED');
  await server.state('/v1/services/web-7', 'READY');
});

const pages = {
  home: '/ui/', machines: '/ui/machines', machine: '/ui/machines/service', filtered: '/ui/machines/service?preset=failed', empty: '/ui/machines/task?q=nothing', entity: '/ui/entities/service/web-1',
  failed: '/ui/entities/service/web-3', data: '/ui/entities/service/web-1?tab=data', conditions: '/ui/entities/service/web-1?tab=conditions', json: '/ui/entities/service/web-1?tab=raw',
  relay: '/ui/machines/relay', batches: '/ui/operations', nobody: '/ui/entities/service/nobody', missing: '/ui/no/such/page', 'no-machine': '/ui/machines/nothing',
};

hold('a page', pages);

test('how long entities stay in a state is shown in the diagram', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/machines/service');
  await page.click('text=Time in state');
  await page.waitForSelector('.node-heat');
  const { body } = await server.ask('/v1/machines/service/stays');
  assert.ok(body.states.find((s) => s.state === 'CREATING').count > 0);
  assert.match(await page.locator('[aria-label^="CREATING"]').first().getAttribute('aria-label'), /^CREATING .+ \/ .+, p50 and p95/);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what is open in a timeline stays open when something happens', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/entities/service/web-7');
  await page.waitForSelector('.pill:has-text("Live")');
  const newest = page.locator('.step').first();
  await newest.locator('button[aria-expanded]').click();
  await newest.locator('.json').waitFor();
  await newest.evaluate((li) => { li.dataset.mark = 'opened'; });
  assert.equal((await server.ask('/v1/services/web-7/label', { labels: { now: 'another' } })).status, 200);
  await until('the event is there', async () => (await page.locator('.step').first().getAttribute('data-mark')) === null);
  assert.equal(await page.locator('.step[data-mark=opened] .json').count(), 1, 'it is the same element, and open');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a timeline begins with what is newest, and goes back as far as one asks', async () => {
  const each = 130; // more than are read at first
  for (let i = 0; i < each; i++) assert.equal((await server.ask('/v1/services/web-1/label', { labels: { n: String(i) } })).status, 200);
  const { body } = await server.ask('/v1/services/web-1/events?limit=500');
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/entities/service/web-1');
  const steps = page.locator('.step');
  const earlier = page.getByRole('button', { name: 'Show earlier ones' });
  await earlier.waitFor();
  assert.equal(await steps.count(), 100);
  await page.locator('.edge-gone').nth(1).waitFor(); // the diagram has the whole way, also what is behind these
  assert.match(await page.locator('.tabs a').first().textContent(), /100\+/);
  await earlier.click();
  await earlier.waitFor({ state: 'detached' });
  assert.match(await steps.last().textContent(), /create/);
  assert.match(await page.locator('.tabs a').first().textContent(), new RegExp(`${body.items.length}$`));
  await page.goto(`${server.url}/ui/entities/service/web-1?seq=${body.items[0].seq}`);
  await page.locator('.step .json').filter({ hasText: body.items[0].id }).waitFor();
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what is hostile is text', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const { body } = await server.ask('/v1/services?limit=500');
  const there = body.items.filter((e) => e.id.startsWith('hostile'));
  assert.equal(there.length, 2 * hostile.length);
  const page = await openPage(context, server, '/ui/');
  for (const path of ['/ui/machines/service?q=hostile', ...there.map((e, i) => `/ui/entities/service/${e.id}?tab=${['timeline', 'data', 'raw'][i % 3]}`),
    ...hostile.slice(0, 3).map((h) => `/ui/machines/service?q=${encodeURIComponent(h)}&label=${encodeURIComponent(h)}&state=${encodeURIComponent(h)}`), ...hostile.slice(0, 2).map((h) => `/ui/entities/${encodeURIComponent(h)}/${encodeURIComponent(h)}?namespace=${encodeURIComponent(h)}`)]) {
    await page.goto(server.url + path);
    await page.waitForSelector('h1');
    await loaded(page, path);
    assert.equal(await page.evaluate(() => window.hacked), undefined, path);
    assert.deepEqual(page.wrong, [], path);
  }
  await context.close();
});

test('nine tabs follow what happens, and go on after the server was killed', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const tabs = [];
  for (let i = 0; i < 9; i++) tabs.push(await openPage(context, server, '/ui/entities/service/web-5'));
  for (const t of tabs) await t.waitForSelector('.pill:has-text("Live")');
  const label = (v) => server.ask('/v1/services/web-5/label', { labels: { seen: v } });
  assert.equal((await label('one')).status, 200);
  for (const t of tabs) await t.waitForSelector('.facts >> text=seen=one');
  await server.kill();
  for (const t of tabs) await t.waitForSelector('.pill:has-text("Reconnecting")', { timeout: 60000 });
  await server.again();
  assert.equal((await label('two')).status, 200);
  for (const t of tabs) {
    await t.waitForSelector('.pill:has-text("Live")', { timeout: 60000 });
    await t.waitForSelector('.facts >> text=seen=two', { timeout: 60000 });
    assert.deepEqual(t.wrong, []);
  }
  await context.close();
});

test('what is opened while the server is away is there when it is back', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/tasks');
  await page.click('.side >> text=Nodes');
  await page.waitForSelector('.letter-group, .grid');
  await server.kill();
  await page.click('.side >> text=Tasks');
  await page.waitForSelector('.failure:has-text("asked again")');
  await server.again();
  await page.waitForSelector('[aria-label="Waiting tasks"]', { timeout: 60000 });
  assert.equal(await page.locator('main .failure').count(), 0);
  await context.close();
});

/** anyway takes the mark away from a command that is to be sent also when an observation has changed something meanwhile. */
const anyway = (page) => page.getByLabel('Only if nothing has changed').uncheck();

/** refused waits until the refusal of a command is an event: it changes nothing, so a page that has read the events before is not told of it. */
const refused = (id, command) => until(`${command} of ${id} is refused`, async () => (await server.ask(`/v1/services/${id}/events?before=0`)).body.items.some((e) => e.command === command && /refused/.test(e.type)));

test('one breaks the sample, sees why, and rolls it back', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/');
  await page.click('.side a[href="/ui/machines/service"]');
  await page.click('.table >> text=hello');
  await page.click('.heading-actions >> text=update');
  await page.fill('dialog label:has-text("Image") input', 'no-such-image');
  await page.click('dialog >> text=Dry run');
  await page.waitForSelector('dialog .plan');
  assert.equal((await server.ask('/v1/services/hello')).body.state, 'READY', 'a dry run stores nothing');
  await anyway(page);
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('.facts .state-failed', { timeout: 60000 });
  await page.waitForSelector('.step-failed, .failure');
  await page.click('.heading-actions >> text=rollback');
  await anyway(page);
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('.facts .state-steady:has-text("READY")', { timeout: 60000 });
  assert.ok(await page.locator('.edge-gone').count() >= 3, 'the way that it took');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a reason is any text', async () => {
  const reason = `${hostile[0]} für – it’s 我 🚀`;
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/entities/service/web-0');
  await page.click('.heading-actions >> text=refresh');
  await page.getByLabel('Reason').fill(reason);
  await anyway(page);
  await page.click('dialog button[type=submit]');
  await page.locator('dialog').waitFor({ state: 'detached' });
  await page.locator('.step .small', { hasText: reason }).waitFor();
  await page.goto(server.url + '/ui/machines/service?q=web-0');
  await page.selectOption('.bulk select', 'refresh');
  await page.getByLabel('Reason').fill(reason);
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('dialog >> text=Done.');
  const { body } = await server.ask('/v1/batches?namespace=*');
  assert.equal(body.items[0].metadata.reason, reason);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a command that is refused is in the timeline, and one that would be refused says so before', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await server.state('/v1/services/web-4', 'READY');
  const { body } = await server.ask('/v1/services/web-4/rollback', {});
  assert.equal(body.code, 'guard-rejected');
  await refused('web-4', 'rollback');
  const page = await openPage(context, server, '/ui/entities/service/web-4');
  await page.locator('.step-refused', { hasText: 'rollback' }).waitFor();
  await page.click('.heading-actions >> text=More');
  const forbidden = page.locator('.menu-item', { hasText: 'rollback' });
  assert.ok(await forbidden.isDisabled());
  assert.equal(await forbidden.locator('.small').textContent(), body.detail);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what destroys something asks for its name', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await server.state('/v1/services/web-6', 'READY');
  const page = await openPage(context, server, '/ui/entities/service/web-6');
  await page.click('.heading-actions >> text=delete');
  const send = page.locator('dialog button[type=submit]');
  await page.getByLabel('Type web-6 to confirm').fill('web-5');
  assert.ok(await send.isDisabled());
  await page.getByLabel('Type web-6 to confirm').fill('web-6');
  await anyway(page);
  await send.click();
  await page.waitForSelector('.facts >> text=/DELET/', { timeout: 60000 });
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a browser that has no shared workers follows what happens, too', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await context.addInitScript(() => { delete window.SharedWorker; });
  const page = await openPage(context, server, '/ui/entities/service/web-2');
  await page.waitForSelector('.pill:has-text("Live")');
  assert.equal((await server.ask('/v1/services/web-2/label', { labels: { team: 'api', seen: 'alone' } })).status, 200);
  await page.waitForSelector('.facts >> text=seen=alone');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what was changed meanwhile is not overwritten', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/entities/service/web-5');
  await page.click('.heading-actions button:text-is("label")');
  await page.waitForSelector('dialog .fields');
  await server.ask('/v1/services/web-5/label', { labels: { by: 'another' } });
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('dialog .failure');
  await refused('web-5', 'label');
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('dialog').count(), 0);
  await page.locator('.step-refused', { hasText: 'label' }).waitFor();
  await context.close();
});

test('a batch is rehearsed, and sent to those that match', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/machines/service?label=team%3Dapi');
  await page.waitForSelector('.bulk');
  await page.selectOption('.bulk select', 'refresh');
  await page.click('dialog >> text=Dry run');
  assert.match(await page.locator('dialog').getByText(/match now/).textContent(), /: 4 match now/);
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('dialog >> text=Done.', { timeout: 60000 });
  await page.goto(server.url + '/ui/operations');
  await page.locator('.table >> text=done').first().waitFor();
  await page.click('.table >> text=refresh');
  const told = page.locator('.progress', { hasText: /applied|unchanged/ }).first();
  await told.waitFor();
  const text = await told.textContent(); // to look again changes what differs from the world, and only that; what has been deleted by now refuses it
  assert.equal([...text.matchAll(/(\d+) (?:applied|unchanged|refused)/g)].reduce((sum, [, n]) => sum + Number(n), 0), 4, text);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('the keyboard is enough', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/');
  await page.keyboard.press('g');
  await page.keyboard.press('m');
  await page.waitForURL('**/ui/machines');
  await page.keyboard.press('?');
  await page.waitForSelector('dialog >> text=These keys');
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  await page.keyboard.type('Web-4'); // as a phone writes it
  await page.waitForSelector('#found >> text=web-4');
  await page.keyboard.press('Enter');
  await page.waitForURL('**/ui/entities/service/web-4');
  await page.keyboard.press('/');
  await page.keyboard.type('web-4');
  await page.waitForSelector('#found >> text=web-4');
  await page.keyboard.press('Backspace');
  await page.keyboard.type('5');
  await page.keyboard.press('Enter'); // before there are results of this text
  await page.waitForURL('**/ui/entities/service/web-5');
  await page.keyboard.press('/');
  await page.keyboard.type('web');
  await page.waitForSelector('#found-4 >> text=web-4');
  await page.keyboard.type('-');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter'); // what is marked, also before there are results of this text
  await page.waitForURL('**/ui/entities/service/web-1');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a console that only looks offers nothing else, and is refused', async () => {
  const looking = await Server.start('--ui-readonly', '--ui-trace-url', 'https://traces.example/t/{trace}', '--ui-grafana-url', 'https://grafana.example/d/instar');
  try {
    await looking.state('/v1/services/hello', 'READY');
    const context = await browser.newContext({ viewport: desktop });
    const page = await openPage(context, looking, '/ui/entities/service/hello');
    await page.waitForSelector('.pill:has-text("Read-only")');
    assert.equal(await page.locator('.heading-actions button').count(), 0, 'nor what cannot be sent, under More');
    assert.equal(await page.evaluate(() => fetch('/v1/services/hello/refresh', { method: 'POST' }).then((r) => r.status)), 403);
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    assert.equal((await looking.ask('/v1/services/hello/refresh', {}, { traceparent: `00-${trace}-00f067aa0ba902b7-01` })).status, 200);
    await page.locator('.step', { hasText: 'refresh' }).first().getByRole('button', { name: /^version/ }).click();
    assert.equal(await page.getByRole('link', { name: trace }).getAttribute('href'), 'https://traces.example/t/' + trace);
    await page.goto(looking.url + '/ui/');
    assert.equal(await page.getByRole('link', { name: 'Grafana' }).getAttribute('href'), 'https://grafana.example/d/instar');
    await context.close();
  } finally {
    await looking.end();
  }
});
