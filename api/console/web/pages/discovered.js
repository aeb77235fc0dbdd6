// One service as its clients find it: its instances with their health, zone and weight, what was seen of them last, and the same for any moment of the past.
import { html, useEffect, useRef, useState } from '../app/base.js';
import { atLeast, entityURL, get, living, machine, namespaceOf, ofMachines } from '../app/api.js';
import { Dialog, open } from '../app/dialog.js';
import { Icon } from '../app/icons.js';
import { useReload } from '../app/live.js';
import { Card, Command, Empty, Failure, Heading, Json, Labels, Loading, Rows, Tabs } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { every, useMore, useResource } from '../app/store.js';
import { Table } from '../app/table.js';
import { Since, Time, ago, count, duration, exact } from '../app/time.js';
import { Health, short } from './discovery.js';

export default function Discovered({ params }) {
  const [query, setQuery] = useQuery();
  const { service } = params;
  const ns = namespaceOf(query);
  const at = Number.isFinite(Date.parse(query.get('at'))) ? query.get('at') : null;
  const path = '/v1/discover/' + encodeURIComponent(service);
  const ended = query.get('ended') || '';
  const it = ofMachines(useMore(async (least, signal) => {
    const m = await machine('instance');
    const of = await machine('service').catch(() => undefined);
    const query = { namespace: ns, parent: service, include: 'data', state: ended ? undefined : living(m) }; // those that have ended are kept for a day, and would be before those that are there
    const [found, list, own] = await Promise.all([get(path, { namespace: ns, include: 'draining' }, signal), atLeast(least, '/v1/instances', query, signal),
      of ? get('/v1/' + of.plural, { namespace: ns, idPrefix: service, limit: 1 }, signal).then(({ data }) => data.items[0]?.id === service) : false]);
    const weights = new Map((found.data.instances || []).map((i) => [i.instanceId, i]));
    return { m, own, found: found.data, weights, more: list.more, items: list.items.map((i) => ({ ...i, data: i.entity?.data || {}, now: weights.get(i.id) })) };
  }, [service, ns, ended]));
  useReload(it.reload, { machine: 'instance' }, it.rest);
  const past = useResource((signal) => (at ? get(path, { namespace: ns, include: 'draining', at }, signal).then(({ data }) => data) : Promise.resolve(null)), [service, ns, at]);
  const d = it.data;
  const beats = !at && d?.items.some(sends) ? d.items.length : 0; // for each that is shown, its heartbeat is asked for
  const heard = every(useResource(async (signal) => {
    if (!beats) return undefined;
    const all = new Map();
    for (let n = 0, cursor; n < beats && cursor !== ''; n += 500) { // a page is of so many instances, of which it has those that were heard
      const { data } = await get(`/v1/services/${encodeURIComponent(service)}/heartbeats`, { namespace: ns, limit: 500, cursor }, signal);
      for (const i of data.instances) all.set(i.instanceId, Date.now() - i.ageMillis);
      cursor = data.nextCursor || '';
    }
    return all;
  }, [service, ns, !!beats]), 2 * it.rest);
  const href = (changes) => '?' + new URLSearchParams(Object.entries({ namespace: ns === 'default' ? null : ns, ...changes }).filter(([, v]) => v));
  const tabs = [{ id: 'now', text: 'Now', href: href({}), badge: d && d.items.filter((i) => i.state !== 'deregistered').length + (d.more ? '+' : '') }, { id: 'past', text: 'In the past', href: href({ at: at || new Date(Math.floor(Date.now() / 1000) * 1000 - 600000).toISOString() }) }];
  return html`<${Heading} title=${service} crumbs=${[{ href: '/ui/discovery', text: 'Discovery' }]} sub=${ns === 'default' ? '' : `In the namespace ${ns}.`}>
      ${d?.own && html`<a class="button" href=${entityURL('service', { id: service, namespace: ns })}>The service<${Icon} name="right" /></a>`}</${Heading}>
    <${Failure} error=${it.error} retry=${it.reload} small=${!!d} />
    ${d?.found.protected && html`<div class="failure"><${Icon} name="alert" /><div><b>Self-preservation</b><p>Too many instances were lost at once: none of them is removed, and those that are shown may be gone.</p></div></div>`}
    ${d?.found.staleSeconds > 0 && html`<p class="bad small">This node hears nothing of the others: this is its state of ${Math.round(d.found.staleSeconds)} s ago.</p>`}
    <${Tabs} tabs=${tabs} active=${at ? 'past' : 'now'} label="When" />
    ${!d ? !it.error && html`<${Loading} />` : at ? html`<${Past} at=${at} past=${past} now=${d} setQuery=${setQuery} service=${service} ns=${ns} />` : html`<${Now} d=${d} onEnd=${it.onEnd} heard=${heard} query=${query} setQuery=${setQuery} service=${service} ns=${ns} />`}`;
}

/** marks are what sets an instance apart, as texts with a tone. */
function marks({ data, state }) {
  const all = [];
  if (data.flap && state.endsWith('.flapping')) all.push({ tone: 'bad', text: `flaps (${Math.round(data.flap.score)} %)`, title: 'It changed too often, and is held down until it is steady' });
  if (data.suspicion && state.endsWith('.suspect')) all.push({ tone: 'warn', text: 'suspect', title: data.suspicion.reason });
  if (data.drain && state === 'draining') all.push({ tone: 'warn', text: `drains until ${ago(Date.parse(data.drain.until))}`, title: data.drain.reason });
  if (data.maintenance) all.push({ tone: 'warn', text: 'maintenance', title: data.maintenance.reason });
  if (data.pinned !== undefined) all.push({ tone: '', text: 'weight pinned' });
  if (data.protected) all.push({ tone: 'warn', text: 'protected', title: 'Nothing expires: its service is in self-preservation' });
  return all;
}

/** sends says whether an instance sends heartbeats. */
const sends = (i) => i.data.check?.type === 'ttl' && i.state !== 'deregistered';

/** Heard is how long ago an instance was heard, as the node knows that looks after it. */
function Heard({ i, heard }) {
  if (!sends(i)) return html`<span class="faint">–</span>`;
  if (heard.error) return html`<span class="faint" title=${heard.error.message}>unknown</span>`;
  return heard.data?.has(i.id) ? html`<${Since} at=${heard.data.get(i.id)} />` : html`<span class="faint">${heard.data ? 'not yet' : ''}</span>`;
}

function Now({ d, onEnd, heard, query, setQuery, service, ns }) {
  const zone = query.get('zone') || '';
  const live = d.items;
  const zones = [...new Set(live.map((i) => i.data.zone || ''))].sort();
  const rows = live.filter((i) => !query.has('zone') || (i.data.zone || '') === zone);
  const columns = [
    { text: 'Address', cell: (i) => i.data.nodeAddress || i.id, class: 'mono' },
    { text: 'Health', cell: (i) => html`<${Health} m=${d.m} state=${i.state} />` },
    { text: 'For', cell: (i) => html`<${Since} at=${i.since} />` },
    { text: 'Zone', cell: (i) => i.data.zone || html`<span class="faint">–</span>` },
    { text: 'Version', cell: (i) => html`<span class="mono small">${i.data.version || '–'}</span>` },
    { text: 'Weight', cell: (i) => (i.now ? html`${count(i.now.weight)}${i.now.weight !== i.data.weight && html` <span class="faint">of ${count(i.data.weight ?? 0)}</span>`}` : html`<span class="faint">0</span>`), class: 'cell-end num' },
    { text: 'Marks', cell: (i) => html`<span class="labels">${marks(i).map((k) => html`<span key=${k.text} class=${'label' + (k.tone ? ' label-' + k.tone : '')} title=${k.title}>${k.text}</span>`)}</span>` },
    { text: 'Heartbeat', cell: (i) => html`<${Heard} i=${i} heard=${heard} />` },
    { text: 'Last evidence', cell: (i) => html`<button type="button" class="button button-quiet small" onClick=${() => open(Evidence, { i, m: d.m })}>${i.data.evidence ? html`<span>${i.data.evidence.kind || i.data.check?.type}${i.data.evidence.status ? ' ' + i.data.evidence.status : ''}</span> <${Time} at=${i.data.evidence.at} />` : html`<span>${i.data.check?.type === 'none' ? 'no check' : 'none yet'}</span>`}</button>` },
  ];
  return html`<div class="chips" role="group" aria-label="Zones"><button type="button" class="chip" aria-pressed=${!query.has('zone')} onClick=${() => setQuery({ zone: null })}>All zones<span class="num faint">${count(live.length)}</span></button>
      ${zones.filter((z) => z || zones.length > 1).map((z) => html`<button key=${z} type="button" class="chip" aria-pressed=${query.has('zone') && zone === z} onClick=${() => setQuery({ zone: z })}>${z || 'without a zone'}<span class="num faint">${live.filter((i) => (i.data.zone || '') === z && i.now).length} of ${live.filter((i) => (i.data.zone || '') === z).length} found</span></button>`)}
      <label class="check small"><input type="checkbox" checked=${!!query.get('ended')} onChange=${(e) => setQuery({ ended: e.target.checked ? '1' : null })} /><span>Also those that ended within a day</span></label></div>
    <${Table} label="Instances" columns=${columns} rows=${rows} total=${d.more ? -1 : rows.length} onEnd=${onEnd} keyOf=${(i) => i.id} hrefOf=${(i) => entityURL('instance', { id: i.id, parent: service, namespace: ns })}
      empty=${html`<${Empty} icon="service" title="No instances"><p>Clients find nobody under this name.</p></${Empty}>`} />
    ${d.more && html`<p class="faint small">These are the first ${count(d.items.length)}; more come at the end of the list, and are not counted above.</p>`}
    <div class="stack"><p class="faint small">What clients get:</p><${Command} text=${`curl -s '${location.origin}/v1/discover/${service}?namespace=${ns}'`} /></div>`;
}

/** Evidence is what an instance was judged by last. */
function Evidence({ i, m, close }) {
  const e = i.data.evidence;
  return html`<${Dialog} title=${i.data.nodeAddress || i.id} wide onClose=${() => close()}>
    <p><${Health} m=${m} state=${i.state} /> for <${Since} at=${i.since} /></p>
    ${e ? html`<${Rows} of=${{ Check: e.kind || i.data.check?.type, Seen: html`<${Time} at=${e.at} />`, By: e.observer, 'In a row': e.consecutive, 'HTTP status': e.status, Took: e.latencyMillis && duration(e.latencyMillis) }} />
      ${e.output && html`<h3>What it said</h3><div class="json"><pre tabindex="0" aria-label="Output of the check">${e.output}</pre></div>`}` : html`<p class="faint">Nothing was judged by a check yet.</p>`}
    <p class="faint small">A result that changes nothing is not stored, and neither is a heartbeat: this is what the last change was decided from.</p>
    <h3>Its check</h3><${Json} value=${i.data.check || {}} label="Check" />
    ${i.data.payload && html`<h3>Payload</h3><${Labels} labels=${i.data.payload} most=${64} />`}
  </${Dialog}>`;
}

const windows = { '15m': 15 * 60000, '2h': 2 * 3600000, '1d': 86400000, '7d': 7 * 86400000, '30d': 30 * 86400000 };
const words = { '15m': '15 minutes', '2h': '2 hours', '1d': 'a day', '7d': '7 days', '30d': '30 days' };
const steps = 500;

/** Past is a slider over time, and who was found then. */
function Past({ at, past, now, setQuery, service, ns }) {
  const ms = Date.parse(at);
  const [span, setSpan] = useState(() => Object.keys(windows).find((w) => Date.now() - ms < windows[w]) || '30d');
  const [end, setEnd] = useState(() => Date.now());
  const place = (t) => Math.max(0, Math.min(steps, Math.round(steps - ((end - t) / windows[span]) * steps)));
  const [value, setValue] = useState(() => place(ms));
  const timer = useRef();
  useEffect(() => () => clearTimeout(timer.current), []);
  const moment = end - ((steps - value) / steps) * windows[span];
  const go = (v, w = span, e = end) => {
    setValue(v);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ at: new Date(Math.round((e - ((steps - v) / steps) * windows[w]) / 1000) * 1000).toISOString() }), 200);
  };
  const choose = (w) => { const e = Date.now(); setSpan(w); setEnd(e); go(Math.max(0, Math.min(steps, Math.round(steps - ((e - moment) / windows[w]) * steps))), w, e); };
  const kept = useRef(); // while the slider moves, what was shown stays
  if (past.data) kept.current = past.data;
  const d = past.data || kept.current;
  const then = d?.instances || [];
  const gone = new Set(then.filter((i) => !now.weights.has(i.instanceId)).map((i) => i.instanceId));
  const came = [...now.weights.keys()].filter((id) => !then.some((i) => i.instanceId === id)).length;
  const columns = [
    { text: 'Address', cell: (i) => i.nodeAddress, class: 'mono' }, { text: 'Health then', cell: (i) => html`<${Health} m=${now.m} state=${i.state} />` },
    { text: 'Since', cell: (i) => html`<${Time} at=${i.since} precise />` }, { text: 'Zone', cell: (i) => i.zone || '–' }, { text: 'Version', cell: (i) => html`<span class="mono small">${i.version || '–'}</span>` }, { text: 'Weight', cell: (i) => count(i.weight), class: 'cell-end num' },
    { text: 'Now', cell: (i) => (gone.has(i.instanceId) ? html`<span class="bad">not found</span>` : short(now.weights.get(i.instanceId).state)) },
  ];
  return html`<${Card} title=${html`As of <${Time} at=${Math.round(moment / 1000) * 1000} precise /> <span class="faint">(${ago(moment)})</span>`} action=${html`<label class="order">Within <select class="input" value=${span} onChange=${(e) => choose(e.target.value)}>${Object.keys(windows).map((w) => html`<option value=${w}>${words[w]}</option>`)}</select></label>`}>
      <input class="slider" type="range" min="0" max=${steps} value=${value} aria-label="Moment" aria-valuetext=${exact(moment)} onInput=${(e) => go(Number(e.target.value))} />
      <div class="axis small faint"><span>${words[span]} ago</span><span>now</span></div></${Card}>
    <${Failure} error=${past.error} retry=${past.reload} small />
    ${!d ? !past.error && html`<${Loading} rows=${2} />` : html`
      <p class="small" role="status"><b class="num">${count(then.length)}</b> ${then.length === 1 ? 'was' : 'were'} there then${gone.size ? html`, <b>${count(gone.size)}</b> of them ${gone.size === 1 ? 'is' : 'are'} not found now` : ''}${came ? html`; <b>${count(came)}</b> ${came === 1 ? 'has' : 'have'} come since` : ''}. <span class="faint">Told from ${count(d.asOf?.events || 0)} ${d.asOf?.events === 1 ? 'event' : 'events'}.</span></p>
      <${Table} label="Instances then" columns=${columns} rows=${then} keyOf=${(i) => i.instanceId} hrefOf=${(i) => entityURL('instance', { id: i.instanceId, parent: service, namespace: ns })}
        empty=${html`<${Empty} icon="service" title="Nobody was there"><p>Clients found no instance of this service then.</p></${Empty}>`} />`}`;
}
