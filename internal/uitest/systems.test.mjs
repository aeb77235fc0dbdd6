// The pages of operations and of the systems in a real browser: each at two widths, light and dark, and what is done on them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { desktop, hold, openPage, stage, until, violations } from './server.mjs';
import { answerOf, answers, furnish, hostiles, outbox, publish, strange, tenants } from './systems.mjs';

const [hostile] = hostiles;

let server;
let browser;
stage(async (s, b) => {
  server = s;
  browser = b;
  await furnish(server, hostile);
});

const pages = {
  letters: '/ui/dead-letters', nodes: '/ui/nodes', workers: '/ui/workers', services: '/ui/services', revisions: '/ui/entities/service/hello?tab=revisions', streams: '/ui/streams', discovery: '/ui/discovery', discovered: '/ui/discovery/pay', past: `/ui/discovery/pay?at=${new Date().toISOString()}`, tasks: '/ui/tasks', log: '/ui/tasks/nightly/report', waiting: '/ui/tasks/nightly/train-0',
  outbox: '/ui/outbox', parked: '/ui/outbox', tenants: '/ui/tenants', copying: '/ui/tenants/database_provisioning/acme/move', stuck: '/ui/tenants/database_provisioning/cozy/move', held: '/ui/tenants/database_provisioning/bold/move',
};
const given = { parked: outbox(hostile), tenants: tenants(hostile), copying: tenants(hostile), stuck: tenants(hostile), held: tenants(hostile) }; // answers for what needs databases

hold('a page of a system', pages, {
  furnish: async (context, name) => { if (given[name]) await answers(context, given[name]); },
  ready: async (page) => {
    await page.evaluate(() => document.querySelectorAll('.letter-group > button[aria-expanded=false]').forEach((b) => b.click()));
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => { document.querySelectorAll('.letters details').forEach((d) => { d.open = true; }); resolve(); })));
  },
  look: async (page, name) => {
    const texts = (at) => page.locator(at).allTextContents();
    if (name === 'log') await until('each line is shown as what it is', async () => { const all = await texts('.log-line span'); return hostiles.every((text) => all.includes('logged: ' + text)); });
    if (name === 'letters') await until('and so is each body', async () => { const all = await texts('.letters pre'); return hostiles.every((text) => all.includes('posted: ' + text)); });
    if (name === 'streams') await page.waitForSelector('[aria-label=Buckets] >> text=nats kv ls services', { timeout: 60000 });
    if (name === 'tasks') await page.waitForSelector('[aria-label=Repositories] tr:has-text("nightly"):has-text("of 2")');
    assert.equal(await page.locator('main .failure[role=alert]').count(), 0, name);
    assert.equal(await page.evaluate(() => window.hacked), undefined, name);
  },
});

test('answers that are made up have the form of those that the server gives', async () => {
  const doc = (await server.ask('/openapi.json')).body;
  assert.deepEqual(strange(doc, answerOf(doc, '/v1/outbox'), outbox(hostile)['/v1/outbox']), []);
  const by = tenants(hostile); // this server has no such machine: what is the same of all entities is compared, and not their data
  assert.deepEqual(strange(doc, answerOf(doc, '/v1/services'), by['/v1/database_provisionings'](new URL('http://there/'))), []);
  for (const [path, value] of Object.entries(by)) {
    if (path.endsWith('/events')) assert.deepEqual(strange(doc, answerOf(doc, '/v1/services/{id}/events'), value), [], path);
    if (path.endsWith('/move')) assert.deepEqual(strange(doc, answerOf(doc, '/v1/services/{id}'), { ...value, state: 'READY', allowedCommands: [], data: {} }).filter((text) => !/^\.data\./.test(text)), [], path);
  }
});

test('a page of a system is in the side when its machine is there', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/');
  await page.waitForSelector('.side >> text=Discovery');
  assert.equal(await page.locator('.side >> text=Tenants').count(), 0);
  await answers(context, tenants(hostile));
  await page.reload();
  await page.waitForSelector('.side >> text=Tenants');
  await context.close();
});

test('what an undo takes back has a bar each, and so has the whole', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const at = '/v1/tenants/acme/database_provisionings/move';
  const by = tenants(hostile);
  const { data } = by[at];
  await answers(context, { ...by, [at]: { ...by[at], data: { ...data, phase: 'rolling_back', ledger: data.ledger.map((l, i) => ({ ...l, state: i > 1 ? 'undone' : 'created' })) } } });
  const page = await openPage(context, server, '/ui/tenants/database_provisioning/acme/move');
  const values = (at) => page.locator(at).evaluateAll((all) => all.map((p) => [p.getAttribute('aria-label'), p.position < 0 ? 'under way' : p.value]));
  await page.waitForSelector('.ledger progress');
  assert.deepEqual(await values('.ledger progress'), [['fence tenant_acme', 1], ['replication tenant_acme', 'under way'], ['database tenant_acme', 0]]);
  assert.deepEqual(await values('.undo-bar'), [['Taken back', 1]]);
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test('letters of one cause are one group, and are redriven together', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/dead-letters');
  const before = (await server.ask('/v1/dead-letters?machine=service')).body.items.map((l) => l.seq);
  const group = page.locator('.letter-group', { has: page.locator('button:has-text("Redrive all 4")') });
  await group.locator('button:has-text("Redrive all 4")').click();
  await page.fill('dialog input', 'the provider is back');
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('.toast:has-text("4 sent again")');
  await page.waitForSelector('.settled:has-text("redriven by"):has-text("the provider is back") >> nth=3');
  assert.equal(await page.locator('.settled').count(), 4);
  const left = (await server.ask('/v1/dead-letters?machine=service')).body.items.map((l) => l.seq);
  assert.deepEqual(left.filter((seq) => before.includes(seq)), [], 'what has come back is another letter');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a letter is edited, and others are dropped with a reason', async () => {
  const of = async (machine) => (await server.ask('/v1/dead-letters?machine=' + machine)).body.items;
  await publish(server, 'instar.cmd.service.default.edited.delete', '{"note": 9007199254740993}', 'another/entity/edited');
  for (const id of ['one', 'two']) await publish(server, `instar.cmd.elsewhere.default.${id}.go`, '{"note": "broken"}', 'elsewhere/default.' + id + '/1');
  await until('all are dead', async () => (await of('elsewhere')).length === 2 && (await of('service')).some((l) => l.key === 'default.edited'));
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/dead-letters?machine=service');
  await page.waitForSelector('.letter-group');
  for (const closed = page.locator('.letter-group > button[aria-expanded=false]'); await closed.count();) await closed.first().click();
  const letter = page.locator('.letters > li', { hasText: 'default.edited' });
  await letter.locator('summary').click();
  await letter.locator('button:has-text("Edit and redrive")').click();
  assert.match(await page.inputValue('dialog textarea'), /9007199254740993/, 'as it is stored');
  await page.fill('dialog textarea', '{"note": ');
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('dialog .failure');
  assert.deepEqual(await violations(page), []);
  await page.fill('dialog textarea', '{}');
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('dialog .failure:not(:has-text("JSON"))');
  assert.ok((await of('service')).some((l) => l.key === 'default.edited'), 'it stays: there is no such service that could be deleted');
  await page.click('dialog button:has-text("Cancel")');
  await page.goto(server.url + '/ui/dead-letters?machine=elsewhere');
  await page.click('.letter-acts button:has-text("Drop all")');
  assert.ok(await page.locator('dialog button[type=submit]').isDisabled(), 'without a reason');
  await page.fill('dialog input', 'nobody sends it any more');
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('.toast:has-text("2 dropped")');
  assert.deepEqual(await of('elsewhere'), []);
  await page.waitForSelector('.settled:has-text("elsewhere default.one"):has-text("nobody sends it any more")');
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('messages of a stream are looked at', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/streams');
  await page.getByLabel('Stream', { exact: true }).selectOption('dead-letters');
  await page.waitForSelector('[role=status]:has-text("in DEAD_LETTERS")');
  await page.getByLabel('Stream', { exact: true }).selectOption('events');
  await page.fill('[aria-label=Subject]', 'instar.evt.queue.default.type-llm.>');
  await page.click('button:has-text("Show")');
  const one = page.locator('summary:has-text("instar.evt.queue.default.type-llm.")').first();
  await one.click();
  await page.locator('[aria-label^="Message "]:visible', { hasText: hostile }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.reload();
  await one.waitFor();
  await page.fill('[aria-label=Subject]', 'no..subject');
  await page.click('button:has-text("Show")');
  await page.waitForSelector('.failure:has-text("no subject")');
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a node is drained and takes work again', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/nodes');
  const name = (await server.ask('/v1/nodes')).body.items[0].name;
  await page.click('button:has-text("Drain")');
  await page.waitForSelector('dialog >> text=No other node takes work');
  await page.fill('dialog input', name);
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('.state:has-text("draining")', { timeout: 60000 });
  await page.click('button:has-text("Uncordon")');
  await page.waitForSelector('.state:has-text("live")', { timeout: 60000 });
  await until('it has its partitions again', async () => (await server.ask('/v1/nodes')).body.items[0].partitions?.length === 32);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('the catalogue follows what happens, and knows the past', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/discovery/mail');
  await page.waitForSelector('.table >> text=10.0.1.1:25');
  const before = new Date().toISOString();
  await until('the clock has gone on', async () => Date.now() - Date.parse(before) > 2100);
  await server.ask('/v1/register', { serviceName: 'mail', instanceId: 'mail-1', nodeAddress: '10.0.1.2:25', check: { type: 'ttl', ttl: '60s' } });
  assert.equal((await fetch(server.url + '/v1/services/mail/instances/mail-1/heartbeat', { method: 'PUT' })).status, 204);
  await page.waitForSelector('.table >> text=10.0.1.2:25', { timeout: 60000 });
  const cells = page.locator('tr:has-text("10.0.1.2:25") td');
  const heartbeat = await page.locator('th').allTextContents().then((all) => all.indexOf('Heartbeat'));
  await until('its heartbeat has an age', async () => /^\d/.test(await cells.nth(heartbeat).textContent()));
  await page.goto(`${server.url}/ui/discovery/mail?at=${before}`);
  await page.waitForSelector('[role=status]:has-text("1 has come since")');
  assert.equal(await page.locator('.table >> text=10.0.1.2:25').count(), 0);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('more tabs of logs than a browser has connections follow them, also over a kill of the server', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const say = (task, line) => publish(server, `instar.log.task.default.nightly.${task}`, line, 'log/' + task + '/' + line);
  const tabs = [];
  for (let i = 0; i < 8; i++) tabs.push([await openPage(context, server, '/ui/tasks/nightly/train-' + i % 2), 'train-' + i % 2]);
  const all = async (line) => { for (const [page, task] of tabs) await page.waitForSelector(`.log-line >> text=${line} of ${task}`, { timeout: 60000 }); };
  for (const task of ['train-0', 'train-1']) await say(task, 'first of ' + task);
  await all('first');
  await server.kill();
  await server.again();
  for (const task of ['train-0', 'train-1']) await until('it is said', () => say(task, 'second of ' + task).then(() => true));
  await all('second');
  for (const [page] of tabs) {
    assert.equal(await page.locator('.log-line').count(), 2, 'no line is there twice');
    assert.deepEqual(page.wrong, []);
  }
  await context.close();
});

test('tabs that open on a log which is being written to have all of its lines, once and in order', async () => {
  const context = await browser.newContext({ viewport: desktop });
  let said = 0;
  const say = () => publish(server, 'instar.log.task.default.nightly.train-2', 'line ' + ++said, 'log/train-2/' + said);
  while (said < 100) await say();
  let over = false;
  const writing = (async () => { while (!over && said < 800) await say(); })();
  const tabs = [];
  try {
    for (let i = 0; i < 3; i++) tabs.push(await openPage(context, server, '/ui/tasks/nightly/train-2'));
    tabs.push(...await Promise.all([1, 2].map(() => openPage(context, server, '/ui/tasks/nightly/train-2'))));
  } finally {
    over = true;
    await writing;
  }
  const wanted = Array.from({ length: said }, (_, i) => 'line ' + (i + 1));
  for (const page of tabs) {
    await page.waitForSelector(`.log-line >> text="line ${said}"`, { timeout: 60000 });
    assert.deepEqual(await page.locator('.log-line span').allTextContents(), wanted);
    assert.deepEqual(page.wrong, []);
  }
  await context.close();
});

test('a log that is paused stays as it is, and has all lines when it goes on', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const [held, other] = [await openPage(context, server, '/ui/tasks/nightly/report'), await openPage(context, server, '/ui/tasks/nightly/report')];
  await held.click('.bar .pill:has-text("Live")');
  await publish(server, 'instar.log.task.default.nightly.report', 'while it is paused', 'log/report/paused');
  await other.waitForSelector('.log-line >> text=while it is paused', { timeout: 60000 });
  assert.equal(await held.locator('.log-line >> text=while it is paused').count(), 0);
  await held.click('.bar .pill:has-text("Paused")');
  await held.waitForSelector('.log-line >> text=while it is paused', { timeout: 60000 });
  assert.equal(new Set(await held.locator('.log-line').allTextContents()).size, await held.locator('.log-line').count(), 'each once');
  assert.deepEqual(held.wrong, []);
  await context.close();
});

test('instances that have ended come only where they are asked for, and before nobody', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await context.newPage();
  const asked = [];
  page.on('request', (r) => { const u = new URL(r.url()); if (u.pathname === '/v1/instances') asked.push(u.searchParams.getAll('state')); });
  await page.goto(server.url + '/ui/discovery/pay');
  await page.waitForSelector('.table >> text=10.0.0.1:8080');
  assert.ok(asked[0].length > 0 && !asked[0].includes('deregistered'));
  assert.equal(await page.locator('.table >> text=10.0.0.4:8080').count(), 0);
  await page.getByLabel('Also those that ended within a day').check();
  await page.waitForSelector('.table >> text=10.0.0.4:8080');
  await context.close();
});

test('a place is said only where all that wait are known, and a line for the command line is one that it takes', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/entities/task/nightly/train-0');
  await page.waitForSelector('code:has-text("instar task events nightly/train-0 --namespace default")');
  const places = () => page.locator('[aria-label="Waiting tasks"] tbody td:nth-child(2)').allTextContents();
  await page.goto(server.url + '/ui/tasks');
  await page.waitForSelector('[aria-label="Waiting tasks"] tbody td');
  assert.ok((await places()).every((p) => /^\d+$/.test(p)));
  await answers(context, { '/v1/tasks': async (url, said) => ({ ...await said(), nextCursor: 'more' }) });
  await page.reload();
  await page.waitForSelector('[aria-label="Waiting tasks"] tbody td');
  assert.ok((await places()).every((p) => p === '–'));
  await context.close();
});

test('a log that is refused leaves those of other tabs alone', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/tasks/nightly/train-2');
  await page.evaluate(async () => {
    const { followLog } = await import(new URL('live.js', document.querySelector('script[type=module][src]').src).href);
    followLog('default.no', ({ state }) => { document.title = 'log: ' + state; });
  });
  await page.waitForFunction(() => document.title === 'log: refused', undefined, { timeout: 60000 });
  await page.waitForSelector('.pill:has-text("Live")', { timeout: 60000 });
  await publish(server, 'instar.log.task.default.nightly.train-2', 'after the refusal', 'log/train-2/after');
  await page.waitForSelector('.log-line >> text=after the refusal', { timeout: 60000 });
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('services are listed page by page, without those that have ended', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const asked = [];
  const since = new Date().toISOString();
  await answers(context, { '/v1/services': (url) => {
    asked.push(url.searchParams);
    const from = Number(url.searchParams.get('cursor') || 0);
    return { items: Array.from({ length: Math.min(500, 700 - from) }, (_, i) => ({ id: 'service-' + (from + i), namespace: 'default', state: url.searchParams.get('state'), since, labels: {} })), nextCursor: from ? '' : '500' };
  } });
  const page = await openPage(context, server, '/ui/services');
  await page.waitForSelector('.table >> text="service-0"');
  assert.ok(asked.every((q) => !q.has('cursor')), 'one page is enough at first');
  const { body: { items } } = await server.ask('/v1/machines');
  assert.deepEqual(asked[0].getAll('state'), items.find((m) => m.name === 'service').states.filter((s) => !s.terminal).map((s) => s.name));
  await page.waitForSelector('.stats >> text=500+');
  await page.locator('[role=region][aria-label=Services]').evaluate((frame) => { frame.scrollTop = frame.scrollHeight; });
  await page.waitForSelector('.stats >> text="700"');
  await page.locator('[role=region][aria-label=Services]').evaluate((frame) => { frame.scrollTop = frame.scrollHeight; });
  await page.waitForSelector('.table >> text="service-699"');
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('who says that it works is listed', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/workers');
  await publish(server, 'instar.worker.fx-task-run=gpu', JSON.stringify({ id: '1', queue: 'fx-task-run=gpu', name: hostile, version: '1.4', concurrency: 8, running: 3 }), 'w');
  await page.waitForSelector(`tr:has-text("gpu"):has-text("1.4") >> text=3 of 8`, { timeout: 60000 });
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('what waits says why, and a queue is resumed', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/tasks');
  await page.click('[aria-label="Why does nightly/train-1 wait?"]');
  await page.waitForSelector('tr:has-text("train-1") [role=status]', { timeout: 60000 });
  assert.deepEqual(await page.locator('[aria-label="Waiting tasks"] tbody th a').allTextContents(), ['nightly/train-1', 'nightly/train-0', 'nightly/train-2'], 'in the order of their priorities');
  await page.click('tr:has-text("type-llm") >> text=Resume');
  await page.click('dialog button[type=submit]');
  await page.waitForSelector('tr:has-text("type-llm") >> text=Pause', { timeout: 60000 });
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('the page of tasks shows one namespace whole, or all of them', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/tasks?namespace=acme');
  await page.waitForSelector('[aria-label="Waiting tasks"] >> text=Nothing waits.');
  assert.equal(await page.locator('.stat', { hasText: 'Queued' }).locator('.stat-value').textContent(), '0');
  const limits = page.locator('[aria-label=Limits] tbody tr');
  assert.deepEqual([await limits.count(), await limits.locator('td').nth(2).textContent()], [1, '3'], 'the limit of all counts all that wait');
  assert.match(await limits.first().textContent(), /^cluster/);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a session says which of its commands are forbidden now, and why', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const at = '/v1/tenants/acme/database_provisionings/move';
  const by = tenants(hostile);
  const forbiddenCommands = { pause: 'its phase is not executing' };
  await answers(context, { ...by, [at]: { ...by[at], forbiddenCommands } });
  assert.deepEqual(strange((await server.ask('/openapi.json')).body, { $ref: 'ServiceEntity' }, { ...by[at], state: 'READY', data: {}, forbiddenCommands }).filter((text) => !/^\.data/.test(text)), []);
  const page = await openPage(context, server, '/ui/tenants/database_provisioning/acme/move');
  await page.click('.heading-actions >> text=More');
  const pause = page.locator('.menu-item', { hasText: 'pause' });
  assert.ok(await pause.isDisabled());
  assert.match(await pause.textContent(), /its phase is not executing/);
  assert.match(await page.locator('.menu-item', { hasText: 'retry' }).textContent(), /Not in migrating_data/);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a check that fails shows what it said; a letter that names nothing leads nowhere', async () => {
  const context = await browser.newContext({ viewport: desktop });
  await answers(context, { '/v1/dead-letters': async (_, said) => ({ ...await said(), items: [{ seq: 9, time: new Date().toISOString(), consumer: 'effects', machine: 'unknown', key: 'unknown.unknown', subject: 'instar.fx.odd', reason: 'it names nothing', tries: 1 }] }) });
  const page = await openPage(context, server, '/ui/discovery/pay');
  await page.locator('tr', { hasText: '127.0.0.1:1' }).locator('button').click();
  await page.locator('dialog [aria-label="Output of the check"]', { hasText: 'refused' }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.goto(server.url + '/ui/dead-letters');
  await page.locator('.letter-group >> text=it names nothing').first().waitFor();
  await page.locator('.letter-group > button').first().focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.locator('details[open] >> text=Its body is empty').waitFor();
  assert.equal(await page.locator('a[href*="unknown"]').count(), 0);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

test('a node is cordoned, and takes its share again', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/nodes');
  await page.click('.chips >> text=Cordon');
  await page.click('dialog button[type=submit]');
  await page.locator('.state', { hasText: 'cordoned' }).waitFor({ timeout: 60000 });
  await page.click('.chips >> text=Uncordon');
  await page.locator('.state', { hasText: 'live' }).waitFor({ timeout: 60000 });
  assert.deepEqual(page.wrong, []);
  await context.close();
});
