// What the tests of the console stand on: a server of theirs (start, kill), a browser, pages that tell what went wrong in them, and what holds of every page.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { chromium } from 'playwright-core';

const program = process.env.INSTAR || new URL('../../bin/instar', import.meta.url).pathname;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** patience is how long, in ms, something may take that comes about by itself. */
const patience = Number(process.env.PATIENCE || 60) * 1000;

/** freePort is a port of this machine that nobody has. */
export const freePort = () => new Promise((resolve) => {
  const s = createServer().listen(0, '127.0.0.1', () => { const { port } = s.address(); s.close(() => resolve(port)); });
});

/** until asks until something is there, for a minute at most, or PATIENCE in seconds. */
export async function until(what, ask) {
  const end = Date.now() + patience;
  for (;;) {
    const answer = await ask().catch(() => undefined);
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`not within ${patience / 1000} s: ${what}`);
    await pause(100);
  }
}

/** Server is a program that is started in a directory of its own. */
export class Server {
  static async start(...flags) {
    const s = new Server();
    s.dir = mkdtempSync(join(tmpdir(), 'instar-ui-'));
    s.flags = ['dev', '--data', join(s.dir, 'data'), '--http', `127.0.0.1:${await freePort()}`, '--nats', `127.0.0.1:${await freePort()}`, '--log-level', 'warn', '--stop-services', ...flags];
    s.url = 'http://' + s.flags[s.flags.lastIndexOf('--http') + 1];
    await s.again();
    return s;
  }

  async again() {
    this.child = spawn(program, this.flags, { stdio: ['ignore', 'ignore', 'inherit'], cwd: this.dir });
    this.gone = new Promise((resolve) => this.child.once('exit', resolve));
    await until('the server is ready', async () => (await fetch(this.url + '/readyz')).ok);
  }

  async kill(signal = 'SIGKILL') {
    this.child.kill(signal);
    await this.gone;
  }

  async end() {
    await this.kill('SIGTERM');
    rmSync(this.dir, { recursive: true, force: true });
  }

  /** ask is a request of the API; a body makes it a command. */
  async ask(path, body, headers = {}) {
    const res = await fetch(this.url + path, body === undefined ? { headers } : { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json', ...headers } });
    return { status: res.status, body: await res.json() };
  }

  /** state waits until an entity is in one of these states. */
  state(path, ...states) {
    return until(`${path} is ${states}`, async () => { const { body } = await this.ask(path); return states.includes(body.state) && body; });
  }
}

/** launch starts a browser that asks for nothing by itself. */
export const launch = () => chromium.launch({
  timeout: 3 * patience,
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

export const desktop = { width: 1280, height: 860 };
export const phone = { width: 390, height: 844 };

/** openPage opens a page, and notes in wrong what should not be: errors, requests to elsewhere, what the policy forbids, dialogs. Answers of 4xx to what a test asks for are none. */
export async function openPage(context, server, path) {
  const page = await context.newPage();
  if (process.env.PATIENCE) page.setDefaultTimeout(patience);
  page.wrong = [];
  page.on('pageerror', (e) => page.wrong.push('error: ' + e.stack));
  page.on('dialog', (d) => { page.wrong.push('dialog: ' + d.message()); d.dismiss(); });
  page.on('console', (m) => {
    if (m.type() === 'error' && !/status of 4\d\d|ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/.test(m.text())) page.wrong.push('console: ' + m.text());
  });
  page.on('request', (r) => { if (!r.url().startsWith(server.url + '/')) page.wrong.push('left the origin: ' + r.url()); });
  await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (e) => console.error('policy: ' + e.violatedDirective + ' ' + e.blockedURI)));
  await page.goto(server.url + path);
  await page.waitForSelector('h1');
  return page;
}

/** violations are what axe finds on a page, as texts. It is put there by the protocol of the browser, which the policy of the page does not concern. */
export async function violations(page) {
  const has = await page.evaluate(() => 'axe' in window);
  if (!has) await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ['violations'] }));
  return violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200)).join(' | ')}`);
}

const shots = process.env.SHOTS || new URL('shots', import.meta.url).pathname;
let server;
let browser;

/** stage has a server and a browser for the tests of a file; furnish(server, browser) gives the server what they look at. */
export function stage(furnish) {
  before(async () => {
    server = await Server.start();
    browser = await launch();
    await furnish(server, browser);
  });
  after(async () => { await browser?.close(); await server?.end(); });
}

/** loaded waits until a page has all that it asked for. */
export const loaded = (page, path) => until(`${path} has loaded`, async () => (await page.locator('[aria-busy=true]').count()) === 0);

/**
 * hold tests that each of pages, {name: path}, is as it should be at the width of a desktop and of a phone, light and dark, and takes pictures of it. A page is loaded once, and looked at four times.
 * furnish(context, name) comes before a page is opened, ready(page) when it has loaded, look(page, name) at last.
 */
export function hold(what, pages, { furnish = async () => {}, ready = async () => {}, look = async () => {} } = {}) {
  for (const [name, path] of Object.entries(pages)) {
    test(`${what}, ${name}, holds wide and narrow, light and dark`, async () => {
      mkdirSync(shots, { recursive: true });
      const context = await browser.newContext({ viewport: desktop, reducedMotion: 'reduce' }); // what fades in has its colours at once
      await furnish(context, name);
      const page = await openPage(context, server, path);
      await loaded(page, path);
      await ready(page);
      for (const [width, viewport] of Object.entries({ desktop, phone })) {
        await page.setViewportSize(viewport);
        for (const colorScheme of ['light', 'dark']) {
          await page.emulateMedia({ colorScheme });
          await page.screenshot({ path: `${shots}/${name}-${width}-${colorScheme}.png` });
          assert.deepEqual(await violations(page), [], `${width}, ${colorScheme}`);
        }
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `it is ${wide} px wider than the ${width}`);
      }
      await look(page, name);
      assert.deepEqual(page.wrong, []);
      await context.close();
    });
  }
}
