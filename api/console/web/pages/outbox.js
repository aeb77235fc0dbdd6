// The outbox: for each source how far its relay is, who has which shard, and the aggregates that wait behind a row that cannot be published, with the way to let them go on.
import { html, useState } from '../app/base.js';
import { entityURL, get, machine, may, ofMachines, send } from '../app/api.js';
import { ask } from '../app/dialog.js';
import { Icon } from '../app/icons.js';
import { useReload } from '../app/live.js';
import { Card, Command, Empty, Heading, Stat, State, drawn } from '../app/parts.js';
import { every, useResource } from '../app/store.js';
import { Time, count, duration } from '../app/time.js';
import { toast } from '../app/toast.js';

export default function Outbox() {
  const m = ofMachines(useResource(() => machine('relay'), [])).data;
  const it = every(useResource((signal) => get('/v1/outbox', {}, signal).then(({ data }) => data.items), []), 3000);
  useReload(it.reload, { machine: 'relay' }, 1000);
  const none = it.error?.status === 404;
  return html`<${Heading} title="Outbox" sub="Rows that applications have written with their data, and the relays that publish them into a stream." />
    ${!none && drawn(it, () => null)}
    ${none || it.data?.length === 0 ? html`<div class="card"><${Empty} icon="outbox" title="No source is configured"><p>A source is a Postgres whose outbox this server relays.</p><${Command} text="instar serve --outbox-dsn postgres://relay@db/orders" /></${Empty}></div>` : (it.data || []).map((s) => html`<${Source} key=${s.name} s=${s} m=${m} reload=${it.reload} />`)}`;
}

/** late reports whether a relay runs and does not keep up: steady for its machine, and nothing that one leaves alone. */
const late = (s) => s.state === 'lagging' || s.state === 'stalled';

function Source({ s, m, reload }) {
  const [busy, setBusy] = useState('');
  const st = s.status;
  const parked = st?.parked || [];
  const act = async (verb, filter, what) => {
    const discard = verb === 'discard';
    if ((discard || filter.all) && !await ask({
      title: `${discard ? 'Discard' : 'Redrive'} ${what}`, name: discard ? s.name : undefined, tone: discard ? 'danger' : 'main', action: discard ? 'Discard' : 'Redrive',
      text: discard ? 'These rows are given up: they are never published, and what waits behind them goes on without them.' : 'Every row that failed is tried again at once.',
    })) return;
    setBusy(verb);
    try {
      const { data } = await send('POST', `/v1/outbox/${encodeURIComponent(s.name)}/${verb}`, { body: filter });
      toast(`${count(data.rows)} ${data.rows === 1 ? 'row' : 'rows'} of ${s.name} ${discard ? 'were given up' : 'are tried again'}.`, 'good');
    } catch (e) {
      toast(`${verb} of ${s.name}: ${e.message}`, 'bad');
    }
    setBusy('');
    reload();
  };
  return html`<section class="stack" aria-label=${'Source ' + s.name}>
    <div class="source-head"><h2><a href=${entityURL('relay', { id: s.name })}>${s.name}</a></h2>${s.state ? html`<${State} m=${m} state=${s.state} kind=${late(s) ? 'failed' : undefined} />` : html`<span class="faint small">no relay is registered</span>`}${st && html`<span class="faint small">mode ${st.mode} · <span class="num">${st.rate >= 10 ? count(Math.round(st.rate)) : st.rate.toFixed(1)}</span> rows per second · as of <${Time} at=${st.at} /></span>`}</div>
    ${(s.problem || st?.problem) && html`<div class="failure failure-small"><${Icon} name="alert" /><div><b>It makes no progress</b><p>${s.problem || st.problem}</p></div></div>`}
    ${st && html`
      <div class="stats">
        <${Stat} label="Lag" icon="outbox" value=${st.lag} hint="rows not published" tone=${late(s) ? 'warn' : undefined} />
        <${Stat} label="Oldest" icon="clock" value=${st.oldestSeconds ? duration(st.oldestSeconds * 1000) : '–'} hint=${st.oldestSeconds ? 'waits so long' : 'nothing waits'} />
        <${Stat} label="Parked" icon="alert" value=${parked.length >= 100 ? '100+' : parked.length} tone=${parked.length ? 'bad' : undefined} hint="aggregates behind a row that failed" />
        ${st.fenceWaitSeconds > 0 && html`<${Stat} label="Held back" icon="pause" value=${duration(st.fenceWaitSeconds * 1000)} hint="by an open transaction" />`}
        ${Object.entries(st.rows || {}).filter(([, n]) => n > 0).map(([state, n]) => html`<${Stat} key=${state} label=${state} value=${n} hint="rows" tone=${state === 'FAILED' || state === 'DEAD' ? 'bad' : undefined} />`)}
      </div>
      ${parked.length > 0 && html`<${Card} title="Parked" action=${may('admin') && html`<div class="chips"><button type="button" class="button small" disabled=${!!busy} onClick=${() => act('redrive', { all: true }, `everything of ${s.name}`)}>Redrive all</button><button type="button" class="button button-warn small" disabled=${!!busy} onClick=${() => act('discard', { all: true }, `everything that failed of ${s.name}`)}>Discard all</button></div>`}>
        <div class="scroll" tabindex="0" role="region" aria-label="Parked aggregates"><table class="plain-table"><thead><tr><th scope="col">Aggregate</th><th scope="col">Why</th><th scope="col">Tries</th><th scope="col">Next</th><th scope="col">Wait behind it</th>${may('admin') && html`<th scope="col"><span class="hidden-text">Do</span></th>`}</tr></thead>
          <tbody>${parked.map((p) => html`<tr key=${p.eventId}><td><b>${p.aggregateType}</b> <span class="mono small">${p.aggregateId}</span><br /><span class="faint small mono">${p.eventId}</span></td><td class="wrap">${p.error}</td><td class="num">${p.attempts}${p.state === 'DEAD' && html` <span class="bad small">given up</span>`}</td><td>${p.nextTry ? html`<${Time} at=${p.nextTry} />` : '–'}</td><td class="num">${count(p.waiting)}</td>
            ${may('admin') && html`<td><span class="chips"><button type="button" class="button small" disabled=${!!busy} onClick=${() => act('redrive', { ids: [p.eventId] })}>Redrive</button><button type="button" class="button button-warn small" disabled=${!!busy} onClick=${() => act('discard', { ids: [p.eventId] }, `the row of ${p.aggregateType} ${p.aggregateId}`)}>Discard</button></span></td>`}</tr>`)}</tbody></table></div></${Card}>`}
      ${st.shards?.length > 0 && html`<${Card} title="Shards"><ul class="shards">${st.shards.map((h) => html`<li key=${h.number}><b class="num">${h.number}</b><span class=${h.owner ? 'mono small' : 'bad small'}>${h.owner || 'nobody'}</span>${h.position && html`<span class="faint small mono" title="Position of the last published row">${h.position}</span>`}</li>`)}</ul></${Card}>`}`}
  </section>`;
}
