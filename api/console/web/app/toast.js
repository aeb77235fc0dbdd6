// Short messages that go by themselves: toast(text, tone, link), tone 'good', 'bad' or none; link is {href, text}. Bad ones stay until they are closed. They are
// drawn into a region of their own, which is read aloud.
import { html, render } from './base.js';
import { Icon } from './icons.js';

let all = [];
let next = 1;

export function toast(text, tone = '', link) {
  const id = next++;
  all = [...all.slice(-4), { id, text, tone, link }];
  draw();
  if (tone !== 'bad') setTimeout(() => drop(id), 6000);
}

function drop(id) {
  all = all.filter((t) => t.id !== id);
  draw();
}

function draw() {
  const at = document.getElementById('toasts');
  render(html`${all.map((t) => html`<div key=${t.id} class=${'toast toast-' + (t.tone || 'plain')} role=${t.tone === 'bad' ? 'alert' : 'status'}>
    <${Icon} name=${t.tone === 'bad' ? 'alert' : 'check'} /><span>${t.text} ${t.link && html`<a href=${t.link.href}>${t.link.text}</a>`}</span>
    <button type="button" class="button button-quiet" aria-label="Close the message" onClick=${() => drop(t.id)}><${Icon} name="close" /></button></div>`)}`, at);
}
