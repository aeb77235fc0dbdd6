// Figures of the web console, in Debian's Chromium without a screen: `make bench-ui`. Beside each stands the same of a page with nothing but a heading, or rows: that is what the browser and the machine take themselves,
// so figures of a machine that has other work can be judged, too. Processor time is that of all processes of the browser. Where there is an aim, it stands behind the figure, and whether it is met: what that is worth, who knows the hour has to judge.
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { desktop, launch, loaded, openPage, Server, until } from './server.mjs';

const entities = Number(process.env.ENTITIES || 100000);
const senders = 64;
const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
const print = (what, text) => console.log(`${what.padEnd(64)} ${text}`);

/** aim is what a figure is to be, and whether it is. */
const aim = (text, met) => `; the aim is ${text}: ${met ? 'met' : 'missed'}`;

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

/** scrolled scrolls for 10 s, and tells of the frames and of the processor time that each took; and how many the browser itself has drawn meanwhile, as its trace says. */
async function scrolled(page, what) {
  const before = spent(browserPid);
  await browser.startTracing(page, { categories: ['disabled-by-default-devtools.timeline.frame', 'devtools.timeline.frame'] });
  const s = await scroll(page, 10);
  const { traceEvents } = JSON.parse(String(await browser.stopTracing()));
  print(what, `${tell(s)}, ${((spent(browserPid) - before) * 1000 / s.frames).toFixed(1)} ms of processor time each`);
  const drawn = traceEvents.filter((e) => e.name === 'DrawFrame').map((e) => e.ts / 1000).sort((a, b) => a - b);
  const dropped = traceEvents.filter((e) => e.name === 'DroppedFrame').length;
  const rate = (drawn.length - 1) * 1000 / (drawn.at(-1) - drawn[0]);
  print('   as the trace of the browser has it', `${rate.toFixed(1)} frames/s drawn, ${dropped} of ${drawn.length + dropped} dropped, the longest wait ${Math.round(Math.max(...drawn.slice(1).map((t, i) => t - drawn[i])))} ms${aim('60 frames/s', rate > 59)}`);
}

const tell = ({ rate, late, worst, frames }) => `${rate.toFixed(1)} frames/s, ${late} of ${frames} later than 25 ms, the worst ${Math.round(worst)} ms`;

/** loads loads a page with a cache of its own some times, so that all is loaded, and tells the medians. */
async function loads(url, ready) {
  const all = [];
  for (let i = 0; i < 9; i++) {
    const context = await browser.newContext({ viewport: desktop });
    const page = await context.newPage();
    const before = spent(browserPid);
    await page.goto(url);
    await ready(page);
    const drawn = await page.evaluate(() => performance.now());
    const paint = await until('first paint', () => page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime));
    const files = await page.evaluate(() => [...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')].filter((r) => r.name.includes('/ui/')).map((r) => r.transferSize));
    all.push({ paint, drawn, time: (spent(browserPid) - before) * 1000, bytes: files.reduce((a, b) => a + b, 0), requests: files.length });
    await context.close();
  }
  return Object.fromEntries(Object.keys(all[0]).map((name) => [name, Math.round(middle(all.map((a) => a[name])))]));
}

// A page with a heading, and at /rows one with as many plain rows as a list of the console draws, which is scrolled in the same way.
const floor = createServer((q, res) => {
  res.setHeader('Content-Type', 'text/html');
  const rows = Array.from({ length: 40 }, (_, i) => `<tr style="height:44px"><td>${i}<td>row<td>of<td>text`).join('');
  res.end(`<!doctype html><title>bare</title><h1>Bare</h1>${q.url === '/rows' ? `<div class="table-frame" style="height:600px;overflow:auto"><table>${rows}</table><div style="height:4400000px"></div></div>` : ''}`);
});
await new Promise((resolve) => floor.listen(0, '127.0.0.1', resolve));
floor.url = `http://127.0.0.1:${floor.address().port}/`;
const server = await Server.start();
const browser = await launch();
const browserPid = started().find((pid) => /chromium/.test(readFileSync(`/proc/${pid}/cmdline`, 'utf8')));
try {
  const home = await loads(server.url + '/ui/', (page) => page.waitForSelector('.stat-value >> text=/\\d/'));
  const bare = await loads(floor.url, async () => {});
  const beside = (name, unit) => `${home[name]} ${unit} (a bare page ${bare[name]} ${unit}; medians of 9)`;
  print('first contentful paint of the home page, nothing cached', beside('paint', 'ms') + aim('300 ms', home.paint <= 300));
  print('   until its numbers are there', beside('drawn', 'ms'));
  print('   processor time until then', beside('time', 'ms'));
  print('what the home page loads of the console, as transferred', `${(home.bytes / 1024).toFixed(1)} KiB in ${home.requests} requests`);

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
  await scrolled(page, 'a list is scrolled while it loads, 10 s');
  began = Date.now();
  const end = Date.now() + 300000;
  let rows = 0;
  while (rows < entities && Date.now() < end) {
    rows = await page.evaluate(() => { // to the end of what is loaded: that loads more
      const f = document.querySelector('.table-frame');
      f.scrollTop = f.scrollHeight;
      return Math.round(f.scrollHeight / 44) - 1; // the page says 100K where there are so many
    });
    await pause(20);
  }
  print('rows that were loaded to its end', `${rows} in ${Math.round((Date.now() - began) / 1000)} s`);
  await page.evaluate((n) => { document.querySelector('.table-frame').scrollTop = n * 22; }, rows);
  await scrolled(page, `${rows} rows are scrolled from the middle, 10 s`);
  const plain = await context.newPage();
  await plain.goto(floor.url + 'rows');
  await scrolled(plain, '   a bare page with a table');
  await plain.close();
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
    print(`50 changes a second beside ${what}: share of a core, page`, `${load.page.toFixed(1)} % (at rest ${rest.page.toFixed(1)} %; ${taken} of 500 were made)${aim('under 10 %', load.page < 10)}`);
    print('   the browser with all its processes', `${load.all.toFixed(1)} % (at rest ${rest.all.toFixed(1)} %)`);
    await quiet.close();
  }
} finally {
  await browser.close();
  await server.end();
  floor.close();
}
