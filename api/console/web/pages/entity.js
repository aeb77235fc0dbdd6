// An entity: what it is now, the diagram with the way that it took, what may be done with it, and how it came here. Live.
import { html, useMemo, useRef, useState } from '../app/base.js';
import { entityPath, get, keyOf, machine, machineURL } from '../app/api.js';
import { commandsOf, openCommand } from '../app/command.js';
import { Diagram } from '../app/diagram.js';
import { Icon } from '../app/icons.js';
import { announce, useChanges, useReload } from '../app/live.js';
import { Card, Copy, Failure, Heading, Json, Labels, Loading, State, Tabs } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { useResource } from '../app/store.js';
import { Since, Time } from '../app/time.js';
import { Timeline, useTimeline } from './timeline.js';
import { Data } from './data.js';
import { Revisions } from './revisions.js';

export default function Entity({ params }) {
  const [query] = useQuery();
  const ns = query.get('namespace') || 'default';
  const at = { id: params.id, parent: params.parent, namespace: ns };
  const it = useResource(async () => {
    const m = await machine(params.machine);
    return { m, path: await entityPath(m, at) };
  }, [params.machine, params.id, params.parent]);
  const crumbs = [{ href: machineURL(params.machine), text: it.data?.m.plural || params.machine }];
  if (it.error) return html`<${Heading} title=${params.id} crumbs=${crumbs} /><${Failure} error=${it.error} retry=${it.reload} />`;
  return it.data ? html`<${Shown} ...${it.data} at=${at} crumbs=${crumbs} />` : html`<${Loading} />`;
}

function Shown({ m, path, at, crumbs }) {
  const [query] = useQuery();
  const key = keyOf(at);
  const seen = useRef([]); // versions that this page has shown, for the comparison of data
  const it = useResource(async (signal) => {
    const { data, etag } = await get(path, { namespace: at.namespace }, signal);
    if (!seen.current.some((v) => v.revision === data.revision)) seen.current = [...seen.current.slice(-49), data];
    return { e: data, etag };
  }, [path, at.namespace]);
  const line = useTimeline(path, at.namespace, query.get('seq'));
  const state = useRef();
  useReload(() => { it.reload(); line.more(); }, { machine: m.name, key }, 1000); // of what changes many times a second, one of its states each second is enough to look at
  useChanges((changes) => {
    const last = changes?.[changes.length - 1]?.item?.state;
    if (last && last !== state.current) announce(`${at.id} is ${last}`);
  }, { machine: m.name, key });
  const gone = useMemo(() => [...new Set((line.items || []).filter((e) => e.from !== e.to && e.to).map((e) => (e.from || '') + '→' + e.to))].sort().join(' '), [line.items]);
  const here = it.data?.e.state;
  const diagram = useMemo(() => html`<${Diagram} m=${m} at=${here} path=${new Set(gone.split(' '))} label=${`The way of ${at.id} through the states of ${m.name}`} />`, [m, here, gone, at.id]);
  if (it.error && !it.data) {
    return html`<${Heading} title=${at.id} crumbs=${crumbs} /><${Failure} error=${it.error} retry=${it.reload} />
      ${it.error.status === 404 && html`<div class="card"><p>There is no ${m.name} <b class="mono">${at.id}</b>${at.parent ? html` of <b class="mono">${at.parent}</b>` : ''} in the namespace <b class="mono">${at.namespace}</b>. It may be in another namespace, or was never there.</p><p><a class="button" href=${machineURL(m)}>See all ${m.plural}</a></p></div>`}`;
  }
  if (!it.data) return html`<${Heading} title=${at.id} crumbs=${crumbs} /><${Loading} />`;
  const { e, etag } = it.data;
  state.current = e.state;
  const tab = query.get('tab') || 'timeline';
  const href = (id) => '?' + new URLSearchParams([...[...query].filter(([k]) => k !== 'tab' && k !== 'seq'), ['tab', id]]);
  const conditions = e.conditions || [];
  const tabs = [{ id: 'timeline', text: 'Timeline', href: href('timeline'), badge: line.items && line.items.length + (line.earlier ? '+' : '') }, ...(m.name === 'service' ? [{ id: 'revisions', text: 'Revisions', href: href('revisions') }] : []), { id: 'data', text: 'Data', href: href('data') },
    { id: 'conditions', text: 'Conditions', href: href('conditions'), badge: conditions.length || undefined }, { id: 'raw', text: 'JSON', href: href('raw') }];
  return html`<${Heading} title=${e.id} crumbs=${[...crumbs, ...(e.parent ? [{ href: machineURL(m, { parent: e.parent }), text: e.parent }] : [])]}
      sub=${html`<span class="facts"><${State} m=${m} state=${e.state} /> <span>for <${Since} at=${e.since} /></span> <${Labels} labels=${e.labels} toHref=${(label) => machineURL(m, { label })} />${e.dropped && html`<span class="pill">data dropped: it ended long ago</span>`}</span>`}>
      <${Actions} m=${m} e=${e} etag=${etag} />
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
      : tab === 'raw' ? html`<${Json} value=${e} label="The entity as JSON" />`
        : html`<${Timeline} m=${m} line=${line} seq=${query.get('seq')} />`}
      </div>
      <${Facts} m=${m} e=${e} path=${path} />
    </div>`;
}

/** Actions are the commands: those that can be sent now, and those that cannot with the reason. */
function Actions({ m, e, etag }) {
  const [more, setMore] = useState(false);
  const all = commandsOf(m, e);
  const now = all.filter((c) => !c.why);
  const button = ({ command, why }, first) => html`<button key=${command.name} type="button" class=${'button' + (command.destructive ? ' button-warn' : first ? ' button-main' : '')} disabled=${!!why} title=${why || command.doc} onClick=${() => openCommand({ m, command, entity: e, etag })}>${command.name}</button>`;
  const shown = now.slice(0, 4);
  const rest = [...now.slice(4), ...all.filter((c) => c.why)];
  return html`${shown.map((c, i) => button(c, i === 0 && !c.command.destructive))}
    ${rest.length > 0 && html`<div class="menu"><button type="button" class="button" aria-expanded=${more} onClick=${() => setMore(!more)}>More<${Icon} name="down" /></button>
      ${more && html`<ul class="menu-list" onKeyDown=${(k) => k.key === 'Escape' && setMore(false)}>${rest.map((c) => html`<li key=${c.command.name}>
        <button type="button" class="menu-item" disabled=${!!c.why} onClick=${() => { setMore(false); openCommand({ m, command: c.command, entity: e, etag }); }}><b>${c.command.name}</b><span class="small">${c.why || c.command.doc}</span></button></li>`)}</ul>`}</div>`}`;
}

function Conditions({ conditions }) {
  if (!conditions.length) return html`<p class="faint pad">It has no conditions.</p>`;
  return html`<div class="table-frame" tabindex="0" role="region" aria-label="Conditions"><table class="table"><thead><tr><th scope="col">Condition</th><th scope="col">Status</th><th scope="col">Reason</th><th scope="col">Since</th></tr></thead>
    <tbody>${conditions.map((c) => html`<tr key=${c.type}><th scope="row">${c.type}</th><td><span class=${'state state-' + (c.status === 'True' ? 'steady' : c.status === 'False' ? 'failed' : 'ended')}><${Icon} name=${c.status === 'True' ? 'check' : c.status === 'False' ? 'alert' : 'help'} />${c.status}</span></td>
      <td class="wrap">${c.reason}${c.message && html`<br /><span class="faint small">${c.message}</span>`}</td><td><${Time} at=${c.lastTransitionTime} /></td></tr>`)}</tbody></table></div>`;
}

function Facts({ m, e, path }) {
  const timers = Object.entries(e.timers || {});
  const effects = Object.entries(e.effects || {});
  const row = (name, value) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  return html`<aside class="entity-side" aria-label="Facts">
    <${Card} title="Facts"><dl class="facts-list">
      ${row('Namespace', e.namespace)}${e.parent && row(m.parent, e.parent)}${row('Created', html`<${Time} at=${e.createdAt} />`)}${row('Changed', html`<${Time} at=${e.updatedAt} />`)}
      ${row('Version', html`<span class="num">${e.version}</span>`)}${row('Generation', html`<span class="num">${e.generation}</span>`)}${row('Revision', html`<span class="num">${e.revision}</span>`)}
    </dl></${Card}>
    ${effects.length > 0 && html`<${Card} title="Under way"><dl class="facts-list">${effects.map(([name, a]) => row(name, html`attempt ${a.try} · ${a.nextTry ? html`the next <${Time} at=${a.nextTry} />` : html`since <${Time} at=${a.since} />`}${a.error && html`<p class="small bad wrap">${a.error.code}: ${a.error.message}</p>`}`))}</dl></${Card}>`}
    ${timers.length > 0 && html`<${Card} title="Timers"><dl class="facts-list">${timers.map(([name, t]) => row(name, html`<${Time} at=${t.at} />`))}</dl></${Card}>`}
    <${Card} title="The same elsewhere"><div class="stack"><${Copied} text=${`curl -s '${location.origin}${path}?namespace=${e.namespace}'`} /><${Copied} text=${`instar ${m.name} events ${e.parent ? e.parent + '/' : ''}${e.id} --namespace ${e.namespace}`} /></div></${Card}>
  </aside>`;
}

const Copied = ({ text }) => html`<div class="command"><code tabindex="0">${text}</code><${Copy} text=${text} label=${'Copy: ' + text} /></div>`;
