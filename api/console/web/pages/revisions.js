// Services with their revisions and traffic. The page (default) has all services, with what serves each; Revisions is what the page of one service shows: every revision that was seen, what share of the
// requests each gets, and how that was before.
import { html } from '../app/base.js';
import { atLeast, collection, entityURL, living, machine, ofMachines, optional } from '../app/api.js';
import { useNamespace } from '../app/frame.js';
import { useReload } from '../app/live.js';
import { Empty, Failure, Heading, LinkOut, Mark, Plain, Stat, State, drawn } from '../app/parts.js';
import { useMore, useResource } from '../app/store.js';
import { Table } from '../app/table.js';
import { Since, Time, count } from '../app/time.js';

/** Traffic is who gets which share of the requests. */
function Traffic({ of }) {
  if (!of?.length) return html`<span class="faint">nobody</span>`;
  return html`<span class="cell-states">${of.map((t) => html`<span key=${t.revision} class="label"><b class="num">${t.percent} %</b> ${t.revision}</span>`)}</span>`;
}

const readiness = { True: ['steady', 'ready', 'check'], False: ['failed', 'not ready'], Unknown: ['moving', 'not known'] };

function Ready({ r, serving }) {
  const [kind, text, icon] = !serving && r.reason === 'Retired' ? ['ended', 'retired'] : readiness[r.ready] || readiness.Unknown;
  return html`<${Mark} kind=${kind} icon=${icon} title=${r.reason}>${text}</${Mark}>`;
}

export default function Services() {
  const ns = useNamespace();
  const it = ofMachines(useMore(async (least, signal) => {
    const m = await machine('service');
    return { m, ...await atLeast(least, collection(m), { namespace: ns, include: 'data', state: living(m) }, signal) };
  }, [ns]));
  useReload(it.reload, { machine: 'service' }, it.rest);
  const d = it.data;
  const seen = (e) => e.entity?.data?.snapshot || {};
  const split = d?.items.filter((e) => seen(e).traffic?.filter((t) => t.percent > 0).length > 1).length;
  const columns = [
    { text: 'Service', cell: (e) => e.id },
    { text: 'State', cell: (e) => html`<${State} m=${d.m} state=${e.state} />` },
    { text: 'For', cell: (e) => html`<${Since} at=${e.since} />` },
    { text: 'Requests go to', cell: (e) => html`<${Traffic} of=${seen(e).traffic} />` },
    { text: 'Newest revision', cell: (e) => (seen(e).latestCreated ? html`<span class="mono small">${seen(e).latestCreated}</span>${seen(e).latestCreated !== seen(e).latestReady && html` <span class="bad small">not ready</span>`}` : html`<span class="faint">–</span>`) },
    { text: 'Image', cell: (e) => html`<span class="mono small">${e.entity?.data?.spec?.image || '–'}</span>` },
    { text: 'Address', cell: (e) => (seen(e).url ? html`<${LinkOut} href=${seen(e).url} />` : html`<span class="faint">–</span>`) },
    ...(ns === '*' ? [{ text: 'Namespace', cell: (e) => html`<span class="soft">${e.namespace}</span>` }] : []),
  ];
  return html`<${Heading} title="Services" sub="Programs with an address. An update makes a revision, which gets the requests when it is healthy; until then the one before serves." />
    ${drawn(it, () => html`
      <div class="stats">
        <${Stat} label="Services" icon="swap" value=${d.more ? d.items.length + '+' : d.items.length} hint=${d.more ? 'that have not ended; the list has more at its end' : 'that have not ended'} />
        <${Stat} label="With an address" icon="check" value=${d.items.filter((e) => seen(e).traffic?.length).length} hint="requests go to a revision" />
        <${Stat} label="Between two" icon="spin" value=${split} hint="requests go to more than one revision" />
        <${Stat} label="Newest not ready" icon="alert" value=${d.items.filter((e) => seen(e).latestCreated !== seen(e).latestReady).length} hint="an earlier one serves, or none" />
      </div>
      <${Table} label="Services" columns=${columns} rows=${d.items} total=${d.more ? -1 : d.items.length} onEnd=${it.onEnd} keyOf=${(e) => e.namespace + '.' + e.id} hrefOf=${(e) => entityURL('service', e, { tab: 'revisions' })}
        empty=${html`<${Empty} icon="service" title="No services"><p>Press <a href="/ui/machines/service">create service</a> on the page of the machine.</p></${Empty}>`} />`)}`;
}

export function Revisions({ path, e }) {
  const it = useResource(async (signal) => {
    const [all, route] = await Promise.all(['revisions', 'route'].map((view) => optional(`${path}/${view}`, { namespace: e.namespace }, signal)));
    return { all: all?.items || [], route };
  }, [path, e.namespace]);
  useReload(it.reload, { machine: 'service', key: `${e.namespace}.${e.id}` }, 1000);
  const d = it.data;
  if (!d) return drawn(it);
  if (!d.all.length) return html`<p class="faint pad">No revision was seen yet.</p>`;
  const share = new Map((d.route?.traffic || []).map((t) => [t.revision, t.percent]));
  const before = [...(d.route?.at ? [d.route] : []), ...(d.route?.before || [])];
  return html`<div class="stack"><${Failure} error=${it.error} small />
    <${Plain} label="Revisions" heads="Revision|Is|Share of the requests|>Generation|First seen" rows=${d.all.map((r) => html`<tr key=${r.name}><th scope="row" class="mono">${r.name}</th><td><${Ready} r=${r} serving=${share.get(r.name) > 0} />${r.reason && r.reason !== 'Retired' && html` <span class="small faint">${r.reason}</span>`}</td>
        <td><progress class="meter" max="100" value=${share.get(r.name) || 0} aria-label=${'Share of ' + r.name}></progress> <span class="num small">${share.get(r.name) || 0} %</span></td><td class="cell-end num">${count(r.generation ?? 0)}</td><td><${Time} at=${r.seenAt} /></td></tr>`)} />
    ${before.length > 0 && html`<h2>Where requests went</h2><ul class="stack">${before.map((b) => html`<li key=${b.at} class="small"><span class="faint">since</span> <${Time} at=${b.at} /> <${Traffic} of=${b.traffic} /></li>`)}</ul>`}
    ${d.route?.url && html`<p class="small">Its address: <${LinkOut} href=${d.route.url} /></p>`}</div>`;
}
