// An entity: what it is now, the diagram with the way that it took, what may be done with it, and how it came here. Live.
import { html, useMemo, useRef } from '../app/base.js';
import { atLeast, entityPath, get, keyOf, machine, machineURL, namespaceOf, ofMachines } from '../app/api.js';
import { Actions } from '../app/command.js';
import { Diagram } from '../app/diagram.js';
import { read, written } from '../app/form.js';
import { Icon } from '../app/icons.js';
import { announce, useChanges, useReload } from '../app/live.js';
import { Card, Command, Failure, Heading, Json, Labels, Mark, Plain, Rows, State, Tabs, drawn } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { useResource } from '../app/store.js';
import { Since, Time } from '../app/time.js';
import { Timeline, useTimeline } from './timeline.js';
import { Data } from './data.js';
import { Revisions } from './revisions.js';

export default function Entity({ params }) {
  const [query] = useQuery();
  const ns = namespaceOf(query);
  const at = { id: params.id, parent: params.parent, namespace: ns };
  const it = ofMachines(useResource(async () => {
    const m = await machine(params.machine);
    return { m, path: await entityPath(m, at) };
  }, [params.machine, params.id, params.parent]));
  const crumbs = [{ href: machineURL(params.machine), text: it.data?.m.plural || params.machine }];
  return it.data ? html`<${Shown} ...${it.data} at=${at} crumbs=${crumbs} />` : html`<${Heading} title=${params.id} crumbs=${crumbs} />${drawn(it)}`;
}

const most = 5000; // changes of state that are read, from the first on: with the newest events they are the way in the diagram

/** changing are the types of events that tell of all changes of state: one of each edge that makes one, of those that are kept long if it has one. */
function changing(m) {
  const long = new Set(m.events.filter((e) => e.class === 'state').map((e) => e.name));
  return [...new Set(m.edges.filter((e) => e.from !== e.to && e.emit).map(({ emit }) => emit.find((name) => long.has(name)) || emit[0]))];
}

function Shown({ m, path, at, crumbs }) {
  const [query] = useQuery();
  const key = keyOf(at);
  const seen = useRef([]); // versions that this page has shown, for the comparison of data
  const it = useResource(async (signal) => {
    const { data, etag, text } = await get(path, { namespace: at.namespace }, signal);
    if (!seen.current.some((v) => v.revision === data.revision)) seen.current = [...seen.current.slice(-49), data];
    return { e: data, etag, text };
  }, [path, at.namespace]);
  const line = useTimeline(path, at.namespace, query.get('seq'));
  const state = useRef();
  useReload(() => { it.reload(); line.more(); }, { machine: m.name, key }, 1000); // of what changes many times a second, one of its states each second is enough to look at
  useChanges((changes) => {
    const last = changes?.[changes.length - 1]?.item?.state;
    if (last && last !== state.current) announce(`${at.id} is ${last}`);
  }, { machine: m.name, key });
  const before = useResource((signal) => atLeast(most, path + '/events', { namespace: at.namespace, type: changing(m) }, signal, 'after'), [path, at.namespace]).data?.items;
  const gone = useMemo(() => [...new Set([...(before || []), ...(line.items || [])].filter((e) => e.from !== e.to && e.to).map((e) => (e.from || '') + '→' + e.to))].sort().join(' '), [before, line.items]);
  const here = it.data?.e.state;
  const diagram = useMemo(() => html`<${Diagram} m=${m} at=${here} path=${new Set(gone.split(' '))} label=${`The way of ${at.id} through the states of ${m.name}`} />`, [m, here, gone, at.id]);
  if (!it.data) {
    return html`<${Heading} title=${at.id} crumbs=${crumbs} />${drawn(it)}
      ${it.error?.status === 404 && html`<div class="card"><p>There is no ${m.name} <b class="mono">${at.id}</b>${at.parent ? html` of <b class="mono">${at.parent}</b>` : ''} in the namespace <b class="mono">${at.namespace}</b>. It may be in another namespace, or was never there.</p><p><a class="button" href=${machineURL(m)}>See all ${m.plural}</a></p></div>`}`;
  }
  const { e, etag } = it.data;
  state.current = e.state;
  const tab = query.get('tab') || 'timeline';
  const href = (id) => '?' + new URLSearchParams([...[...query].filter(([k]) => k !== 'tab' && k !== 'seq'), ['tab', id]]);
  const conditions = e.conditions || [];
  const tabs = [{ id: 'timeline', text: 'Timeline', href: href('timeline'), badge: line.items && line.items.length + (line.earlier ? '+' : '') }, ...(m.name === 'service' ? [{ id: 'revisions', text: 'Revisions', href: href('revisions') }] : []), { id: 'data', text: 'Data', href: href('data') },
    { id: 'conditions', text: 'Conditions', href: href('conditions'), badge: conditions.length || undefined }, { id: 'raw', text: 'JSON', href: href('raw') }];
  return html`<${Heading} title=${e.id} crumbs=${[...crumbs, ...(e.parent ? [{ href: machineURL(m, { parent: e.parent }), text: e.parent }] : [])]}
      sub=${html`<span class="facts"><${State} m=${m} state=${e.state} /> <span>for <${Since} at=${e.since} /></span> <${Labels} labels=${e.labels} toHref=${(label) => machineURL(m, { label })} />${e.dropped && html`<span class="pill">data dropped: it ended long ago</span>`}</span>`}>
      <${Actions} m=${m} e=${e} etag=${etag} done=${() => line.more() /* a refusal changes nothing else */} />
    </${Heading}>
    <${Failure} error=${it.error} small />
    ${e.lastError && html`<div class="failure failure-small"><${Icon} name="alert" /><div><b>What went wrong last</b><p>${e.lastError.message || e.lastError.detail || JSON.stringify(e.lastError)}</p>${e.lastError.code && html`<p class="small faint mono">${e.lastError.code}</p>`}</div></div>`}
    <${Card}>${diagram}</${Card}>
    <div class="entity">
      <div class="entity-main">
        <${Tabs} tabs=${tabs} active=${tab} label="What is known of it" />
        ${tab === 'data' ? html`<${Data} e=${e} versions=${seen.current} /> `
    : tab === 'conditions' ? html`<${Conditions} conditions=${conditions} />`
      : tab === 'revisions' && m.name === 'service' ? html`<${Revisions} path=${path} e=${e} />`
      : tab === 'raw' ? html`<${Json} value=${written(read(it.data.text), 2)} label="The entity as JSON" />`
        : html`<${Timeline} m=${m} line=${line} seq=${query.get('seq')} />`}
      </div>
      <${Facts} m=${m} e=${e} path=${path} />
    </div>`;
}

function Conditions({ conditions }) {
  if (!conditions.length) return html`<p class="faint pad">It has no conditions.</p>`;
  return html`<${Plain} label="Conditions" heads="Condition|Status|Reason|Since" rows=${conditions.map((c) => html`<tr key=${c.type}><th scope="row">${c.type}</th><td><${Mark} kind=${{ True: 'steady', False: 'failed' }[c.status] || 'ended'} icon=${{ True: 'check', False: 'alert' }[c.status] || 'help'}>${c.status}</${Mark}></td>
      <td class="wrap">${c.reason}${c.message && html`<br /><span class="faint small">${c.message}</span>`}</td><td><${Time} at=${c.lastTransitionTime} /></td></tr>`)} />`;
}

function Facts({ m, e, path }) {
  const all = (of, show) => Object.fromEntries(Object.entries(of || {}).map(([name, v]) => [name, show(v)]));
  const num = (n) => html`<span class="num">${n}</span>`;
  return html`<aside class="entity-side" aria-label="Facts">
    <${Card} title="Facts"><${Rows} of=${{ Namespace: e.namespace, ...(e.parent && { [m.parent]: e.parent }), Created: html`<${Time} at=${e.createdAt} />`, Changed: html`<${Time} at=${e.updatedAt} />`, Version: num(e.version), Generation: num(e.generation), Revision: num(e.revision) }} /></${Card}>
    ${e.effects && html`<${Card} title="Under way"><${Rows} of=${all(e.effects, (a) => html`attempt ${a.try} · ${a.nextTry ? html`the next <${Time} at=${a.nextTry} />` : html`since <${Time} at=${a.since} />`}${a.error && html`<p class="small bad wrap">${a.error.code}: ${a.error.message}</p>`}`)} /></${Card}>`}
    ${e.timers && html`<${Card} title="Timers"><${Rows} of=${all(e.timers, (t) => html`<${Time} at=${t.at} />`)} /></${Card}>`}
    <${Card} title="The same elsewhere"><div class="stack"><${Command} text=${`curl -s '${location.origin}${path}?namespace=${e.namespace}'`} /><${Command} text=${`instar ${m.name} events ${e.parent ? e.parent + '/' : ''}${e.id} --namespace ${e.namespace}`} /></div></${Card}>
  </aside>`;
}
