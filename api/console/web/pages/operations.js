// Batches: those that run, and those that ended within the last week, with Stop; whoever has left the page of one finds it again here.
import { html } from '../app/base.js';
import { atLeast } from '../app/api.js';
import { useNamespace } from '../app/frame.js';
import { Empty, Heading, Mark, drawn } from '../app/parts.js';
import { every, useResource } from '../app/store.js';
import { Table } from '../app/table.js';
import { Time, count } from '../app/time.js';
import { operationURL, Stop } from './bulk.js';

const kinds = { running: ['moving'], cancelling: ['moving'], stalled: ['failed'], expired: ['failed'], cancelled: ['ended'], done: ['steady', 'check'] };

/** Step says how a batch stands, in a word with an icon. */
export function Step({ step }) {
  const [kind, icon] = kinds[step] || ['unknown'];
  return html`<${Mark} kind=${kind} icon=${icon}>${step}</${Mark}>`;
}

export default function Operations() {
  const ns = useNamespace();
  const it = useResource((signal) => atLeast(1, '/v1/batches', { namespace: ns, limit: 100 }, signal), [ns]);
  every(it, it.data?.items.some((op) => !op.done) ? 2000 : 15000);
  const p = (op) => op.metadata.progress || {};
  const columns = [
    { text: 'Command', cell: (op) => op.metadata.command },
    { text: 'Of', cell: (op) => op.metadata.machine },
    { text: 'Stands', cell: (op) => html`<${Step} step=${op.metadata.step} />` },
    { text: 'Had their turn', class: 'cell-end num', cell: (op) => count(p(op).matched || 0) },
    { text: 'Refused', class: 'cell-end num', cell: (op) => html`<span class=${p(op).refused ? 'bad' : 'faint'}>${count(p(op).refused || 0)}</span>` },
    { text: 'Namespace', cell: (op) => (op.metadata.namespace === '*' ? 'all' : op.metadata.namespace) },
    { text: 'Sent by', cell: (op) => html`<span class="cell-text" title=${op.metadata.reason}>${op.metadata.actor}${op.metadata.reason && html` <span class="faint">${op.metadata.reason}</span>`}</span>` },
    { text: 'Began', cell: (op) => html`<${Time} at=${op.metadata.startedAt} />` },
    { text: html`<span class="hidden-text">Stop</span>`, cell: (op) => html`<${Stop} op=${op} reload=${it.reload} />` },
  ];
  return html`<${Heading} title="Batches" sub="A batch sends one command to many entities. It goes on without a page, and is kept for a week after its end." />
    ${drawn(it, (d) => html`<${Table} label="Batches" columns=${columns} rows=${d.items} keyOf=${(op) => op.name} hrefOf=${(op) => operationURL(op.name)}
        empty=${html`<${Empty} icon="batch" title="No batch was sent"><p>On the page of a machine a command can be sent to all that are selected, or that match.</p></${Empty}>`} />
      ${d.more && html`<p class="faint small">These are the 100 that changed last.</p>`}`)}`;
}
