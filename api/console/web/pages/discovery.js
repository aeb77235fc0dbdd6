// The catalogue: the services that have instances, how many of them clients find now, and which are on their way in or out.
import { html } from '../app/base.js';
import { get, machine, ofMachines, pageOf } from '../app/api.js';
import { useNamespace } from '../app/frame.js';
import { useReload } from '../app/live.js';
import { Empty, Heading, Mark, Stat, drawn, kindOf } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { useResource } from '../app/store.js';
import { Table } from '../app/table.js';
import { count } from '../app/time.js';

/** serviceURL is the page of a service's instances. */
export const serviceURL = (s) => pageOf(['discovery', s.service], s);

/** short is the state of an instance without the group that it is in: active.healthy is healthy. */
export const short = (state) => String(state).split('.').pop();

export function Health({ m, state, n }) {
  const kind = state.endsWith('.healthy') ? 'steady' : state.endsWith('.flapping') ? 'failed' : kindOf(m, state) === 'steady' ? 'moving' : kindOf(m, state);
  return html`<${Mark} kind=${kind} title=${m?.states.find((s) => s.name === state)?.doc}>${short(state)}${n !== undefined && html` <span class="num">${count(n)}</span>`}</${Mark}>`;
}

export default function Discovery() {
  const ns = useNamespace();
  const [query, setQuery] = useQuery();
  const m = ofMachines(useResource(() => machine('instance'), [])).data;
  const it = useResource((signal) => get('/v1/discover', { namespace: ns }, signal).then(({ data }) => data.services), [ns]);
  useReload(it.reload, { machine: 'instance' }, 1000);
  const all = it.data || [];
  const q = (query.get('q') || '').toLowerCase();
  const only = query.get('only');
  const lacks = (s) => s.instances > 0 && s.found + s.draining < s.instances;
  const rows = all.filter((s) => s.service.toLowerCase().includes(q) && (query.get('ended') || s.instances > 0) && (only !== 'lacking' || lacks(s)) && (only !== 'none' || (s.instances > 0 && !s.found)) && (only !== 'protected' || s.protected));
  const sum = (name) => all.reduce((n, s) => n + s[name], 0);
  const ended = all.filter((s) => !s.instances).length;
  const chip = (id, text, n) => html`<button type="button" class="chip" aria-pressed=${(only || '') === id} onClick=${() => setQuery({ only: id || null })}>${text}<span class="num faint">${count(n)}</span></button>`;
  const columns = [
    { text: 'Service', cell: (s) => s.service },
    { text: 'Found', cell: (s) => html`<span class="share share-cell" aria-hidden="true"><span class="share-steady" style=${{ flexGrow: s.found }}></span><span class="share-moving" style=${{ flexGrow: s.draining }}></span><span class="share-failed" style=${{ flexGrow: Math.max(0, s.instances - s.found - s.draining) }}></span></span> <span class="num">${count(s.found)} <span class="faint">of ${count(s.instances)}</span></span>` },
    { text: 'Health', cell: (s) => html`<span class="cell-states">${Object.entries(s.states).filter(([state, n]) => n > 0 && state !== 'deregistered').map(([state, n]) => html`<${Health} key=${state} m=${m} state=${state} n=${n} />`)}</span>` },
    { text: 'Marks', cell: (s) => (s.protected ? html`<${Mark} kind="failed" title="Too many instances were lost at once: none of them is removed, and what is found may be gone">self-preservation</${Mark}>` : s.instances > 0 && !s.found ? html`<span class="bad">nobody is found</span>` : '') },
    ...(ns === '*' ? [{ text: 'Namespace', cell: (s) => html`<span class="soft">${s.namespace}</span>` }] : []),
  ];
  return html`<${Heading} title="Discovery" sub="Services and their instances, as clients find them at this moment." />
    ${drawn(it, () => html`
      <div class="stats">
        <${Stat} label="Services" icon="service" value=${all.length - ended} hint=${ended ? `and ${count(ended)} without instances` : 'with instances'} />
        <${Stat} label="Found" icon="check" value=${sum('found')} hint=${`of ${count(sum('instances'))} instances`} />
        <${Stat} label="Draining" icon="spin" value=${sum('draining')} hint="end, and get nothing new" />
        <${Stat} label="Nobody found" icon="alert" value=${all.filter((s) => s.instances && !s.found).length} tone=${all.some((s) => s.instances && !s.found) ? 'bad' : undefined} hint="services with instances" />
      </div>
      <div class="toolbar"><input class="input" type="search" aria-label="Names with" placeholder="Name has…" value=${query.get('q') || ''} onInput=${(e) => setQuery({ q: e.target.value || null })} spellcheck=${false} autocomplete="off" />
        ${chip('', 'All', all.length - ended)}${chip('lacking', 'Some not found', all.filter(lacks).length)}${chip('none', 'Nobody found', all.filter((s) => s.instances && !s.found).length)}${chip('protected', 'Self-preservation', all.filter((s) => s.protected).length)}
        ${ended > 0 && html`<label class="check small"><input type="checkbox" checked=${!!query.get('ended')} onChange=${(e) => setQuery({ ended: e.target.checked ? '1' : null })} /><span>Also without instances</span></label>`}</div>
      <${Table} label="Services" columns=${columns} rows=${rows} keyOf=${(s) => s.namespace + '.' + s.service} hrefOf=${serviceURL}
        empty=${html`<${Empty} icon="service" title=${all.length ? 'Nothing matches' : 'No service has instances yet'}><p>${all.length ? 'Take a filter away to see more.' : 'They register themselves, or with POST /v1/register.'}</p></${Empty}>`} />`)}`;
}
