// Home: what runs here in one look: what needs somebody, what is on its way and what is stuck, how much happens, the nodes, the store. Where there is next to nothing yet, the way into the sample.
import { html } from '../app/base.js';
import { collection, entityURL, get, machineURL, machines, ofAll, ofMachines, optional, session } from '../app/api.js';
import { needing, useAllCounts } from '../app/counts.js';
import { Icon } from '../app/icons.js';
import { useReload } from '../app/live.js';
import { Card, Command, Heading, LinkOut, Sparkline, Stat, drawn } from '../app/parts.js';
import { every, useResource } from '../app/store.js';
import { bytes, count, minutesAgo } from '../app/time.js';
import { MachineCard } from './machines.js';

export default function Home() {
  const all = ofMachines(useResource(() => machines(), []));
  if (!all.data) return html`<${Heading} title="Home" />${drawn(all)}`;
  return html`<${Shown} all=${all.data} />`;
}

function Shown({ all }) {
  const counts = useAllCounts(all.map((m) => m.name));
  const sum = (is) => all.reduce((n, m) => n + m.states.filter(is).reduce((k, s) => k + (counts.get(m.name)?.data?.[s.name] || 0), 0), 0);
  const needs = (m) => needing(m, counts.get(m.name)?.data);
  const failed = all.reduce((n, m) => n + needs(m), 0);
  const moving = sum((s) => s.transitional);
  const lives = sum((s) => !s.terminal);
  const busy = all.find(needs);
  const known = [...counts.values()].every((c) => c.data);
  return html`<${Heading} title="Home" sub=${known ? `${count(lives)} ${lives === 1 ? 'entity lives' : 'entities live'} here, in ${all.length} machines.` : ''} />
    <${Health} />
    <div class="stats">
      <${Stat} label="Failing" icon="alert" value=${known ? failed : undefined} tone=${failed ? 'bad' : undefined} hint=${(failed > 1 ? 'need' : failed ? 'needs' : 'none needs') + ' somebody'} href=${busy && machineURL(busy, { preset: needs(busy) > counts.get(busy.name).data[''] ? 'failed' : 'parked' })} />
      <${Stat} label="On their way" icon="spin" value=${known ? moving : undefined} hint="in a state that passes" />
      <${Stuck} all=${all} counts=${counts} known=${known} />
      <${Letters} />
      <${Nodes} />
      <${Store} />
    </div>
    <${Happening} />
    ${known && lives <= 3 && html`<${First} all=${all} />`}
    <div class="grid">${all.map((m) => html`<${MachineCard} key=${m.name} m=${m} />`)}</div>`;
}

function Stuck({ all, counts, known }) {
  const it = every(useResource(async (signal) => {
    if (!known) return undefined;
    const before = minutesAgo(5);
    const found = await Promise.all(all.map(async (m) => {
      const state = m.states.filter((s) => s.transitional).map((s) => s.name);
      if (!state.some((s) => (counts.get(m.name)?.data?.[s] ?? 1) > 0)) return { m, n: 0 }; // as nearly always
      const { data } = await get(collection(m), { namespace: '*', state, sinceBefore: before, limit: 500 }, signal);
      return { m, n: data.items.length, more: !!data.nextCursor };
    }));
    return { n: found.reduce((n, f) => n + f.n, 0), more: found.some((f) => f.more), first: found.find((f) => f.n)?.m };
  }, [known]), 20000);
  const s = it.data;
  return html`<${Stat} label="Stuck" icon="clock" value=${s && (s.more ? count(s.n) + '+' : s.n)} tone=${s?.n ? 'warn' : undefined} hint="over 5 minutes on their way" href=${s?.first && machineURL(s.first, { preset: 'stuck-5' })} />`;
}

function Letters() {
  const it = every(useResource(() => optional('/v1/dead-letters', { limit: 500 }), []), 15000);
  if (it.data === null) return null;
  const n = it.data?.items.length;
  return html`<${Stat} label="Dead letters" icon="letter" value=${it.data && (it.data.nextCursor ? n + '+' : n)} tone=${n ? 'bad' : undefined} hint=${n ? 'no code could handle them' : 'everything was handled'} href="/ui/dead-letters" />`;
}

function Nodes() {
  const it = every(useResource(() => optional('/v1/nodes'), []), 5000);
  if (it.data === null || it.error) return null;
  const items = it.data?.items || [];
  const away = items.filter((n) => n.state !== 'live').length;
  return html`<${Stat} label=${items.length === 1 ? 'Node' : 'Nodes'} icon="node" value=${it.data && items.length} tone=${away ? (away < items.length ? 'warn' : 'bad') : undefined} hint=${away ? `${away} not taking work` : it.data ? `${it.data.partitions} partitions` : ''} href="/ui/nodes" />`;
}

const health = () => get('/readyz', { verbose: 'true' }).then(({ data }) => data, (e) => { if (e.status === 503 && e.checks) return e; throw e; });

function Store() {
  const it = every(useResource(health, []), 10000);
  const disk = it.data?.checks?.find((c) => c.name === 'disk' && c.limitBytes);
  if (!disk) return null;
  const used = disk.usedBytes || 0;
  return html`<${Stat} label="Store" icon="stream" value=${bytes(used)} tone=${disk.ok && !disk.warn ? undefined : 'bad'} hint=${`${used / disk.limitBytes < 0.01 ? 'under 1' : Math.round((used / disk.limitBytes) * 100)} % of ${bytes(disk.limitBytes)}`} href="/ui/streams" />`;
}

/** Health shows checks that fail, and nothing while all hold. */
function Health() {
  const it = every(useResource(health, []), 5000);
  const bad = (it.data?.checks || []).filter((c) => !c.ok || c.warn);
  if (!bad.length) return null;
  return html`<div class="failure" role="alert"><${Icon} name="alert" /><div><b>${bad.every((c) => c.ok) ? 'Somebody should look' : 'This node is not ready'}</b>${bad.map((c) => html`<p key=${c.name}>${c.name}${c.detail ? ': ' + c.detail : ''}</p>`)}</div></div>`;
}

function Happening() {
  const it = every(useResource(() => optional('/v1/activity'), []), 15000);
  useReload(it.reload, {}, 2000);
  if (!it.data || !ofAll()) return null;
  const a = it.data;
  const add = (name) => a.machines.reduce((all, m) => all.map((n, i) => n + m[name][i]), Array(a.machines[0]?.transitions.length || 0).fill(0));
  const transitions = add('transitions');
  const failures = add('failures');
  const total = transitions.reduce((x, y) => x + y, 0);
  const bad = failures.reduce((x, y) => x + y, 0);
  const into = (Date.parse(a.until) / 1000) % a.stepSeconds;
  const rate = (list) => per(((list.at(-1) || 0) + (list.at(-2) || 0)) / (a.stepSeconds + into));
  const most = Math.max(0, ...transitions) / a.stepSeconds;
  const per = (n) => (n >= 10 ? count(Math.round(n)) : n >= 0.1 || n === 0 ? n.toFixed(1) : '<0.1');
  const grafana = session.get()?.grafanaUrl;
  return html`<${Card} title="Transitions" action=${html`<span class="faint small">the last hour, of the whole cluster${grafana && html` · <${LinkOut} href=${grafana}>Grafana</${LinkOut}>`}</span>`}>
    <div class="happening"><p><b class="num">${rate(transitions)}</b> <span class="faint">per second now</span></p><p><b class="num">${per(most)}</b> <span class="faint">at most</span></p><p><b class="num">${count(total)}</b> <span class="faint">in all</span></p><p class=${bad ? 'bad' : ''}><b class="num">${count(bad)}</b> <span>came to need somebody, ${rate(failures)} per second now</span></p></div>
    <${Sparkline} values=${transitions} marks=${failures} height=${56} label=${`${total} transitions within the last hour, ${bad} into a state that failed`} />
    <div class="axis small faint"><span>1 hour ago</span><span>now</span></div>
  </${Card}>`;
}

/** First is for those who look for the first time. */
function First({ all }) {
  const m = all.find((m) => m.name === 'service');
  const it = useResource(() => (m ? get(collection(m), { namespace: '*', limit: 1 }).then(({ data }) => data.items[0]) : Promise.resolve(undefined)), [m?.name]);
  const sample = it.data;
  return html`<${Card} title="Begin here" class="first"><div class="grid">
    <div class="stack"><h3>1. Look</h3><p>${sample ? html`The service <b>${sample.id}</b> runs here. See its states, and how it came to be ready.` : 'Nothing runs here yet. Each machine below can begin something.'}</p>
      ${sample && html`<p><a class="button button-main" href=${entityURL(m, sample)}>Open ${sample.id}<${Icon} name="right" /></a></p>`}</div>
    <div class="stack"><h3>2. Break it</h3><p>Press <b>update</b> on its page and give it an image that does not exist. It goes to FAILED, the old one keeps serving, and the timeline says why. Then press <b>rollback</b>.</p></div>
    <div class="stack"><h3>3. Do the same elsewhere</h3><${Command} text="instar demo discovery" /><${Command} text=${`curl -s ${location.origin}/v1/services`} /><${Command} text="nats kv watch services" /></div>
  </div></${Card}>`;
}
