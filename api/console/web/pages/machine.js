// A machine: its diagram with how many are in each state, and the list of its entities. All filters are in the address.
import { html } from '../app/base.js';
import { get, machine, machineURL, may, ofAll, ofMachines } from '../app/api.js';
import { Diagram } from '../app/diagram.js';
import { openCommand } from '../app/command.js';
import { statesOf } from '../app/counts.js';
import { useNamespace } from '../app/frame.js';
import { Icon } from '../app/icons.js';
import { useReload } from '../app/live.js';
import { Card, Failure, Heading, drawn } from '../app/parts.js';
import { every, stored, useResource, useStore } from '../app/store.js';
import { List } from './list.js';

const folded = stored('diagram.folded', false);
const timed = stored('diagram.times', false);

export default function Machine({ params }) {
  const it = ofMachines(useResource(() => machine(params.machine), [params.machine]));
  return it.data ? html`<${Shown} m=${it.data} />` : html`<${Heading} title=${it.error ? `No machine ${params.machine}` : params.machine} crumbs=${[{ href: '/ui/machines', text: 'Machines' }]} />${drawn(it)}`;
}

function Shown({ m }) {
  const ns = useNamespace();
  const fold = useStore(folded);
  const counts = useResource((signal) => get(`/v1/machines/${m.name}/counts`, { namespace: ns }, signal), [m.name, ns]);
  useReload(counts.reload, { machine: m.name }, 250);
  const asked = useStore(timed) && ofAll(); // these numbers are of all namespaces
  const times = every(useResource((signal) => (asked ? get(`/v1/machines/${m.name}/stays`, {}, signal).then(({ data }) => Object.fromEntries(data.states.map((s) => [s.state, s]))) : Promise.resolve(undefined)), [m.name, asked]), 5000);
  const states = counts.data && statesOf(counts.data.data);
  const births = m.commands.filter((c) => c.birth && !c.report);
  return html`<${Heading} title=${m.plural} sub=${m.doc} crumbs=${[{ href: '/ui/machines', text: 'Machines' }]}>
      ${births.filter((c) => may(c.admin ? 'admin' : 'operate')).slice(0, 3).map((c, i) => html`<button type="button" class=${'button' + (i === 0 ? ' button-main' : '')} onClick=${() => openCommand({ m, command: c })}>${c.name} ${m.name}</button>`)}
    </${Heading}>
    <${Failure} error=${counts.error || times.error} small />
    <${Card} title="States" action=${html`${!fold && ofAll() && html`<button type="button" class="chip" aria-pressed=${asked} onClick=${() => timed.set(!asked)} title="How long entities stay in each state: half of them, and 95 %, of the last 500 that left it"><${Icon} name="clock" />Time in state</button>`}<button type="button" class="button button-quiet small" aria-expanded=${!fold} onClick=${() => folded.set(!fold)}><${Icon} name=${fold ? 'right' : 'down'} />${fold ? 'Show the diagram' : 'Hide'}</button>`}>
      ${!fold && html`<${Diagram} m=${m} counts=${states} times=${asked ? times.data : undefined} hrefOf=${(state) => machineURL(m, { state })} />`}
    </${Card}>
    <${List} m=${m} ns=${ns} states=${states} />`;
}
