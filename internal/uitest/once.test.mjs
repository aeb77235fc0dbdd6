// Each page of the console once, in a real browser, for `make test`: without an error, a request to elsewhere, a breach of the policy, or a finding of axe. All else that is to hold is in `make test-ui`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { answers, furnish, outbox, tenants } from './systems.mjs';
import { desktop, loaded, openPage, stage, violations } from './server.mjs';

let server;
let browser;
stage(async (s, b) => {
  server = s;
  browser = b;
  await server.state('/v1/services/hello', 'READY');
  await furnish(server);
  await server.ask('/v1/batches', { machine: 'service', command: 'refresh' }, { 'Idempotency-Key': 'once' });
});

const pages = [
  '/ui/', '/ui/machines', '/ui/machines/service', '/ui/entities/service/hello', '/ui/entities/task/nightly/report', '/ui/services', '/ui/discovery', '/ui/discovery/pay', '/ui/tasks', '/ui/tasks/nightly/report', '/ui/operations', '/ui/operations/batch.default.once', '/ui/nodes', '/ui/workers', '/ui/dead-letters', '/ui/streams',
];
const given = ['/ui/outbox', '/ui/tenants', '/ui/tenants/database_provisioning/acme/move']; // those of systems that need databases, with answers that are made up

test('each route is one of these pages', () => {
  const routes = [...readFileSync(new URL('../../api/console/web/app/pages.js', import.meta.url), 'utf8').matchAll(/^ {2}\['(\/ui[^']*)'/gm)].map(([, pattern]) => pattern);
  assert.ok(routes.length > 10);
  for (const pattern of routes) assert.ok([...pages, ...given].some((path) => new RegExp(`^${pattern.replace(/\{\w+\}/g, '[^/]+')}/?$`).test(path)), pattern);
});

async function hold(paths, by) {
  const context = await browser.newContext({ viewport: desktop, reducedMotion: 'reduce' });
  await answers(context, by);
  const page = await openPage(context, server, paths[0]);
  for (const path of paths) {
    await page.goto(server.url + path);
    await page.waitForSelector('h1');
    await loaded(page, path);
    assert.equal(await page.locator('main .failure[role=alert]').count(), 0, path);
    assert.deepEqual(await violations(page), [], path);
    assert.deepEqual(page.wrong, [], path);
  }
  await context.close();
}

test('each page of the console loads, and everybody can use it', () => hold(pages, {}));

test('so do those of systems that need databases', () => hold(given, { ...outbox(), ...tenants() }));
