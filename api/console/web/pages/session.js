// A session of a tenant: its steps with how long each took or will take, as past runs tell; what it has made; and, where it goes back, what is taken back, last first.
import { html, classes } from '../app/base.js';
import { entityPath, entityURL, get, machine, namespaceOf, ofMachines } from '../app/api.js';
import { Actions } from '../app/command.js';
import { Icon } from '../app/icons.js';
import { useReload } from '../app/live.js';
import { Card, Failure, Heading, Mark, Rows, State, drawn } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { useResource } from '../app/store.js';
import { Since, Time, bytes, count, duration, useNow } from '../app/time.js';
import { phaseText, stepOf, way } from './tenants.js';

const transitioned = 'provisioning.state.transitioned';
const runs = 10; // past ones that an estimate is made from

/** passed are the changes of state of a session since it was requested last, which is the first of them: [{from, to, at}]. */
async function passed(m, path, namespace, signal) {
  const requested = m.events.find((e) => e.name.endsWith('.requested'))?.name;
  const { data } = await get(path + '/events', { namespace, type: [transitioned, requested], limit: 500 }, signal);
  const all = data.items.map((e) => (e.type === requested ? { to: 'requested', at: Date.parse(e.time) } : { from: e.data?.from, to: e.data?.to, at: Date.parse(e.time) }));
  return all.slice(Math.max(0, all.findLastIndex((t) => !t.from)));
}

/** tooks is how long each state lasted: ms by state. */
function tooks(steps) {
  const took = {};
  steps.forEach((t, i) => { if (i > 0 && t.from) took[t.from] = (took[t.from] || 0) + Math.max(0, t.at - steps[i - 1].at); });
  return took;
}

const middle = (list) => { const s = [...list].sort((a, b) => a - b); return s.length % 2 ? s[(s.length - 1) / 2] : (s[s.length / 2 - 1] + s[s.length / 2]) / 2; };

/** usual is how long a step usually takes: the median of the last runs that became ready. */
async function usual(m, but, signal) {
  const { data } = await get('/v1/' + m.plural, { namespace: '*', state: 'ready', orderBy: 'updatedAt desc', limit: runs + 1 }, signal);
  const others = data.items.filter((e) => !(e.id === but.id && e.parent === but.parent && e.namespace === but.namespace)).slice(0, runs);
  const all = await Promise.all(others.map(async (e) => tooks(await passed(m, await entityPath(m, e), e.namespace, signal))));
  const found = {};
  for (const { name } of way(m)) {
    const of = all.map((t) => t[name]).filter((n) => n !== undefined);
    if (of.length) found[name] = { ms: middle(of), of: of.length };
  }
  return found;
}

export default function Session({ params }) {
  const [query] = useQuery();
  const ns = namespaceOf(query);
  const at = { parent: params.tenant, id: params.id, namespace: ns };
  const id = [params.machine, params.tenant, params.id, ns];
  const it = ofMachines(useResource(async (signal) => {
    const m = await machine(params.machine);
    const path = await entityPath(m, at);
    const [{ data: e, etag }, steps] = await Promise.all([get(path, { namespace: ns }, signal), passed(m, path, ns, signal)]);
    return { m, path, e, etag, steps };
  }, id));
  const past = useResource(async (signal) => usual(await machine(params.machine), at, signal), id);
  useReload(it.reload, { machine: params.machine, key: `${ns}.${params.tenant}.${params.id}` }, 500);
  const title = `${params.tenant}/${params.id}`;
  const crumbs = [{ href: '/ui/tenants', text: 'Tenants' }];
  if (!it.data) return html`<${Heading} title=${title} crumbs=${crumbs} />${drawn(it)}`;
  const { m, e, etag, steps } = it.data;
  const phase = phaseText(e.data);
  return html`<${Heading} title=${title} crumbs=${crumbs} sub=${html`<span class="facts"><${State} m=${m} state=${e.state} />${phase && html`<span class="pill">${phase}</span>`}<span>for <${Since} at=${e.since} /></span></span>`}>
      <${Actions} m=${m} e=${e} etag=${etag} />
      <a class="button" href=${entityURL(m, e)}>Timeline and data<${Icon} name="right" /></a></${Heading}>
    <${Failure} error=${it.error} small />
    ${e.lastError && ['failed', 'rolled_back', 'cancelled'].includes(e.state) && html`<div class="failure failure-small"><${Icon} name="alert" /><div><b>${e.lastError.code}</b><p>${e.lastError.message}</p></div></div>`}
    <div class="entity">
      <div class="entity-main"><${Steps} m=${m} e=${e} steps=${steps} past=${past.data || {}} /><${Undo} e=${e} /></div>
      <aside class="entity-side" aria-label="Facts"><${Facts} m=${m} e=${e} /></aside>
    </div>`;
}

function Steps({ m, e, steps, past }) {
  const now = useNow();
  const all = way(m);
  const d = e.data || {};
  const at = stepOf(m, e);
  const took = tooks(steps);
  const done = e.state === 'ready' || (at < 0 && steps.some((t) => t.to === 'ready'));
  const planned = d.plan?.steps?.length ? new Set(['requested', ...d.plan.steps]) : undefined;
  const running = at >= 0 && e.state !== 'failed' && (!d.phase || ['executing', 'retry_wait'].includes(d.phase));
  const elapsed = now - Date.parse(e.since);
  const left = running ? remaining(all, at, d, past, elapsed) : undefined;
  return html`<${Card} title="Steps" action=${running && html`<span class="small soft" role="status">${left === undefined ? 'no past run tells how long it takes' : left < 1000 ? 'any moment now' : html`about <b class="num">${duration(left)}</b> left`}</span>`}>
    <ol class="timeline">${all.map((s, i) => {
    const here = i === at;
    const failed = here && e.state === 'failed';
    const skipped = planned && !planned.has(s.name) && (done || i < at);
    const was = done ? took[s.name] !== undefined : i < at || (at < 0 && took[s.name] !== undefined);
    const mark = failed ? 'alert' : here ? 'spin' : skipped ? 'right' : was || done ? 'check' : 'steady';
    return html`<li key=${s.name} class=${classes('step', failed && 'step-failed', !here && (was || done) && !skipped && 'step-moves', here && !failed && 'step-here')}>
      <span class="step-mark"><${Icon} name=${mark} label=${failed ? 'failed' : here ? 'under way' : skipped ? 'left out' : was || done ? 'done' : 'to come'} /></span>
      <div class="step-body"><div class="step-head"><b>${s.name.replace(/_/g, ' ')}</b>${here && d.step && html`<span class="label">${d.step}</span>`}${here && d.attempt > 1 && html`<span class="label label-warn">attempt ${d.attempt}</span>`}
        <span class="step-time num">${skipped ? 'left out' : here && running ? html`${duration(elapsed)}${past[s.name] && html`<span class="faint"> of about ${duration(past[s.name].ms)}</span>`}` : took[s.name] !== undefined && (was || done) ? `took ${duration(took[s.name])}` : past[s.name] ? `about ${duration(past[s.name].ms)}` : ''}</span></div>
        <p class="small faint">${s.doc}</p>
        ${here && !failed && html`<${Current} d=${d} e=${e} usual=${past[s.name]} elapsed=${elapsed} />`}
      </div></li>`;
  })}</ol></${Card}>`;
}

/** remaining is how long the rest takes as far as it is known: what the step itself says, else what past runs took, else the plan. */
function remaining(all, at, d, past, elapsed) {
  const own = d.progress?.etaSeconds && all[at].name === 'migrating_data' ? d.progress.etaSeconds * 1000 : past[all[at].name] && Math.max(0, past[all[at].name].ms - elapsed);
  const rest = all.slice(at + 1).map((s) => past[s.name]?.ms);
  if (own === undefined || rest.includes(undefined)) return d.plan?.estimatedSeconds && at > 0 ? d.plan.estimatedSeconds * 1000 : undefined;
  return own + rest.reduce((a, b) => a + b, 0);
}

/** Current is how far the step is that is under way. */
function Current({ d, e, usual: of, elapsed }) {
  const p = e.state === 'migrating_data' ? d.progress : undefined;
  if (d.phase === 'retry_wait') return html`<p class="small">The next attempt begins <${Time} at=${d.nextTry} />.</p>`;
  if (p?.totalRows) {
    return html`<progress max=${p.totalRows} value=${p.migratedRows} aria-label="Rows copied"></progress>
      <p class="small"><b class="num">${count(p.migratedRows)}</b> of ${count(p.totalRows)} rows${p.table && html` · <span class="mono">${p.table}</span>`}${p.bytes ? ` · ${bytes(p.bytes)}` : ''}${p.rate ? ` · ${count(Math.round(p.rate))} rows per second` : ''}${p.etaSeconds ? ` · about ${duration(p.etaSeconds * 1000)} left` : ''}${p.lagBytes ? ` · ${bytes(p.lagBytes)} behind` : ''}</p>`;
  }
  return of && d.phase !== 'waiting_approval' && html`<progress max=${of.ms} value=${Math.min(elapsed, of.ms * 0.97)} aria-label="Of the time that it usually takes"></progress>`;
}

const marks = { created: { kind: 'steady', icon: 'check', children: 'there' }, intended: { kind: 'moving', children: 'being made, or half made' }, undone: { kind: 'ended', children: 'taken back' } };

/** Undo is the ledger in reverse, with what became of each action of the last undo. */
function Undo({ e }) {
  const d = e.data || {};
  const ledger = [...(d.ledger || [])].reverse();
  if (!ledger.length && !d.undone?.length) return null;
  const going = d.phase === 'rolling_back' || ['deprovisioning', 'reverting', 'withdrawing'].includes(e.state);
  const over = ['rolled_back', 'cancelled', 'deprovisioned'].includes(e.state);
  const back = ledger.filter((l) => l.state === 'undone').length;
  const next = ledger.find((l) => l.state !== 'undone');
  const bar = (l) => html`<progress class="meter" max="1" value=${l.state === 'undone' ? 1 : l === next ? undefined : 0} aria-label=${`${l.kind} ${l.name}`}></progress>`;
  return html`<${Card} title=${going ? 'Taken back, last first' : over ? 'What was taken back' : 'What it has made'} action=${(going || over || back > 0) && html`<span class="small num soft">${back} of ${ledger.length}</span>`}>
    ${(going || over) && ledger.length > 0 && html`<progress class="undo-bar" max=${ledger.length} value=${back} aria-label="Taken back"></progress>`}
    ${e.state === 'failed' && d.phase !== 'rolling_back' && html`<p class="small faint">A rollback takes it back in this order.</p>`}
    <ol class="ledger">${ledger.map((l) => html`<li key=${l.kind + l.name}><${Mark} ...${marks[l.state] || marks.intended} /><b>${l.kind}</b><span class="mono small wrap">${l.name}</span>${going && bar(l)}<span class="faint small"><${Time} at=${l.at} /></span></li>`)}</ol>
    ${d.undone?.length > 0 && html`<h3>The last undo</h3><ul class="ledger">${d.undone.map((a) => html`<li key=${a.action}><${Mark} ...${a.done ? { kind: 'steady', icon: 'check', children: 'done' } : a.skipped ? { kind: 'ended', icon: 'right', children: 'left out' } : { kind: 'failed', children: 'not done' }} /><b class="mono small">${a.action}</b>${a.error && html`<span class="bad small wrap">${a.error}</span>`}${a.leftBehind && html`<span class="small wrap">left behind: ${a.leftBehind.join(', ')}</span>`}</li>`)}</ul>`}
  </${Card}>`;
}

function Facts({ m, e }) {
  const d = e.data || {};
  const r = d.request || {};
  const num = (n) => html`<span class="num">${count(n)}</span>`;
  const tables = Object.entries(d.plan?.rows || {}).sort(([, a], [, b]) => b - a).slice(0, 12);
  return html`<${Card} title="Facts"><${Rows} of=${{ Tenant: r.enterpriseId || e.parent, Mode: r.mode, Version: d.version, Domain: d.primaryDomain, Database: d.database?.name, On: d.database?.host, Bucket: d.storage?.bucket, Release: d.app?.name, Migrations: d.migrations, Epoch: d.epoch,
      'Certificate ends': d.certificate && html`<${Time} at=${d.certificate.notAfter} />`, 'If it fails': r.onFailure === 'rollback' ? 'it is taken back' : 'it is held', Completed: d.completedAt && html`<${Time} at=${d.completedAt} />` }} /></${Card}>
    ${d.upgrade && html`<${Card} title="Upgrade"><p><span class="label">${d.upgrade.from}</span><${Icon} name="right" label="to" /><span class="label">${d.upgrade.to || d.upgrade.channel}</span></p><progress max="100" value=${d.upgrade.weight} aria-label="Share of the traffic"></progress><p class="small"><b class="num">${d.upgrade.weight} %</b> of the traffic, of steps ${(d.upgrade.weights || []).join(', ')}</p></${Card}>`}
    ${tables.length > 0 && html`<${Card} title="Rows by the plan"><${Rows} of=${{ ...Object.fromEntries(tables.map(([table, n]) => [table, num(n)])), 'In all': html`<b>${num(d.plan.total || 0)}</b>` }} /></${Card}>`}`;
}
