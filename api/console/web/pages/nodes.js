// Nodes: the processes that share the work, which partitions each has, and the way to take one out of it and back.
import { html, classes } from '../app/base.js';
import { get, may, send } from '../app/api.js';
import { ask } from '../app/dialog.js';
import { Card, Command, Heading, Mark, Rows, Stat, drawn } from '../app/parts.js';
import { every, useResource } from '../app/store.js';
import { Since, count } from '../app/time.js';
import { toast } from '../app/toast.js';

const states = {
  live: ['steady', 'steady', 'Takes its share of the partitions'],
  cordoned: ['moving', 'pause', 'Keeps what it has, and takes nothing more'],
  draining: ['ended', 'ended', 'Has handed over its work, and serves the API only; Uncordon has it take its share again'],
};

const acts = {
  cordon: { text: 'Cordon', done: 'takes nothing more', ask: 'It keeps its partitions and takes no new ones, also after a restart, until it is uncordoned.' },
  drain: { text: 'Drain', done: 'hands over its work', ask: 'Its partitions go to the other nodes, and it serves the API only, also after a restart, until it is uncordoned.' },
  uncordon: { text: 'Uncordon', done: 'takes its share again' },
};

const offered = { live: ['cordon', 'drain'], cordoned: ['uncordon', 'drain'], draining: ['uncordon'] };

export default function Nodes() {
  const it = every(useResource((signal) => get('/v1/nodes', {}, signal).then(({ data }) => data), []), 2000);
  const list = (it.data?.items || []).map((n) => ({ ...n, partitions: n.partitions || [], roles: n.roles || [] }));
  const owned = new Map(list.flatMap((n) => n.partitions.map((p) => [p, n.name])));
  const none = it.data ? it.data.partitions - owned.size : 0;
  const act = async (node, verb) => {
    const others = list.filter((n) => n.name !== node.name && n.want === 'live').length;
    const a = acts[verb];
    if (a.ask) {
      const warning = verb === 'drain' && !others ? ' No other node takes work: until one does, no command is processed.' : '';
      if (!await ask({ title: `${a.text} ${node.name}`, text: a.ask + warning, action: a.text, tone: warning ? 'danger' : 'main', name: warning ? node.name : undefined })) return;
    }
    try {
      await send('POST', `/v1/nodes/${encodeURIComponent(node.name)}/${verb}`);
      toast(`${node.name} ${a.done}.`, 'good');
    } catch (e) {
      toast(`${a.text} of ${node.name}: ${e.message}`, 'bad');
    }
    it.reload();
  };
  return html`<${Heading} title="Nodes" sub="Processes that share the work. Each entity belongs to a partition, and one node at a time processes the commands of a partition." />
    ${drawn(it, () => html`
      <div class="stats">
        <${Stat} label="Take work" icon="node" value=${list.filter((n) => n.state === 'live').length} hint=${`of ${list.length} ${list.length === 1 ? 'node' : 'nodes'}`} tone=${list.some((n) => n.state === 'live') ? undefined : 'bad'} />
        <${Stat} label="Partitions" icon="machine" value=${it.data.partitions} hint=${none ? `${none} without a node now` : 'each has a node'} tone=${none ? 'warn' : undefined} />
        ${it.data.leads && html`<${Stat} label="Leads here" icon="stream" value=${it.data.leads.streams} hint=${`streams, and ${it.data.leads.consumers} consumers${it.data.leads.meta ? ', and the metadata' : ''}`} />`}
      </div>
      <div class="grid grid-wide">${list.map((n) => html`<${NodeCard} key=${n.name} n=${n} total=${it.data.partitions} act=${act} />`)}</div>
      <div class="stack"><p class="faint small">The same on the command line:</p><${Command} text=${`instar node drain ${list[0]?.name || 'NAME'}`} /></div>`)}`;
}

function NodeCard({ n, total, act }) {
  const [kind, icon, text] = states[n.state] || ['unknown', 'help', ''];
  return html`<${Card} title=${html`<span class="mono">${n.name}</span>`} action=${html`<${Mark} kind=${kind} icon=${icon} title=${text}>${n.state}</${Mark}>`}>
    <div class="stack">
      <p class="small faint">${text}${n.want !== n.state ? `; it is to be ${n.want}` : ''}${n.self ? '. It answered this page' : ''}.</p>
      <div class="parts" role="img" aria-label=${`It has ${n.partitions.length} of ${total} partitions`}>${Array.from({ length: total }, (_, i) => html`<span class=${classes('part', n.partitions.includes(i) && 'part-own')} title=${`partition ${i}`}></span>`)}</div>
      <${Rows} of=${{ Partitions: html`<span class="num">${count(n.partitions.length)}</span>`, Roles: n.roles.length ? html`<span class="labels">${n.roles.map((r) => html`<span class="label">${r}</span>`)}</span>` : 'none',
    'Runs for': html`<${Since} at=${n.started} />`, Version: n.version && html`<span class="mono small">${n.version}</span>`, API: n.url && html`<span class="mono small">${n.url}</span>` }} />
      ${may('admin') && html`<div class="chips">${(offered[n.want] || []).map((verb) => html`<button type="button" class=${'button' + (verb === 'drain' ? ' button-warn' : '')} onClick=${() => act(n, verb)}>${acts[verb].text}</button>`)}</div>`}
    </div></${Card}>`;
}
