// The way of one who has read nothing: only what the page itself says is followed, and the browser is not left. It breaks the sample, sees why, rolls it back, finds the event that told it, and drains the node.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { desktop, openPage, stage } from './server.mjs';

let server;
let browser;
stage(async (s, b) => {
  server = s;
  browser = b;
  await server.state('/v1/services/hello', 'READY');
});

const slow = { timeout: 60000 };

test('one who has read nothing breaks the sample, sees why, rolls it back, finds the event that told it, and drains the node', async () => {
  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/');
  page.setDefaultTimeout(60000);
  const button = (name) => page.getByRole('button', { name, exact: true });
  const dialog = page.getByRole('dialog');
  const send = async (name) => { await dialog.getByRole('button', { name, exact: true }).click(); await dialog.waitFor({ state: 'detached' }); };

  await page.getByRole('heading', { name: 'Begin here' }).waitFor(); // home says what to do
  await page.getByRole('link', { name: 'Open hello' }).click();
  await page.getByRole('heading', { name: 'hello' }).waitFor();

  await button('update').click();
  await dialog.getByLabel('Image').first().fill('no-such-image');
  await send('update');
  const why = page.locator('.failure').first();
  await page.locator('.facts .state-failed').waitFor(slow);
  assert.match(await why.textContent(), /no-such-image/, 'it says why');

  const broke = page.getByRole('listitem').filter({ hasText: 'no-such-image' }).filter({ has: page.locator('.bad') }).first();
  await broke.getByRole('button', { name: /^version \d+ · \d+ events?$/ }).click();
  const [, version] = (await broke.getByRole('button', { name: /^version/ }).textContent()).match(/version (\d+)/);
  const events = JSON.parse(await broke.getByRole('group', { name: `Events of version ${version}` }).textContent());
  const told = events.find((e) => e.class === 'error');
  assert.ok(JSON.stringify(told.data).includes('no-such-image'), 'the event that told it');

  await broke.getByRole('link', { name: 'link to it' }).click();
  await page.reload(); // the address is one to pass on: the event is open
  await page.getByRole('group', { name: `Events of version ${version}` }).filter({ hasText: told.id }).waitFor();

  await button('rollback').click();
  await send('rollback');
  await page.locator('.facts .state-steady', { hasText: 'READY' }).waitFor(slow);
  assert.equal((await server.ask('/v1/services/hello')).body.state, 'READY');

  await page.getByRole('link', { name: 'Nodes' }).click();
  await button('Drain').click();
  const name = await dialog.locator('b.mono').textContent();
  await dialog.getByRole('textbox').fill(name);
  await send('Drain');
  await page.locator('.state', { hasText: 'draining' }).waitFor(slow);
  assert.equal((await server.ask('/v1/nodes')).body.items[0].state, 'draining');
  await button('Uncordon').click();
  await page.locator('.state', { hasText: 'live' }).waitFor(slow);
  assert.deepEqual(page.wrong, []);
  await context.close();
});
