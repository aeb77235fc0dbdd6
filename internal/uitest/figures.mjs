// Figures of the web console, in Debian's Chromium without a screen: `make bench-ui`. It prints what it has measured, and judges nothing: that is for who reads it, and knows the hour.
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { desktop, launch, loaded, openPage, Server, until } from './server.mjs';

const entities = Number(process.env.ENTITIES || 100000);
const senders = 64;
const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
const print = (what, text) => console.log(`${what.padEnd(64)} ${text}`);

const fields = (pid) => readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /s, '').split(' ');
const processes = () => readdirSync('/proc').filter((n) => /^\d+$/.test(n)).map(Number);

/** started are the processes that this one has started. */
const started = () => processes().filter((pid) => { try { return Number(fields(pid)[1]) === process.pid; } catch { return false; } });

/** spent is the processor time, in seconds, that a process and those that it has started have used. Clock ticks are hundredths on Linux. */
function spent(root) {
  const all = new Map();
  for (const pid of processes()) {
    try {
      const f = fields(pid);
      all.set(pid, { parent: Number(f[1]), time: (Number(f[11]) + Number(f[12])) / 100 });
    } catch { /* it has ended */ }
  }
  const below = (pid) => { for (let p = pid; p > 1; p = all.get(p)?.parent) if (p === root) return true; return false; };
  return [...all].reduce((sum, [pid, p]) => sum + (below(pid) ? p.time : 0), 0);
}

/** each does something n times, by so many at once. */
async function each(n, f) {
  let next = 0;
  await Promise.all(Array.from({ length: senders }, async () => { while (next < n) await f(next++); }));
}

/** scroll scrolls a list for some seconds, a row for each frame, and tells of the frames. */
const scroll = (page, seconds) => page.evaluate((seconds) => new Promise((resolve) => {
  const frame = document.querySelector('.table-frame');
  const gaps = [];
  const began = performance.now();
  let last = began;
  requestAnimationFrame(function step(now) {
    gaps.push(now - last);
    last = now;
    frame.scrollTop += 44;
    if (now - began < seconds * 1000) requestAnimationFrame(step);
    else resolve({ rate: gaps.length / (now - began) * 1000, late: gaps.filter((g) => g > 25).length, worst: Math.max(...gaps), frames: gaps.length });
  });
}), seconds);

const tell = ({ rate, late, worst, frames }) => `${rate.toFixed(1)} frames/s, ${late} of ${frames} later than 25 ms, the worst ${Math.round(worst)} ms`;

const server = await Server.start();
const browser = await launch();
const browserPid = started().find((pid) => /chromium/.test(readFileSync(`/proc/${pid}/cmdline`, 'utf8')));
try {
  const paints = [];
  let bytes = 0;
  for (let i = 0; i < 9; i++) {
    const context = await browser.newContext({ viewport: desktop }); // a cache of its own: all is loaded
    const page = await openPage(context, server, '/ui/');
    paints.push(await until('first paint', () => page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime)));
    bytes = await page.evaluate(() => [...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')].filter((r) => r.name.includes('/ui/')).reduce((n, r) => n + r.transferSize, 0));
    await context.close();
  }
  print('first contentful paint of the home page, nothing cached', `${Math.round(middle(paints))} ms (median of ${paints.length})`);
  print('what the home page loads of the console, as transferred', `${(bytes / 1024).toFixed(1)} KB`);

  let began = Date.now();
  await each(entities, async (i) => {
    const { status } = await server.ask('/v1/register', { serviceName: `s-${i % 200}`, nodeAddress: '127.0.0.1:9', instanceId: `i-${i}` });
    if (status >= 300) throw new Error(`registration ${i} was answered with ${status}`);
  });
  print('instances that were registered for it', `${entities} in ${Math.round((Date.now() - began) / 1000)} s`);

  const context = await browser.newContext({ viewport: desktop });
  const page = await openPage(context, server, '/ui/machines/instance?namespace=*');
  await loaded(page, 'the list');
  await page.waitForSelector('.table-frame .row-link');
  print('a list is scrolled while it loads, 10 s', tell(await scroll(page, 10)));
  began = Date.now();
  const end = Date.now() + 300000;
  let rows = 0;
  while (rows < entities && Date.now() < end) {
    rows = await page.evaluate(() => { // to the end of what is loaded: that loads more
      const f = document.querySelector('.table-frame');
      f.scrollTop = f.scrollHeight;
      return Number((document.querySelector('.list > [role=status]')?.textContent || '').replace(/ of .*/, '').replace(/\D/g, ''));
    });
    await pause(20);
  }
  print('rows that were loaded to its end', `${rows} in ${Math.round((Date.now() - began) / 1000)} s`);
  await page.evaluate((n) => { document.querySelector('.table-frame').scrollTop = n * 22; }, rows);
  print(`${rows} rows are scrolled from the middle, 10 s`, tell(await scroll(page, 10)));
  print('memory of the page', `${Math.round(await page.evaluate(() => performance.memory.usedJSHeapSize) / 2 ** 20)} MB`);
  await context.close();

  let taken = 0;
  for (const [what, path] of [['the home page', '/ui/'], ['a list', '/ui/machines/instance?namespace=*'], ['an entity', '/ui/entities/instance/s-0/i-0']]) {
    const quiet = await browser.newContext({ viewport: desktop });
    const watched = await openPage(quiet, server, path);
    await watched.waitForSelector('.pill:has-text("Live")');
    await loaded(watched, path);
    const cdp = await quiet.newCDPSession(watched);
    await cdp.send('Performance.enable');
    const busy = async () => (await cdp.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value;
    const measure = async (rate) => {
      const was = { at: Date.now(), page: await busy(), all: spent(browserPid) };
      for (let n = 0; n < 10 * (rate || 1); n++) {
        const due = was.at + (n + 1) * 1000 / (rate || 1);
        if (rate) void server.ask('/v1/services/s-0/instances/i-0/label', { labels: { n: String(n) } }).then(({ status }) => { taken += status === 200 ? 1 : 0; }, () => {});
        await pause(Math.max(0, due - Date.now()));
      }
      const took = (Date.now() - was.at) / 1000;
      return { page: (await busy() - was.page) / took * 100, all: (spent(browserPid) - was.all) / took * 100 };
    };
    const rest = await measure(0);
    taken = 0;
    const load = await measure(50);
    print(`50 changes a second beside ${what}: share of a core, page`, `${load.page.toFixed(1)} % (at rest ${rest.page.toFixed(1)} %; ${taken} of 500 were made)`);
    print('   the browser with all its processes', `${load.all.toFixed(1)} % (at rest ${rest.all.toFixed(1)} %)`);
    await quiet.close();
  }
} finally {
  await browser.close();
  await server.end();
}
