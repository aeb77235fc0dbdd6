// Dialogs: Dialog({title, onClose, children, wide}) is one, in front of the page, closed by Escape. ask({title, text, name, action, tone}) asks before something that
// cannot be undone and answers true or false; with name, the name of the thing has to be typed.
import { html, classes, render, useLayoutEffect, useRef, useState } from './base.js';
import { session } from './api.js';
import { Icon } from './icons.js';
import { useStore } from './store.js';

export function Dialog({ title, onClose, children, wide }) {
  const ref = useRef();
  const before = useRef(document.activeElement);
  const here = !!useStore(session)?.role; // while a session has ended, it is not in front of what begins another one, but there
  useLayoutEffect(() => {
    const d = ref.current;
    if (here) d.showModal();
    return () => { if (d.open) d.close(); };
  }, [here]);
  useLayoutEffect(() => () => before.current?.focus?.(), []);
  const beside = (e) => { // it, and not its scrollbar
    const r = ref.current.getBoundingClientRect();
    return e.target === ref.current && (e.clientX < r.left || e.clientX > r.right || e.clientY < r.top || e.clientY > r.bottom);
  };
  return html`<dialog ref=${ref} class=${classes('dialog', wide && 'dialog-wide')} aria-label=${title} onCancel=${(e) => { e.preventDefault(); onClose(); }}
    onMouseDown=${(e) => beside(e) && onClose()}>
    <div class="dialog-body">
      <header class="dialog-head"><h2>${title}</h2><button type="button" class="button button-quiet" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
      ${children}
    </div>
  </dialog>`;
}

const looks = () => JSON.stringify([session.get()?.name, session.get()?.role]);

/** open shows a component, which gets close(answer), and answers what it closes with; nothing if somebody else looks now, as it shows what was for another; the end of a session alone closes nothing, as the same one may come back. */
export function open(component, props = {}) {
  return new Promise((resolve) => {
    const who = looks();
    const unfollow = session.follow((s) => s?.role && who !== looks() && close());
    const at = document.createElement('div');
    document.body.append(at);
    const close = (answer) => {
      unfollow();
      render(null, at);
      at.remove();
      resolve(answer);
    };
    render(html`<${component} ...${props} close=${close} />`, at);
  });
}

export const ask = (question) => open(Ask, question);

function Ask({ title, text, name, action = 'Go on', tone = 'danger', close }) {
  const [typed, set] = useState('');
  const ready = !name || typed === name;
  return html`<${Dialog} title=${title} onClose=${() => close(false)}>
    <form autocapitalize="none" onSubmit=${(e) => { e.preventDefault(); if (ready) close(true); }}>
      <p>${text}</p>
      ${name && html`<label class="field"><span>Type <b class="mono">${name}</b> to confirm</span><input class="input mono" autocomplete="off" autofocus value=${typed} onInput=${(e) => set(e.target.value)} /></label>`}
      <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close(false)}>Cancel</button>
        <button type="submit" class=${'button button-' + tone} disabled=${!ready}>${action}</button></footer>
    </form>
  </${Dialog}>`;
}
