// All machines: what each is for, and how many are in which state.
import { html } from '../app/base.js';
import { machineURL, machines, ofMachines } from '../app/api.js';
import { needing, useCounts } from '../app/counts.js';
import { Failure, Heading, drawn, kindOf, kinds } from '../app/parts.js';
import { Icon } from '../app/icons.js';
import { useResource } from '../app/store.js';
import { count } from '../app/time.js';

export default function Machines() {
  const all = ofMachines(useResource(() => machines(), []));
  return html`<${Heading} title="Machines" sub="A machine is a table of states and of what leads from one to another. Everything here is one." />
    ${drawn(all, (ms) => html`<div class="grid">${ms.map((m) => html`<${MachineCard} key=${m.name} m=${m} />`)}</div>`)}`;
}

/** MachineCard is one machine with a bar of its states; those without entities are left out of it. */
export function MachineCard({ m }) {
  const counts = useCounts(m.name);
  const states = counts.data || {};
  const there = m.states.filter((s) => states[s.name] > 0);
  const parked = states[''];
  const total = there.reduce((n, s) => n + states[s.name], parked || 0);
  const failed = needing(m, states) - parked;
  const moving = there.filter((s) => s.transitional).reduce((n, s) => n + states[s.name], 0);
  return html`<article class="card machine-card">
    <header class="card-head"><h2><a href=${machineURL(m)}>${m.plural}</a></h2><span class="num machine-total">${counts.data ? count(total) : '…'}</span></header>
    <p class="faint small machine-doc">${m.doc}</p>
    <div class="share" aria-hidden="true">${there.map((s) => html`<span class=${'share-' + kindOf(m, s.name)} style=${{ flexGrow: states[s.name] }}></span>`)}</div>
    <ul class="chips">${there.slice(0, 5).map((s) => html`<li><a class=${'state state-' + kindOf(m, s.name)} href=${machineURL(m, { state: s.name })}><${Icon} name=${kinds[kindOf(m, s.name)].icon} />${s.name} <span class="num">${count(states[s.name])}</span></a></li>`)}
      ${there.length > 5 && html`<li class="faint small" title=${there.slice(5).map((s) => `${s.name} ${states[s.name]}`).join(', ')}>and ${count(there.slice(5).reduce((n, s) => n + states[s.name], 0))} in ${there.length - 5} others</li>`}
      ${counts.data && !total && html`<li class="faint small">none yet</li>`}</ul>
    <footer class="machine-foot small">${failed > 0 ? html`<a class="bad" href=${machineURL(m, { preset: 'failed' })}>${count(failed)} ${failed === 1 ? 'needs' : 'need'} somebody</a>` : total > 0 && !parked && html`<span class="faint">none needs somebody</span>`}
      ${parked > 0 && html`<a class="bad" href=${machineURL(m, { preset: 'parked' })}>${count(parked)} unreadable</a>`}
      ${moving > 0 && html`<a href=${machineURL(m, { preset: 'moving' })}>${count(moving)} on their way</a>`}</footer>
    <${Failure} error=${counts.error} small />
  </article>`;
}
