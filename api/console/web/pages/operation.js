// A batch: one command for many, how far it is, what was refused, and Stop. Its address comes from where it was sent; no list of batches is kept.
import { html } from '../app/base.js';
import { machineURL } from '../app/api.js';
import { Card, Failure, Heading, Loading } from '../app/parts.js';
import { Time } from '../app/time.js';
import { Progress, Stop, useOperation } from './bulk.js';

export default function Operation({ params }) {
  const it = useOperation(params.operation);
  const op = it.data;
  if (!op) return html`<${Heading} title="Operation" crumbs=${[{ href: '/ui/machines', text: 'Machines' }]} /><${Failure} error=${it.error} retry=${it.reload} />${!it.error && html`<${Loading} />`}`;
  const { machine, command, namespace, parent, startedAt, updatedAt, step } = op.metadata;
  const row = (name, value) => value && html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  return html`<${Heading} title=${`${command} of ${op.kind === 'batch' ? 'many' : 'one'}`} sub=${html`A batch sends one command to all that were selected, or that match; it goes on without this page.`} crumbs=${[{ href: machineURL(machine), text: machine }]}>
      ${op.kind === 'batch' && html`<${Stop} op=${op} reload=${it.reload} />`}</${Heading}>
    <${Failure} error=${it.error} small />
    <${Card}><${Progress} op=${op} m=${machine} />${step === 'stalled' && html`<p class="small">It goes on when who sent it sends it again under its <span class="mono">Idempotency-Key</span>.</p>`}</${Card}>
    <${Card} title="Facts"><dl class="facts-list">${row('Machine', machine)}${row('Command', command)}${row('Namespace', namespace === '*' ? 'all' : namespace)}${row('Parent', parent)}${row('Step', step)}${row('Began', startedAt && html`<${Time} at=${startedAt} />`)}${row('Last sign', updatedAt && html`<${Time} at=${updatedAt} />`)}</dl></${Card}>`;
}
