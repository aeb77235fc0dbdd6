// A batch: one command for many, how far it is, what was refused, and Stop.
import { html } from '../app/base.js';
import { machineURL } from '../app/api.js';
import { Card, Failure, Heading, Rows, drawn } from '../app/parts.js';
import { Time } from '../app/time.js';
import { Step } from './operations.js';
import { Progress, Stop, useOperation } from './bulk.js';

const batches = { href: '/ui/operations', text: 'Batches' };

export default function Operation({ params }) {
  const it = useOperation(params.operation);
  const op = it.data;
  if (!op) return html`<${Heading} title="Operation" crumbs=${[batches]} />${drawn(it)}`;
  const { machine, command, namespace, parent, startedAt, updatedAt, step, actor, reason } = op.metadata;
  return html`<${Heading} title=${`${command} of ${op.kind === 'batch' ? 'many' : 'one'}`} sub=${html`A batch sends one command to all that were selected, or that match; it goes on without this page.`} crumbs=${[batches]}>
      ${op.kind === 'batch' && html`<${Stop} op=${op} reload=${it.reload} />`}</${Heading}>
    <${Failure} error=${it.error} small />
    <${Card}><${Progress} op=${op} m=${machine} />${step === 'stalled' && html`<p class="small">It goes on when who sent it sends it again under its <span class="mono">Idempotency-Key</span>.</p>`}</${Card}>
    <${Card} title="Facts"><${Rows} of=${{ Machine: html`<a href=${machineURL(machine)}>${machine}</a>`, Command: command, Namespace: namespace === '*' ? 'all' : namespace, Parent: parent, 'Sent by': actor, Reason: reason, Step: html`<${Step} step=${step} />`, Began: startedAt && html`<${Time} at=${startedAt} />`, 'Last sign': updatedAt && html`<${Time} at=${updatedAt} />` }} /></${Card}>`;
}
