// Tenants: the sessions that give each a database or an instance of its own, where each of them is, and what is wrong where one does not go on.
import { html, useEffect } from '../app/base.js';
import { get, isName, machines, may, ofMachines, pageOf } from '../app/api.js';
import { openCommand } from '../app/command.js';
import { useNamespace } from '../app/frame.js';
import { Icon } from '../app/icons.js';
import { useReload } from '../app/live.js';
import { Empty, Heading, Stat, State, drawn, kindOf } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { useResource } from '../app/store.js';
import { Table } from '../app/table.js';
import { Since, count } from '../app/time.js';

const kinds = { database_provisioning: 'database', instance_provisioning: 'instance' };

/** sessionURL is the page of a session. */
export const sessionURL = (m, e) => pageOf(['tenants', m.name, e.parent, e.id], e);

/** way are the steps of a session in order: the states on the way to ready. */
export function way(m) {
  const names = m.states.map((s) => s.name);
  return m.states.slice(0, names.indexOf('ready'));
}

/** stepOf is where a session is on its way, or where it failed. */
export const stepOf = (m, e) => way(m).findIndex((s) => s.name === (e.state === 'failed' ? e.data?.failedFrom : e.state));

const phases = { executing: '', retry_wait: 'waits to try again', paused: 'paused', waiting_approval: 'waits for approve', held: 'held', rolling_back: 'is taken back', rollback_stuck: 'could not be taken back whole', rotating: 'gets new credentials' };

/** phaseText is what goes on within a state, in words. */
export const phaseText = (data) => phases[data?.phase] ?? data?.phase ?? '';

export default function Tenants() {
  const ns = useNamespace();
  const [query, setQuery] = useQuery();
  const q = (query.get('q') || '').toLowerCase();
  const it = ofMachines(useResource(async (signal) => {
    const ms = (await machines()).filter((m) => kinds[m.name]);
    const list = (m, parent) => get('/v1/' + m.plural, { namespace: ns, include: 'data', limit: 500, parent }, signal).then(({ data }) => ({ more: !!data.nextCursor, rows: data.items.map((e) => ({ ...e, m, data: e.entity?.data || {}, lastError: e.entity?.lastError })) }));
    const lists = await Promise.all(ms.map(async (m) => {
      const first = await list(m);
      if (!first.more || !isName(q)) return first;
      const has = new Set(first.rows.map((e) => e.namespace + e.parent + e.id)); // the one of that name may be behind them
      return { more: true, rows: [...first.rows, ...(await list(m, q)).rows.filter((e) => !has.has(e.namespace + e.parent + e.id))] };
    }));
    return { ms, more: lists.some((l) => l.more), rows: lists.flatMap((l) => l.rows).sort((a, b) => (a.parent === b.parent ? (a.id < b.id ? -1 : 1) : a.parent < b.parent ? -1 : 1)) };
  }, [ns]));
  useEffect(() => {
    if (!it.data?.more) return undefined;
    const timer = setTimeout(it.reload, 250);
    return () => clearTimeout(timer);
  }, [q]);
  useReload(it.reload, { machine: 'database_provisioning' }, 1000);
  useReload(it.reload, { machine: 'instance_provisioning' }, 1000);
  const d = it.data;
  const is = { failed: (r) => kindOf(r.m, r.state) === 'failed' || r.data.phase === 'rollback_stuck', waiting: (r) => ['waiting_approval', 'paused', 'held'].includes(r.data.phase) && !['failed', 'ready'].includes(r.state), moving: (r) => kindOf(r.m, r.state) === 'moving', ready: (r) => r.state === 'ready' };
  const only = query.get('only');
  const rows = (d?.rows || []).filter((r) => (!is[only] || is[only](r)) && r.parent.toLowerCase().includes(q));
  const n = (name) => d.rows.filter(is[name]).length;
  const columns = [
    { text: 'Tenant', cell: (r) => `${r.parent}/${r.id}` },
    { text: 'Gets', cell: (r) => kinds[r.m.name] },
    { text: 'State', cell: (r) => html`<${State} m=${r.m} state=${r.state} />` },
    { text: 'Way', cell: (r) => html`<${Way} r=${r} />` },
    { text: 'In it for', cell: (r) => html`<${Since} at=${r.since} />` },
    { text: 'What goes on', cell: (r) => (r.state === 'failed' && r.lastError ? html`<span class="bad cell-text" title=${r.lastError.message}>${r.lastError.code}: ${r.lastError.message}</span>` : html`<span class="soft">${phaseText(r.data)}</span>`) },
    { text: 'Has', cell: (r) => html`<span class="mono small">${r.data.primaryDomain || r.data.database?.name || ''}</span>${r.data.version && html` <span class="label">${r.data.version}</span>`}` },
  ];
  const stat = (name, label, icon, hint, tone) => html`<${Stat} label=${label} icon=${icon} value=${d && n(name)} hint=${hint} tone=${d && n(name) ? tone : undefined} href=${'/ui/tenants?only=' + name} />`;
  return html`<${Heading} title="Tenants" sub="Each tenant's way into a database or an instance of its own, step by step, and back.">
      ${d && may('operate') && d.ms.map((m) => m.commands.filter((c) => c.birth && !c.report).slice(0, 1).map((command) => html`<button type="button" class="button button-main" onClick=${() => openCommand({ m, command })}>${command.name} ${kinds[m.name]}</button>`))}</${Heading}>
    ${drawn(it, () => html`
      <div class="stats">${stat('moving', 'On their way', 'spin', 'sessions')}${stat('waiting', 'Wait', 'pause', 'for somebody', 'warn')}${stat('failed', 'Failed', 'alert', 'need somebody', 'bad')}${stat('ready', 'Ready', 'check', 'have what they asked for')}</div>
      <div class="toolbar"><input class="input" type="search" aria-label="Tenants with" placeholder="Tenant has…" value=${query.get('q') || ''} onInput=${(e) => setQuery({ q: e.target.value || null })} spellcheck=${false} autocomplete="off" />
        ${only && html`<button type="button" class="chip" onClick=${() => setQuery({ only: null })}>only ${only}<${Icon} name="close" /></button>`}<span class="faint small num">${count(rows.length)} ${rows.length === 1 ? 'session' : 'sessions'}${d.more ? ' of the first 500 of each kind; others are found by their whole names' : ''}</span></div>
      <${Table} label="Sessions" columns=${columns} rows=${rows} keyOf=${(r) => r.m.name + r.namespace + r.parent + r.id} hrefOf=${(r) => sessionURL(r.m, r)}
        empty=${html`<${Empty} icon="tenant" title=${d.rows.length ? 'Nothing matches' : 'No tenant has a session yet'}><p>${d.rows.length ? 'Take a filter away to see more.' : 'A request begins one.'}</p></${Empty}>`} />`)}`;
}

function Way({ r }) {
  const all = way(r.m);
  const at = stepOf(r.m, r);
  if (at < 0) return html`<span class="faint small">${r.state === 'ready' ? 'all steps' : '–'}</span>`;
  return html`<span class="progress-cell"><progress class=${'meter' + (r.state === 'failed' ? ' meter-bad' : '')} max=${all.length} value=${at} aria-label="Steps done"></progress> <span class="num small">${at} of ${all.length}</span></span>`;
}
