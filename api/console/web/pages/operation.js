// A batch: one command for many, how far it is, what was refused, and Stop.
import { html } from '../app/base.js';
import { machineURL } from '../app/api.js';
import { Card, Failure, Heading, Loading } from '../app/parts.js';
import { Time } from '../app/time.js';
import { Step } from './operations.js';
import { Progress, Stop, useOperation } from './bulk.js';

const batches = { href: '/ui/operations', text: 'Batches' };

export default function Operation({ params }) {
  const it = useOperation(params.operation);
  const op = it.data;
  if (!op) return html`<${Heading} title="Operation" crumbs=${[batches]} /><${Failure} error=${it.error} retry=${it.reload} />${!it.error && html`<${Loading} />`}`;
  const { machine, command, namespace, parent, startedAt, updatedAt, step, actor, reason } = op.metadata;
  const row = (name, value) => value && html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  return html`<${Heading} title=${`${command} of ${op.kind === 'batch' ? 'many' : 'one'}`} sub=${html`A batch sends one command to all that were selected, or that match; it goes on without this page.`} crumbs=${[batches]}>
      ${op.kind === 'batch' && html`<${Stop} op=${op} reload=${it.reload} />`}</${Heading}>
    <${Failure} error=${it.error} small />
    <${Card}><${Progress} op=${op} m=${machine} />${step === 'stalled' && html`<p class="small">It goes on when who sent it sends it again under its <span class="mono">Idempotency-Key</span>.</p>`}</${Card}>
    <${Card} title="Facts"><dl class="facts-list">${row('Machine', html`<a href=${machineURL(machine)}>${machine}</a>`)}${row('Command', command)}${row('Namespace', namespace === '*' ? 'all' : namespace)}${row('Parent', parent)}${row('Sent by', actor)}${row('Reason', reason)}${row('Step', html`<${Step} step=${step} />`)}${row('Began', startedAt && html`<${Time} at=${startedAt} />`)}${row('Last sign', updatedAt && html`<${Time} at=${updatedAt} />`)}</dl></${Card}>`;
}
