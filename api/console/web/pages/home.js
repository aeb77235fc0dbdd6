// Home: what runs here in one look.
import { html } from '../app/base.js';
import { machines } from '../app/api.js';
import { Failure, Heading, Loading } from '../app/parts.js';
import { useResource } from '../app/store.js';
import { MachineCard } from './machines.js';

export default function Home() {
  const all = useResource(() => machines(), []);
  return html`<${Heading} title="Home" />
    <${Failure} error=${all.error} retry=${all.reload} />
    ${!all.data && !all.error ? html`<${Loading} />` : html`<div class="grid">${(all.data || []).map((m) => html`<${MachineCard} key=${m.name} m=${m} />`)}</div>`}`;
}
