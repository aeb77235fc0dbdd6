// Streams, buckets and consumers, as the metrics of this node tell them: how much is stored, how far back it reaches, and what waits for whom. To look into one, the line for the nats CLI, and for
// admins of all namespaces its messages, by subject.
import { html, useState } from '../app/base.js';
import { get, ofAll, session } from '../app/api.js';
import { Copy, Failure, Heading, Json, Loading, Plain, Stat, drawn } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { every, useResource } from '../app/store.js';
import { bytes, count, duration, Time } from '../app/time.js';

/** samples reads metrics in the format of Prometheus: [{name, labels, value}] of those that begin so. */
function samples(text, prefix) {
  return text.split('\n').filter((l) => l.startsWith(prefix)).flatMap((line) => {
    const [, name, inner = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line) || [];
    return name ? [{ name, value: Number(value), labels: Object.fromEntries([...inner.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, k, v]) => [k, v.replace(/\\(.)/g, '$1')])) }] : [];
  });
}

async function load(signal) {
  const { data } = await get('/metrics', {}, signal);
  const all = samples(String(data), 'instar_');
  const of = (name, label) => new Map(all.filter((s) => s.name === name).map((s) => [s.labels[label], s.value]));
  const one = (name) => all.find((s) => s.name === name)?.value;
  const limits = of('instar_stream_limit_bytes', 'stream');
  const oldest = of('instar_stream_oldest_seconds', 'stream');
  const dead = of('instar_deadletters_total', 'consumer');
  const restarts = of('instar_consumer_restarts_total', 'consumer');
  return {
    streams: [...of('instar_stream_bytes', 'stream')].map(([name, size]) => ({ name, size, limit: limits.get(name), oldest: oldest.get(name) })).sort((a, b) => b.size - a.size),
    consumers: [...of('instar_consumer_pending', 'consumer')].map(([name, pending]) => ({ name, pending, dead: dead.get(name) || 0, restarts: restarts.get(name) || 0 })).sort((a, b) => b.pending - a.pending || (a.name < b.name ? -1 : 1)),
    buckets: [...of('instar_bucket_bytes', 'bucket')].map(([name, size]) => ({ name, size })).sort((a, b) => b.size - a.size || (a.name < b.name ? -1 : 1)),
    store: one('instar_store_bytes'), limit: one('instar_store_limit_bytes'),
  };
}

/** streamOf is where a consumer of this name reads: the prefix says so. Streams of an installation with a prefix of its own have that before their names. */
const streamOf = (name, streams) => {
  const plain = name.startsWith('fx-') ? 'EFFECTS' : /^p\d\d$/.test(name) ? 'COMMANDS' : 'EVENTS';
  return streams.some((s) => s.name === plain) ? plain : streams.find((s) => s.name.endsWith('_' + plain))?.name || plain;
};

export default function Streams() {
  const it = every(useResource(load, []), 15000);
  const d = it.data;
  const waiting = d?.consumers.reduce((n, c) => n + c.pending, 0);
  return html`<${Heading} title="Streams" sub="What is stored and who reads it, as this node has counted it within the last 15 seconds." />
    ${drawn(it, () => html`
      <div class="stats">
        <${Stat} label="Store" icon="stream" value=${d.store === undefined ? undefined : bytes(d.store)} hint=${d.limit ? `of ${bytes(d.limit)}` : 'without a limit'} tone=${d.limit && d.store / d.limit > 0.8 ? 'bad' : undefined} />
        <${Stat} label="Waiting" icon="clock" value=${waiting} hint="messages for all consumers" />
        <${Stat} label="Consumers" icon="worker" value=${d.consumers.length} hint=${`${d.consumers.filter((c) => c.pending).length} with something to do`} />
      </div>
      <h2>Streams</h2>
      <${Plain} label="Streams" heads="Stream|>Size|Of its limit|Reaches back|Look into it" rows=${d.streams.map((s) => html`<tr key=${s.name}><th scope="row" class="mono small">${s.name}</th><td class="cell-end num">${bytes(s.size)}</td>
          <td>${s.limit ? html`<progress class="meter" max=${s.limit} value=${s.size} aria-label=${`${s.name}: part of its limit`}></progress> <span class="small faint num">${bytes(s.limit)}</span>` : html`<span class="faint">no limit</span>`}</td>
          <td class="num">${s.oldest ? duration(s.oldest * 1000) : html`<span class="faint">empty</span>`}</td><td><${Line} text=${`nats stream view ${s.name}`} /></td></tr>`)} />
      <h2>Buckets</h2>
      <${Plain} label="Buckets" heads="Bucket|>Size|Look into it" rows=${d.buckets.map((b) => html`<tr key=${b.name}><th scope="row" class="mono small">${b.name}</th><td class="cell-end num">${bytes(b.size)}</td><td><${Line} text=${`nats kv ls ${b.name}`} /></td></tr>`)} />
      <h2>Consumers</h2>
      <${Plain} label="Consumers" heads="Consumer|>Not done yet|>Gave up on|>Restarts|Look into it" rows=${d.consumers.map((c) => html`<tr key=${c.name}><th scope="row" class="mono small">${c.name}</th><td class="cell-end num">${count(c.pending)}</td><td class=${'cell-end num' + (c.dead ? ' bad' : '')}>${count(c.dead)}</td><td class="cell-end num">${count(c.restarts)}</td>
          <td><${Line} text=${`nats consumer info ${streamOf(c.name, d.streams)} ${c.name}`} /></td></tr>`)} />
      ${session.get().role === 'admin' && ofAll() && html`<${Messages} />`}`)}`;
}

/** Messages are those of one stream: the newest, or all that match a subject from the oldest on. Nothing is consumed. */
function Messages() {
  const [query, set] = useQuery();
  const stream = query.get('stream') || 'events';
  const subject = query.get('subject') || '';
  const after = query.get('after');
  const [typed, setTyped] = useState(subject);
  const it = useResource((signal) => get(`/v1/streams/${encodeURIComponent(stream)}/messages`, { subject, after }, signal).then(({ data }) => data), [stream, subject, after]);
  const d = it.data;
  return html`<h2>Messages</h2>
    <form autocapitalize="none" class="chips" onSubmit=${(e) => { e.preventDefault(); set({ subject: typed.trim(), after: null }); it.reload(); }}>
      <select class="input" aria-label="Stream" value=${stream} onChange=${(e) => set({ stream: e.target.value, after: null })}>${['events', 'commands', 'effects', 'dead-letters'].map((s) => html`<option key=${s} value=${s}>${s}</option>`)}</select>
      <input class="input mono" aria-label="Subject" placeholder="Subject, as instar.evt.service.default.hello.>" size="44" value=${typed} onInput=${(e) => setTyped(e.target.value)} />
      <button class="button button-main">${subject || typed.trim() ? 'Show' : 'Newest'}</button>
      <button type="button" class="button" onClick=${() => set({ after: '0' })}>From the oldest</button>
    </form>
    <${Failure} error=${it.error} small />
    ${!d ? !it.error && html`<${Loading} />` : html`<p class="small faint" role="status">${d.items.length ? `${d.items.length} messages` : 'No message is like that'}, of ${count(d.messages)} in ${d.stream}.</p>
      <ul class="stack">${d.items.map((m) => html`<li key=${m.seq}><details><summary><span class="num small">${m.seq}</span> <span class="mono small">${m.subject}</span> <span class="small faint">${bytes(m.sizeBytes)}, <${Time} at=${m.time} /></span></summary>
        <${Json} value=${m} label=${`Message ${m.seq}`} /></details></li>`)}</ul>
      ${d.nextCursor && html`<p><button type="button" class="button" onClick=${() => set({ after: d.nextCursor })}>Next</button></p>`}`}`;
}

const Line = ({ text }) => html`<${Copy} text=${text} label=${'Copy: ' + text}><code class="small">${text}</code></${Copy}>`;
