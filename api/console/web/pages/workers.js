// Workers: what waits in the queue of each effect, whether anybody asks for it, and the programs that say who they are.
import { html, useRef } from '../app/base.js';
import { get, machineURL } from '../app/api.js';
import { Command, Heading, Mark, Plain, Stat, drawn } from '../app/parts.js';
import { every, useResource } from '../app/store.js';
import { Time, count } from '../app/time.js';

/** away says that tasks wait which nobody asks for. Queued tasks of a pool are not among them: they are sent to its queue when somebody asks. */
const away = (q) => q.waiting > 0 && !q.asking && !q.taken;

export default function Workers() {
  const before = useRef(new Map()); // how many each queue had handed out, some seconds ago: that is its rate
  const it = every(useResource((signal) => get('/v1/workers', {}, signal).then(({ data }) => data.items.map((q) => {
    const was = before.current.get(q.queue);
    const at = Date.now();
    if (!was || at - was.at > 20000) before.current.set(q.queue, { at, n: q.delivered });
    return { ...q, rate: was && at - was.at > 1000 ? Math.max(0, q.delivered - was.n) / ((at - was.at) / 1000) : undefined };
  })), []), 2000);
  return html`<${Heading} title="Workers" sub="Effects are what machines want done in the outside world. Each kind has a queue, from which the nodes take, or programs of yours." />
    ${drawn(it, (all) => html`<${Queues} all=${all} />`)}`;
}

function Queues({ all }) {
  const sum = (f) => all.reduce((n, q) => n + f(q), 0);
  const lost = all.filter(away).length;
  const one = all.find((q) => q.stream);
  return html`
      <div class="stats">
        <${Stat} label="Waiting" icon="clock" value=${sum((q) => q.waiting)} hint="sent, and not taken yet" />
        <${Stat} label="Under way" icon="spin" value=${sum((q) => q.taken)} hint="taken, and not done yet" />
        <${Stat} label="Workers" icon="worker" value=${new Set(all.flatMap((q) => q.workers.map((w) => w.id || q.queue + w.name))).size} hint="programs elsewhere that were heard" />
        <${Stat} label="Without anybody" icon="alert" value=${lost} tone=${lost ? 'bad' : undefined} hint=${lost ? 'queues in which tasks wait' : 'what was sent is asked for'} />
      </div>
      <${Plain} label="Queues" heads="Work|Is|>Waiting|>Under way|>Rate|>Delivered again|Last taken|Who does it" rows=${all.map((q) => html`<${Queue} key=${q.queue} q=${q} />`)} none="No machine here has effects." />
      <div class="stack"><p class="faint small">Whoever takes tasks of a pool with <code>client/worker</code> is listed by name; of others only their requests are seen. Tasks of a pool are sent to its queue while somebody asks for them; until then they are queued, on the page <a href="/ui/tasks">Tasks</a>.${one && ' To look into a queue:'}</p>${one && html`<${Command} text=${`nats consumer info ${one.stream} ${one.queue}`} />`}</div>`;
}

function Queue({ q }) {
  const [kind, text, title] = away(q) ? ['failed', 'waiting', 'Tasks wait, and nobody asks for them']
    : q.taken ? ['moving', 'working', 'Tasks are under way']
      : q.asking || q.workers.length ? ['steady', 'ready', 'Somebody asks for tasks'] : ['ended', 'idle', q.pool ? 'Nobody asks for tasks; those of the pool stay queued until somebody does: see the page Tasks' : 'Nobody asks for tasks, and none wait'];
  return html`<tr>
    <th scope="row">${q.machine ? html`<a class="in-text" href=${machineURL(q.machine)}>${q.machine}</a> <b class="mono">${q.effect}</b>${q.pool && html` <span class="label">pool ${q.pool}</span>`}` : html`<span class="mono">${q.queue}</span>`}</th>
    <td><${Mark} kind=${kind} title=${title}>${text}</${Mark}></td>
    <td class=${'cell-end num' + (away(q) ? ' bad' : '')}>${count(q.waiting)}</td><td class="cell-end num">${count(q.taken)}</td><td class="cell-end num" title="Handed out, within the last 20 seconds that this page looked">${q.rate === undefined ? '–' : `${q.rate.toFixed(q.rate < 10 ? 1 : 0)}/s`}</td><td class="cell-end num" title="Of those under way, how many were delivered before">${count(q.redelivered)}</td>
    <td>${q.deliveredAt ? html`<${Time} at=${q.deliveredAt} />` : html`<span class="faint">never</span>`}</td>
    <td>${q.workers.length ? html`<ul>${q.workers.map((w) => html`<li class="small"><b class="mono">${w.name}</b> ${w.version && html`<span class="label">${w.version}</span> `}<span class="faint num">${w.concurrency ? `${w.running} of ${w.concurrency} · ` : ''}heard <${Time} at=${w.heardAt} /></span></li>`)}</ul>`
    : html`<span class="faint">${!q.pool ? 'the nodes' : q.asking ? 'somebody who does not say who' : 'nobody'}</span>`}</td>
  </tr>`;
}
