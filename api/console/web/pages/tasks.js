// Tasks: what runs and how far it is, what waits and in which order, and the limits that both are under.
import { html, useState } from '../app/base.js';
import { entityURL, get, machine, machineURL, may, ofAll, ofMachines, pageOf } from '../app/api.js';
import { openCommand } from '../app/command.js';
import { useNamespace } from '../app/frame.js';
import { Icon } from '../app/icons.js';
import { useReload } from '../app/live.js';
import { Heading, Mark, Plain, Stat, drawn } from '../app/parts.js';
import { useResource } from '../app/store.js';
import { Since, Time, count } from '../app/time.js';

/** logURL is the page of a task's log. */
export const logURL = (e) => pageOf(['tasks', e.parent, e.id], e);

/** taskPath is a task by its own name alone: what the commands and reads of tasks take. */
export const taskPath = (e) => `/v1/tasks/${encodeURIComponent(e.parent + '.' + e.id)}`;

/** span reads a duration of Go, in ms. */
const span = (text) => [...String(text).matchAll(/([\d.]+)(h|ms|m|s)/g)].reduce((ms, [, n, u]) => ms + n * { h: 3600000, m: 60000, s: 1000, ms: 1 }[u], 0);

const most = 200; // rows of each kind

const list = (path, query, signal) => get(path, { include: 'data', ...query }, signal).then(({ data }) => ({ more: !!data.nextCursor, items: data.items.filter((i) => i.entity).map((i) => ({ ...i, data: i.entity.data || {} })) }));

/** configured are the entries of a kind that are there; none where its machine is not. */
const configured = (path, namespace, signal) => list(path, { namespace, limit: 500 }, signal).then((l) => ({ ...l, items: l.items.filter((i) => i.state !== 'deleted') }), (e) => { if (e.status === 404) return { items: [] }; throw e; });

/** load has what is of a namespace; of all are the limits that concern all of them, and how many tasks these count. */
async function load(ns, signal) {
  const of = (state) => list('/v1/tasks', { namespace: ns, state, limit: most, orderBy: 'since' }, signal);
  const counts = (namespace) => get('/v1/machines/task/counts', { namespace }, signal).then(({ data }) => data.states);
  const [running, queued, queues, mine, all] = await Promise.all([of('running'), of('queued'), configured('/v1/queues', '*', signal), counts(ns), counts('*')]);
  const cluster = queues.items.find((q) => q.id === 'cluster');
  return { running, queued, cluster, queues: queues.items.filter((q) => q !== cluster && (ns === '*' || q.namespace === ns)), counts: mine, all };
}

/** turn puts what waits in the order within its repository: a priority counts as one interval of aging. Of a part of what waits nobody knows the places: what came later may be before it. */
function turn(queued, cluster, part) {
  const aging = span(cluster?.data.aging || '1m') || 60000;
  const due = (t) => Date.parse(t.data.queuedAt || t.since) + (t.data.priority || 5) * aging;
  const sorted = [...queued].sort((a, b) => (Math.abs(due(a) - due(b)) < 1000 ? (a.data.sortOrder || 0) - (b.data.sortOrder || 0) : due(a) - due(b)));
  const seen = new Map();
  return sorted.map((t) => {
    const of = t.namespace + '.' + t.parent;
    seen.set(of, (seen.get(of) || 0) + 1);
    return { ...t, place: part ? '–' : seen.get(of) };
  });
}

export default function Tasks() {
  const ns = useNamespace();
  const ms = ofMachines(useResource(async () => ({ task: await machine('task'), queue: await machine('queue').catch(() => undefined) }), [])).data;
  const it = useResource((signal) => load(ns, signal), [ns]);
  useReload(it.reload, { machine: 'task' }, 1000);
  useReload(it.reload, { machine: 'queue' }, 1000);
  const births = ms?.task.commands.filter((c) => c.birth && !c.report).slice(0, 1) || [];
  const cancel = (t) => openCommand({ m: ms.task, command: ms.task.commands.find((c) => c.name === 'cancel'), entity: t.entity, etag: `"${t.entity.revision}"` });
  return html`<${Heading} title="Tasks" sub="Work of repositories, started when its turn comes and every limit allows it.">
      <a class="button" href=${machineURL('task')}>All tasks<${Icon} name="right" /></a>
      ${may('operate') && births.map((c) => html`<button type="button" class="button button-main" onClick=${() => openCommand({ m: ms.task, command: c })}>${c.name} task</button>`)}</${Heading}>
    ${drawn(it, (d) => html`
      <div class="stats">
        <${Stat} label="Running" icon="spin" value=${d.counts.running} href=${machineURL('task', { state: 'running' })} hint="under way" />
        <${Stat} label="Queued" icon="clock" value=${d.counts.queued} href=${machineURL('task', { state: 'queued' })} hint="wait for their turn" />
        <${Stat} label="Failed" icon="alert" value=${d.counts.failed} href=${machineURL('task', { state: 'failed' })} tone=${d.counts.failed ? 'bad' : undefined} hint="for good" />
        <${Stat} label="Succeeded" icon="check" value=${d.counts.succeeded} href=${machineURL('task', { state: 'succeeded' })} hint="with a result" />
      </div>
      <h2>Running</h2>
      <${Plain} label="Running tasks" heads="Task|Progress|Type|Worker|>Attempt|For|<Do" none="Nothing runs." rows=${d.running.items.map((t) => html`<tr key=${t.namespace + t.parent + t.id}><th scope="row"><${Name} t=${t} /></th><td><${Progress} p=${t.data.progress} /></td><td>${t.data.type}</td><td>${t.data.progress?.worker || t.data.pool || 'nodes'}</td><td class="cell-end num">${t.data.attempt}</td><td><${Since} at=${t.data.startedAt || t.since} /></td>
        <td class="cell-end"><a class="button small" href=${logURL(t)} aria-label=${`Log of ${t.parent}/${t.id}`}>Log</a> ${may('operate') && html`<button type="button" class="button button-warn small" aria-label=${`Cancel ${t.parent}/${t.id}`} onClick=${() => cancel(t)}>Cancel</button>`}</td></tr>`)} />
      ${d.running.more && html`<p class="faint small">These are the first ${most}.</p>`}
      <${Repositories} d=${d} ns=${ns} />
      <h2>Waiting</h2>
      <${Plain} label="Waiting tasks" heads="Task|>Place|>Priority|Type|Pool|Queued|Not before|What is against it" none="Nothing waits." rows=${turn(d.queued.items, d.cluster, d.queued.more).map((t) => html`<tr key=${t.namespace + t.parent + t.id}><th scope="row"><${Name} t=${t} /></th><td class="cell-end num" title="Within its repository; repositories take turns by their weight">${t.place}</td><td class="cell-end num">${t.data.priority || 5}</td><td>${t.data.type}</td><td>${t.data.pool || 'nodes'}</td><td><${Time} at=${t.data.queuedAt || t.since} /></td><td>${t.data.notBefore && Date.parse(t.data.notBefore) > Date.now() ? html`<${Time} at=${t.data.notBefore} />` : ''}</td><td class="wrap"><${Why} t=${t} /></td></tr>`)} />
      ${d.queued.more && html`<p class="faint small">These are the ${most} that have waited longest; with more, their places are not known here.</p>`}
      <${Limits} d=${d} m=${ms?.queue} />`)}`;
}

const Name = ({ t }) => html`<a class="row-link" href=${logURL(t)}>${t.parent}/${t.id}</a>${t.data.title && html` <span class="faint small">${t.data.title}</span>`}`;

export function Progress({ p }) {
  if (!p) return html`<span class="faint">–</span>`;
  const percent = Math.max(0, Math.min(100, p.percent || 0));
  return html`<span class="progress-cell"><progress class="meter" max="100" value=${percent} aria-label="Progress"></progress> <span class="num small">${Math.round(percent)} %</span> <span class="faint small">${p.message}</span></span>`;
}

/** Why asks what is against a start, once it is pressed. */
export function Why({ t }) {
  const [text, setText] = useState();
  const ask = () => get(taskPath(t) + '/why', { namespace: t.namespace }).then(({ data }) => setText(data.why), (e) => setText(e.message));
  return html`<button type="button" class="button button-quiet small" aria-label=${`Why does ${t.parent}/${t.id} wait?`} onClick=${ask}>Why?</button>${text && html` <span class="small" role="status">${text}</span>`}`;
}

/** Repositories are those with a limit, or with something that runs: how many of their slots are taken. */
function Repositories({ d, ns }) {
  const all = useResource((signal) => configured('/v1/repositories', ns, signal), [ns]);
  useReload(all.reload, { machine: 'repository' }, 1000);
  const running = (r) => d.running.items.filter((t) => t.namespace === r.namespace && t.parent === r.id).length;
  const rows = (all.data?.items || []).map((r) => ({ ...r, n: running(r), slots: r.data.concurrency || 1 })).filter((r) => r.n || r.data.concurrency);
  if (!rows.length) return null;
  return html`<h2>Repositories</h2>
    <${Plain} label="Repositories" heads="Repository|Running|>Weight|State" rows=${rows.map((r) => html`<tr key=${r.namespace + r.id}><th scope="row"><a class="row-link" href=${entityURL('repository', r)}>${r.id}</a>${r.namespace !== 'default' && html` <span class="faint small">${r.namespace}</span>`}</th>
        <td><progress class="meter" max=${r.slots} value=${r.n} aria-label=${`Slots of ${r.id} that are taken`}></progress> <span class="num small">${count(r.n)}${d.running.more ? '+' : ''} of ${count(r.slots)}</span></td>
        <td class="cell-end num">${r.data.weight || 1}</td><td>${r.state}</td></tr>`)} />
    ${all.data.more && html`<p class="faint small">Of more than 500 repositories these are among the first.</p>`}`;
}

/** allows says what an entry allows, in words. */
function allows(q) {
  const s = q.data;
  const parts = [];
  if (s.limit) parts.push(`${count(s.limit)} at a time`);
  if (s.rate) parts.push(`${count(s.rate)} per ${s.interval || '1s'}`);
  if (s.cap) parts.push(`${count(s.cap)} may wait`);
  if (s.attempts) parts.push(`${s.attempts} attempts`);
  if (s.timeout) parts.push(`${s.timeout} each`);
  return parts.join(', ') || (q.id === 'cluster' ? '4 at a time' : 'everything');
}

/** under reports whether a task counts for an entry of its namespace. */
const under = (q, t) => q.namespace === t.namespace && (q.id === 'all' || q.id === 'type-' + t.data.type || q.id === 'pool-' + (t.data.pool || 'nodes'));

function Limits({ d, m }) {
  const cluster = d.cluster || (ofAll() && { id: 'cluster', namespace: 'default', state: '', data: { limit: 4 }, implied: true }); // whoever sees one namespace does not see whether it is set
  const configure = m?.commands.find((c) => c.name === 'configure');
  const send = (q, name) => openCommand({ m, command: m.commands.find((c) => c.name === name), entity: q.entity, etag: `"${q.entity.revision}"` });
  const of = (state, q) => (q === cluster ? count(d.all[state]) : `${count(d[state].items.filter((t) => under(q, t)).length)}${d[state].more ? '+' : ''}`);
  return html`<div class="source-head"><h2>Limits</h2>${configure && may('operate') && html`<button type="button" class="button small" onClick=${() => openCommand({ m, command: configure })}>Set one</button>`}</div>
    <${Plain} label="Limits" heads="For|Allows|>Running|>Waiting|State|<Do" none="None is set." rows=${[...(cluster ? [cluster] : []), ...d.queues].map((q) => html`<tr key=${q.namespace + q.id}><th scope="row">${q.implied ? html`<span class="mono small">cluster</span> <span class="faint small">unless it is set</span>` : html`<a class="row-link mono small" href=${entityURL('queue', q)}>${q.id}</a>`}${q.namespace !== 'default' && html` <span class="faint small">${q.namespace}</span>`}</th>
        <td class="wrap">${allows(q)}</td><td class="cell-end num">${of('running', q)}</td><td class="cell-end num">${of('queued', q)}</td>
        <td>${q.state === 'paused' ? html`<${Mark} kind="moving" icon="pause">paused</${Mark}> <span class="faint small">${q.data.paused?.reason}</span>` : !q.implied && html`<${Mark} kind="steady" icon="check">${q.state}</${Mark}>`}</td>
        <td class="cell-end">${!q.implied && may('operate') && html`<button type="button" class="button small" onClick=${() => send(q, q.state === 'paused' ? 'resume' : 'pause')}>${q.state === 'paused' ? 'Resume' : 'Pause'}</button>`}</td></tr>`)} />`;
}
