// What a form sends must be what it shows: of commands that replace what there is, also what nobody has touched.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { desktop, openPage, stage, until } from './server.mjs';
import { answers } from './systems.mjs';

let server;
let browser;
const settings = { limit: 2, rate: 60, interval: '1m', cap: 100, timeout: '5m' };
stage(async (s, b) => {
  server = s;
  browser = b;
  await server.state('/v1/services/hello', 'READY');
  for (const [path, body] of [['queues/type-llm/configure', settings], ['repositories/shop/create', { concurrency: 1, required: ['lint', 'size'], labels: { team: 'web' } }],
    ['repositories/shop/tasks/nightly/create', { type: 'lint', pool: 'gpu', cron: '0 3 * * *', timeZone: 'Europe/Berlin', batch: 'first', run: true }], ['services/hello/label', { labels: { team: 'web', tier: 'gold' } }]]) {
    const { status, body: said } = await server.ask('/v1/' + path, body);
    assert.equal(status, 200, JSON.stringify(said));
  }
});

const dataOf = async (path) => (await server.ask('/v1/' + path)).body.data;

/** act opens the form of a command on the page of an entity, has fill(dialog) write into it, sends it, and waits until it is closed. */
async function act(page, path, command, fill) {
  await page.goto(server.url + '/ui/entities/' + path);
  await page.locator('h1').waitFor();
  const button = page.locator(`main button.button:text-is("${command}")`);
  const more = page.locator('main .menu > button');
  await button.or(more).first().waitFor();
  if (!(await button.count())) await more.click();
  await button.or(page.locator(`.menu-item:has(b:text-is("${command}"))`)).click();
  const dialog = page.locator('dialog');
  await dialog.locator('.fields').first().waitFor();
  await fill(dialog);
  await dialog.locator('button[type=submit]').click();
  await dialog.waitFor({ state: 'detached' });
}

const field = (dialog, name) => dialog.locator('.field', { has: dialog.page().locator(`.field-name:text-matches("^${name}[*]?$")`) }).locator('input, textarea, select');

/** onPage runs a test on a page of its own, which must have nothing wrong. */
const onPage = (what, f) => test(what, async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/tasks');
  await f(page);
  assert.deepEqual(page.wrong, []);
  await context.close();
});

onPage('a command that replaces what there is keeps what nobody touches', async (page) => {
  await act(page, 'queue/type-llm', 'configure', (d) => field(d, 'Limit').fill('3'));
  assert.deepEqual(await dataOf('queues/type-llm'), { ...settings, limit: 3 });
  await act(page, 'repository/shop', 'configure', (d) => field(d, 'Concurrency').fill('4'));
  const shop = await dataOf('repositories/shop');
  assert.deepEqual([shop.concurrency, shop.required], [4, ['lint', 'size']]);
  await act(page, 'task/shop/nightly', 'schedule', (d) => field(d, 'Time Zone').fill('UTC'));
  const task = await dataOf('repositories/shop/tasks/nightly');
  assert.deepEqual([task.cron, task.timeZone], ['0 3 * * *', 'UTC']);
  await act(page, 'service/hello', 'label', async (d) => {
    await d.locator('button:text-is("Add")').click();
    await d.getByLabel('Name').last().fill('a');
    await d.getByLabel('Value').last().fill('b');
  });
  const labels = async () => (await server.ask('/v1/services/hello')).body.labels;
  assert.deepEqual(await labels(), { team: 'web', tier: 'gold', a: 'b' });
  await act(page, 'service/hello', 'update', async (d) => {
    for (let n = 3; n > 0; n--) await d.locator('fieldset:has(> legend:has-text("Labels")) > .pair').first().getByLabel('Remove').click();
  });
  assert.deepEqual(await labels() ?? {}, {}, 'nor is what was taken away kept');
});

onPage('a text that is taken away from what is there is said to be empty', async (page) => {
  await act(page, 'task/shop/nightly', 'schedule', (d) => field(d, 'Cron').fill(''));
  const task = await dataOf('repositories/shop/tasks/nightly');
  assert.deepEqual([task.cron, task.timeZone], [undefined, undefined]);
});

onPage('a command that is about this time begins with nothing of the last one', async (page) => {
  assert.equal((await server.ask('/v1/repositories/shop/tasks/nightly/cancel', {})).status, 200);
  await act(page, 'task/shop/nightly', 'run', async (d) => assert.equal(await field(d, 'Batch').inputValue(), ''));
  assert.equal((await dataOf('repositories/shop/tasks/nightly')).batch, undefined);
});

onPage('nothing that is there is replaced by a form for what is new', async (page) => {
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("Set one")');
  const dialog = page.locator('dialog');
  await field(dialog, 'Id').fill('type-llm');
  await field(dialog, 'Cap').fill('7');
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('[role=alert]:has-text("type-llm exists")').waitFor();
  assert.deepEqual(await dataOf('queues/type-llm'), { ...settings, limit: 3 });
  await field(dialog, 'Id').fill('type-lint');
  await dialog.locator('button[type=submit]').click();
  await dialog.waitFor({ state: 'detached' });
  assert.deepEqual(await dataOf('queues/type-lint'), { cap: 7 });
});

onPage('what goes on beside is no reason to refuse, but what a form began with is', async (page) => {
  await page.goto(server.url + '/ui/entities/service/hello');
  await page.click('main button.button:text-is("refresh")');
  const dialog = page.locator('dialog');
  await dialog.getByLabel('Only if nothing has changed').waitFor();
  assert.equal((await server.ask('/v1/services/hello/label', { labels: { team: 'web', tier: 'silver' } })).status, 200);
  await dialog.locator('button[type=submit]').click();
  await dialog.waitFor({ state: 'detached' });
  await page.click('main button.button:text-is("refresh")');
  await dialog.getByLabel('Only if nothing has changed').waitFor();
  const { revision } = (await server.ask('/v1/services/hello')).body;
  assert.equal((await server.ask('/v1/services/hello/update', { spec: { image: 'hello', env: { A: 'b' } } })).status, 200);
  await until('it is READY anew', async () => { const { body } = await server.ask('/v1/services/hello'); return body.revision > revision && body.state === 'READY'; });
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('.failure').waitFor(); // the state is the same, but it was another meanwhile
  await page.keyboard.press('Escape');
  await page.goto(server.url + '/ui/entities/queue/type-llm');
  await page.click('main button.button:text-is("configure")');
  await field(dialog, 'Limit').fill('8');
  await server.ask('/v1/queues/type-llm/configure', { ...settings, limit: 5 });
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('.failure').waitFor();
  assert.equal((await dataOf('queues/type-llm')).limit, 5);
  await page.keyboard.press('Escape');
  assert.equal((await server.ask('/v1/queues/type-llm/configure', { ...settings, limit: 3 })).status, 200);
});

onPage('a dialog is closed beside it, not on its scrollbar', async (page) => {
  await page.goto(server.url + '/ui/entities/service/hello');
  await page.click('main button.button:text-is("update")');
  const dialog = page.locator('dialog');
  await dialog.locator('.fields').first().waitFor();
  const press = (right) => dialog.evaluate((d, x) => { const r = d.getBoundingClientRect(); d.dispatchEvent(new MouseEvent('mousedown', { bubbles: true, clientX: r.right + x, clientY: (r.top + r.bottom) / 2 })); }, right);
  await press(-5);
  assert.equal(await dialog.count(), 1);
  await press(5);
  await dialog.waitFor({ state: 'detached' });
});

const lost = (route) => route.abort('connectionrefused');
const refused = (status, code) => (route) => route.fulfill({ status, contentType: 'application/problem+json', body: JSON.stringify({ status, code, title: code }) });

/** each has the requests of a page to a path answered by these, one after the other, the last of them for good, and returns the keys that they came under. */
async function each(page, path, ...hows) {
  const keys = [];
  await page.route((url) => url.pathname === path, (route) => {
    keys.push(route.request().headers()['idempotency-key']);
    return hows[Math.min(keys.length, hows.length) - 1](route);
  });
  return keys;
}

onPage('what is sent again, as its answer was lost, is done once and has the answer that was kept', async (page) => {
  const keys = await each(page, '/v1/queues/type-lost/configure', async (route) => { await route.fetch(); await lost(route); },
    refused(409, 'idempotency-in-progress'), refused(429, 'rate-limited'), refused(422, 'of a dry run'), (route) => route.continue());
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("Set one")');
  const dialog = page.locator('dialog');
  await field(dialog, 'Id').fill('type-lost');
  await field(dialog, 'Cap').fill('7');
  const send = dialog.locator('button[type=submit]');
  for (const [button, says] of [[send, 'The server does not answer'], [send, 'idempotency-in-progress'], [send, 'rate-limited'], [dialog.locator('button:text-is("Dry run")'), 'of a dry run']]) {
    await button.click();
    await dialog.locator(`.failure:has-text("${says}")`).waitFor();
  }
  await send.click();
  await dialog.waitFor({ state: 'detached' });
  assert.deepEqual(keys.map((k) => k === keys[0]), [true, true, true, false, true]);
});

onPage('what somebody else has made since an answer was lost is not replaced', async (page) => {
  await each(page, '/v1/queues/type-race/configure', lost);
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("Set one")');
  const dialog = page.locator('dialog');
  await field(dialog, 'Id').fill('type-race');
  await field(dialog, 'Cap').fill('7');
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('.failure:has-text("The server does not answer")').waitFor();
  await page.unrouteAll();
  assert.equal((await server.ask('/v1/queues/type-race/configure', { cap: 3 })).status, 200);
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('[role=alert]:has-text("type-race exists")').or(page.locator('h1:has-text("type-race")')).waitFor();
  assert.deepEqual(await dataOf('queues/type-race'), { cap: 3 });
});

onPage('what is made in a namespace that one has taken out of the field is found again, too', async (page) => {
  await each(page, '/v1/queues/type-nowhere/configure', async (route) => { await route.fetch(); await lost(route); }, (route) => route.continue());
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("Set one")');
  const dialog = page.locator('dialog');
  await field(dialog, 'Id').fill('type-nowhere');
  await field(dialog, 'Namespace').fill('');
  await field(dialog, 'Cap').fill('7');
  const send = dialog.locator('button[type=submit]');
  await send.click();
  await dialog.locator('.failure:has-text("The server does not answer")').waitFor();
  await send.click();
  await dialog.waitFor({ state: 'detached' });
  await page.waitForSelector('h1:has-text("type-nowhere")');
});

onPage('a batch goes again under its key until it is decided, with another reason and after a dry run, too', async (page) => {
  const sent = [];
  const how = [lost, refused(429, 'rate-limited'), refused(422, 'validation'), refused(422, 'of a dry run'), lost, refused(409, 'another'), refused(422, 'idempotency-key-reused'), lost];
  await page.route((url) => url.pathname === '/v1/batches', (route) => {
    sent.push(route.request().headers()['idempotency-key']);
    return how[sent.length - 1](route);
  });
  await page.goto(server.url + '/ui/machines/repository');
  await page.selectOption('.bulk select', 'configure');
  const dialog = page.locator('dialog');
  const press = async (name, says) => {
    await dialog.locator(`button:text-is("${name}")`).click();
    await dialog.locator(`.failure:has-text("${says}")`).waitFor();
  };
  await press('Send', 'The server does not answer');
  await field(dialog, 'Reason').fill('again');
  await press('Send', 'rate-limited');
  await press('Send', 'validation');
  await field(dialog, 'Concurrency').fill('3');
  await press('Dry run', 'of a dry run');
  await press('Send', 'The server does not answer');
  await field(dialog, 'Concurrency').fill('');
  await press('Send', 'another');
  await field(dialog, 'Concurrency').fill('3');
  await press('Send', 'idempotency-key-reused');
  await press('Send', 'The server does not answer');
  const which = sent.map((key) => key && [...new Set(sent.filter(Boolean))].indexOf(key));
  assert.deepEqual(which, [0, 0, 0, undefined, 1, 0, 1, 2]);
});

onPage('a batch of a command that replaces says so', async (page) => {
  for (const [command, says] of [['configure', 1], ['pause', 0]]) {
    await page.goto(server.url + '/ui/machines/repository');
    await page.selectOption('.bulk select', command);
    await page.locator('dialog .fields').first().waitFor();
    assert.equal(await page.locator('dialog >> text=This replaces what each of them has').count(), says, command);
  }
});

onPage('what is not chosen is as it is only where it stays so', async (page) => {
  const mode = { type: 'string', enum: ['fast', 'slow'] };
  const schema = { type: 'object', properties: { mode, group: { type: 'object', properties: { inner: mode, other: mode } } } };
  const none = (name) => field(page.locator('dialog'), name).locator('option').first().textContent();
  for (const [replaces, says] of [[true, 'Default'], [false, 'As it is']]) {
    await answers(page, { '/v1/machines/repository/commands/configure': { replaces, schema } });
    await page.goto(server.url + '/ui/machines/repository');
    await page.selectOption('.bulk select', 'configure');
    assert.equal(await none('Mode'), says);
    await page.click('dialog button:text-is("Show fields")');
    assert.equal(await none('Inner'), 'As it is', 'a group that is left out can stay');
    await field(page.locator('dialog'), 'Other').selectOption('fast');
    assert.equal(await none('Inner'), says);
  }
  await answers(page, { '/v1/machines/queue/commands/configure': { replaces: true, schema } });
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("Set one")');
  await page.click('dialog button:text-is("Show fields")');
  assert.equal(await none('Inner'), 'Default');
});

onPage('what is taken out of a group is there no more', async (page) => {
  const { spec } = await dataOf('services/hello');
  assert.equal((await server.ask('/v1/services/hello/update', { spec, policy: { drift: 'reapply' } })).status, 200);
  assert.deepEqual((await dataOf('services/hello')).policy, { drift: 'reapply' });
  await act(page, 'service/hello', 'update', (d) => field(d, 'Drift').selectOption({ label: 'Default' }));
  assert.deepEqual((await dataOf('services/hello')).policy ?? {}, {});
});

onPage('what is required can be no, or empty', async (page) => {
  const path = 'services/pay/instances/pay-0';
  assert.equal((await server.ask('/v1/register', { serviceName: 'pay', instanceId: 'pay-0', nodeAddress: '10.0.0.1:8080', labels: { team: 'web' } })).status, 202);
  await server.state('/v1/' + path, 'active.healthy');
  await act(page, 'instance/pay/pay-0', 'maintenance', (d) => d.getByLabel('Enabled').check());
  assert.ok((await dataOf(path)).maintenance);
  await act(page, 'instance/pay/pay-0', 'maintenance', () => {});
  assert.equal((await dataOf(path)).maintenance, undefined, 'an end is what nobody has marked');
  await act(page, 'instance/pay/pay-0', 'maintenance', async (d) => {
    await d.getByLabel('Enabled').check();
    await d.getByLabel('Enabled').uncheck();
  });
  await act(page, 'instance/pay/pay-0', 'label', (d) => d.getByLabel('Remove').click());
  assert.deepEqual((await server.ask('/v1/' + path)).body.labels ?? {}, {});
});

onPage('what is no JSON is not sent, nor what else a form cannot say', async (page) => {
  const asked = [];
  page.on('request', (r) => { if (r.method() === 'POST') asked.push(r.url() + ' ' + r.postData()); });
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("create task")');
  const dialog = page.locator('dialog');
  await field(dialog, 'repository').fill('shop');
  await field(dialog, 'Id').fill('broken');
  await field(dialog, 'Type').fill('llm');
  await field(dialog, 'Pool').fill('gpu');
  const params = field(dialog, 'Params');
  const tried = async () => { for (const name of ['Dry run', 'create']) await dialog.locator(`button:text-is("${name}")`).click(); };
  await params.fill('{"n": 1}');
  await params.fill('{"n": 12');
  await tried();
  await params.fill('{"n": 12}');
  const labels = dialog.locator('fieldset:has(> legend:has-text("Labels"))');
  for (const value of ['web', 'api']) {
    await labels.locator('button:text-is("Add")').click();
    await labels.getByLabel('Name').last().fill('team');
    await labels.getByLabel('Value').last().fill(value);
  }
  await tried();
  await labels.getByLabel('Name').last().fill('');
  await tried();
  assert.deepEqual(asked, [], 'it would be another one than the one that is shown');
  await labels.getByLabel('Name').last().fill('tier');
  await dialog.locator('button:text-is("Dry run")').click();
  await dialog.locator('text=nothing was stored').waitFor();
  await dialog.locator('button[type=submit]').click();
  await dialog.waitFor({ state: 'detached' });
  const { data, labels: has } = (await server.ask('/v1/repositories/shop/tasks/broken')).body;
  assert.deepEqual([data.params, has], [{ n: 12 }, { team: 'web', tier: 'api' }]);
});

onPage('a row that is taken away takes its own text with it', async (page) => {
  await answers(page, { '/v1/machines/queue/commands/configure': { schema: { type: 'object', properties: { list: { type: 'array', items: {} }, map: { type: 'object', additionalProperties: { type: 'object' } } } } } });
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("Set one")');
  for (const kind of ['List', 'Map']) {
    const group = page.locator(`dialog fieldset:has(> legend:has-text("${kind}"))`);
    for (const text of ['{"n":1}', '{"n":2}']) {
      await group.locator('button:text-is("Add")').click();
      await group.locator('textarea').last().fill(text);
    }
    await group.getByLabel('Remove').first().click();
    assert.deepEqual(await group.locator('textarea').evaluateAll((all) => all.map((a) => a.value)), ['{"n":2}'], kind);
  }
});

onPage('a group with what is not JSON yet is not hidden', async (page) => {
  await answers(page, { '/v1/machines/queue/commands/configure': { schema: { type: 'object', properties: { group: { type: 'object', properties: { params: {} } } } } } });
  let sent;
  await each(page, '/v1/queues/type-cut/configure', (route) => { sent = route.request().postDataJSON(); return lost(route); });
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("Set one")');
  const dialog = page.locator('dialog');
  await field(dialog, 'Id').fill('type-cut');
  await dialog.locator('button:text-is("Show fields")').click();
  await field(dialog, 'Params').fill('{"n": 1}');
  await field(dialog, 'Params').fill('{"n": 12');
  await dialog.locator('button:text-is("Hide fields")').click();
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('.field-error:has-text("Not JSON yet")').waitFor();
  assert.equal(sent, undefined, 'the value before would be another one than the one that is shown');
  await field(dialog, 'Params').fill('{"n": 12}');
  await dialog.locator('button:text-is("Hide fields")').click();
  await field(dialog, 'Params').waitFor({ state: 'detached' });
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('.failure:has-text("The server does not answer")').waitFor();
  assert.deepEqual(sent, { group: { params: { n: 12 } } });
});

onPage('a number that a browser would round goes as it is written, or was', async (page) => {
  const big = '12345678901234567890';
  let sent;
  const queue = await (await fetch(server.url + '/v1/queues/type-llm')).text();
  await page.route((url) => url.pathname === '/v1/queues/type-llm', (route) => route.fulfill({ contentType: 'application/json', body: queue.replace(/"data":\{/, `"data":{"odd":{"n":${big},"s":"${big}"},"whole":-${big},`) }));
  await page.route((url) => url.pathname === '/v1/queues/type-llm/configure', (route) => { sent = route.request().postData(); return lost(route); });
  await answers(page, { '/v1/machines/queue/commands/configure': { replaces: true, schema: { type: 'object', properties: { odd: {}, whole: { type: 'integer' }, limit: { type: 'integer' }, share: { type: 'number' } } } } });
  await page.goto(server.url + '/ui/entities/queue/type-llm?tab=raw');
  await page.locator('.json', { hasText: `"whole": -${big}` }).waitFor();
  await page.locator('.heading-actions button', { hasText: 'configure' }).click();
  const dialog = page.locator('dialog');
  await field(dialog, 'Limit').fill('9007199254740993');
  await field(dialog, 'Share').fill('0.10');
  assert.equal(await field(dialog, 'Whole').inputValue(), '-' + big);
  assert.match(await field(dialog, 'Odd').inputValue(), new RegExp(`"n": ${big},\\s*"s": "${big}"`));
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('.failure:has-text("The server does not answer")').waitFor();
  assert.equal(sent, `{"odd":{"n":${big},"s":"${big}"},"whole":-${big},"limit":9007199254740993,"share":0.1}`);
  await field(dialog, 'Odd').fill(`[${big}, 1.50, "${big}"]`);
  sent = undefined;
  await dialog.locator('button[type=submit]').click();
  await until('it is sent', async () => sent);
  assert.match(sent, new RegExp(`^{"odd":\\[${big},1.5,"${big}"\\]`));
});

onPage('a number is what is typed, also on the way to it', async (page) => {
  await answers(page, { '/v1/machines/queue/commands/configure': { schema: { type: 'object', properties: { share: { type: 'number' }, limit: { type: 'integer' } } } } });
  let sent;
  await each(page, '/v1/queues/type-part/configure', (route) => { sent = route.request().postDataJSON(); return lost(route); });
  await page.goto(server.url + '/ui/tasks');
  await page.click('button:text-is("Set one")');
  const dialog = page.locator('dialog');
  await field(dialog, 'Id').fill('type-part');
  const type = async (name, text, says = text) => {
    await field(dialog, name).fill('');
    await field(dialog, name).pressSequentially(text);
    assert.equal(await field(dialog, name).inputValue(), says);
  };
  for (const text of ['0.05', '-0.0050', '1e-7', '100.00']) await type('Share', text);
  await type('Share', '0.05');
  await type('Limit', '007');
  await dialog.locator('button[type=submit]').click();
  await dialog.locator('.failure:has-text("The server does not answer")').waitFor();
  assert.deepEqual(sent, { share: 0.05, limit: 7 });
});
