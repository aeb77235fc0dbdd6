// What is around every page: the side with the pages and machines, the bar with search, the state of the connection and settings, and the menu on phones.
import { html, classes, useEffect, useRef, useState } from './base.js';
import { Icon } from './icons.js';
import { paused, store, stored, useResource, useStore } from './store.js';
import { isName, machineURL, machines, ofMachines, own, session, signOut } from './api.js';
import { connection, pause, resume, retry } from './live.js';
import { needing, useCounts } from './counts.js';
import { isList, isThere, nav } from './pages.js';
import { place, useQuery } from './router.js';
import { count, prefs } from './time.js';
import { showHelp, showPalette } from './keys.js';
import { toast } from './toast.js';

/** menuOpen is whether the side is shown on a phone. */
const menuOpen = store(false);

/** namespace is what lists show: a name, or '*' for all that the reader may see. It is remembered until somebody else looks; the address of a list says it, too, so that who is passed that on sees the same list. */
export const namespace = stored('namespace', '*');

const looked = stored('looked', ''); // who did last, also after signing out, or a session that has ended
session.follow((who) => {
  if (!who?.name) return;
  if (looked.get() && who.name !== looked.get()) namespace.set('*');
  looked.set(who.name);
});

/** useNamespace is that of a list: that of the session, if it sees no other; or what the address says; or what was chosen before. It is written into the address. */
export function useNamespace() {
  const [query, setQuery] = useQuery();
  const { path } = useStore(place);
  const ns = useStore(namespace);
  const only = own(useStore(session));
  const given = isList(path) ? query.get('namespace') : null; // a list is still drawn while the page behind a link is loaded
  useEffect(() => {
    if (given && !only) namespace.set(given);
    else if (isList(path) && given !== (only || ns)) setQuery({ namespace: only || ns });
  }, [given, path, only]);
  return only || given || ns;
}

export function Frame({ children }) {
  const open = useStore(menuOpen);
  const { path } = useStore(place);
  useEffect(() => menuOpen.set(false), [path]);
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById('main').focus(); }}>Skip to the page</a>
    <div class=${classes('frame', open && 'menu-open')}>
      <${Side} path=${path} />
      <div class="veil" onClick=${() => menuOpen.set(false)}></div>
      <div class="body"><${Bar} /><main id="main" tabindex="-1">${children}</main></div>
    </div>`;
}

function Side({ path }) {
  const all = ofMachines(useResource(() => machines(), []));
  const here = ({ href, machine }) => (path === href.replace(/\/$/, '') || path === href || (machine && path.startsWith(href + '/')) ? 'page' : undefined);
  return html`<aside class="side" aria-label="Console">
    <a class="brand" href="/ui/"><svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true"><rect width="32" height="32" rx="8" class="brand-box" /><path d="M9 22V10M9 16h6l4-6h4M15 16l4 6h4" class="brand-line" /><circle cx="9" cy="16" r="2.800" class="brand-dot" /></svg><span>Instar</span></a>
    <nav aria-label="Pages">
      <ul>${nav.filter((n) => isThere(n, all.data)).map((n) => html`<li><a href=${n.href} aria-current=${here(n)}><${Icon} name=${n.icon} /><span>${n.text}</span></a></li>`)}</ul>
      <h2>Machines</h2>
      <ul>${(all.data || []).map((m) => html`<li key=${m.name}><${MachineLink} m=${m} current=${path === machineURL(m) || path.startsWith('/ui/entities/' + m.name + '/') ? 'page' : undefined} /></li>`)}</ul>
    </nav>
    <footer class="side-foot"><div class="side-set"><${Namespace} /><${Settings} /></div><a href="/docs"><${Icon} name="help" />API and docs</a><span class="faint small">${document.querySelector('meta[name=instar-version]')?.content}</span></footer>
  </aside>`;
}

function MachineLink({ m, current }) {
  const states = useCounts(m.name).data || {};
  const failed = needing(m, states);
  const lives = m.states.filter((s) => !s.terminal).reduce((n, s) => n + (states[s.name] || 0), 0);
  return html`<a href=${machineURL(m)} aria-current=${current}><span class=${classes('dot', failed > 0 && 'dot-bad')} aria-hidden="true"></span><span>${m.plural}</span>
    ${failed > 0 && html`<span class="badge badge-bad num" title=${failed + ' needing somebody'}>${count(failed)}<span class="hidden-text"> needing somebody, of </span></span>`}<span class="badge num">${count(lives)}</span></a>`;
}

function Bar() {
  const who = useStore(session);
  return html`<header class="bar">
    <button type="button" class="button button-quiet menu-button" aria-label="Menu" onClick=${() => menuOpen.set((o) => !o)}><${Icon} name="menu" /></button>
    <button type="button" class="search" onClick=${showPalette}><${Icon} name="search" /><span>Find an entity, a machine, a page</span><kbd>/</kbd></button>
    <${Namespace} />
    <${Connection} />
    ${who?.readOnly && html`<span class="pill" title="What would change something is refused (ui.readonly)">Read-only</span>`}
    <${Settings} />
    <button type="button" class="button button-quiet help-button" aria-label="Keys" title="Keys (?)" onClick=${showHelp}><${Icon} name="help" /></button>
    ${who && !who.open && who.signedIn && html`<${Account} who=${who} />`}
  </header>`;
}

const states = {
  live: ['Live', 'good', 'What is shown follows what happens. Press to pause.'],
  connecting: ['Connecting', 'warn', 'The stream of changes is being opened.'],
  reconnecting: ['Reconnecting', 'bad', 'The server does not answer: what is shown may be old. Press to try now.'],
  stale: ['Stale', 'bad', 'This node hears nothing of the others: what is shown may be old. Press to connect anew.'],
  paused: ['Paused', 'warn', 'What is shown stays as it is. Press to go on.'],
  signedout: ['Signed out', 'bad', 'The session has ended.'],
};

function Connection() {
  const held = useStore(paused);
  const stream = useStore(connection);
  const state = held ? 'paused' : stream;
  const [text, tone, title] = states[state];
  const act = () => (state === 'paused' ? resume() : state === 'live' ? pause() : retry());
  return html`<button type="button" class=${'pill pill-' + tone} title=${title} onClick=${act}><span class=${classes('dot', 'dot-' + tone, state === 'live' && 'dot-live')} aria-hidden="true"></span>
    <span aria-live="polite">${text}</span><${Icon} name=${state === 'paused' ? 'play' : state === 'live' ? 'pause' : 'spin'} /></button>`;
}

function Namespace() {
  const ns = useStore(namespace);
  const who = useStore(session);
  const [, setQuery] = useQuery();
  const [editing, edit] = useState(false);
  const input = useRef();
  const left = useRef(false); // by Escape, after which some browsers tell of a blur, too
  useEffect(() => { left.current = false; if (editing) input.current?.select(); }, [editing]);
  if (own(who)) return html`<span class="pill namespace" title="The token is good for this namespace only">${own(who)}</span>`;
  const done = (text) => {
    if (left.current) return;
    const to = text || '*';
    if (to !== '*' && !isName(to)) toast(`${to} is no name of a namespace: small letters, digits and dashes, up to 63`, 'bad');
    else if (isList(place.get().path)) setQuery({ namespace: to }); else namespace.set(to);
    edit(false);
  };
  if (editing) {
    return html`<form autocapitalize="none" class="namespace" onSubmit=${(e) => { e.preventDefault(); done(input.current.value.trim()); }}>
      <input ref=${input} class="input" aria-label="Namespace; * is all" value=${ns} onBlur=${(e) => done(e.target.value.trim())} onKeyDown=${(e) => { if (e.key === 'Escape') { left.current = true; edit(false); } }} /></form>`;
  }
  return html`<button type="button" class="pill namespace" title="The namespace that lists show. Press to change." onClick=${() => edit(true)}>${ns === '*' ? 'All namespaces' : ns}</button>`;
}

function Settings() {
  const p = useStore(prefs);
  const next = (list, v) => list[(list.indexOf(v) + 1) % list.length];
  const theme = { system: 'system', light: 'sun', dark: 'moon' }[p.theme];
  return html`<button type="button" class="button button-quiet clock-button" title=${`Times are ${p.clock}. Press to change.`} onClick=${() => prefs.set((v) => ({ ...v, clock: next(['relative', 'local', 'utc'], v.clock) }))}><${Icon} name="clock" /><span>${p.clock === 'utc' ? 'UTC' : p.clock}</span></button>
    <button type="button" class="button button-quiet" aria-label=${`Colours: ${p.theme}. Press to change.`} title=${`Colours: ${p.theme}`} onClick=${() => prefs.set((v) => ({ ...v, theme: next(['system', 'light', 'dark'], v.theme) }))}><${Icon} name=${theme} /></button>`;
}

function Account({ who }) {
  return html`<details class="account"><summary class="button button-quiet" aria-label=${'Signed in as ' + who.name}><${Icon} name="user" /></summary>
    <div class="account-menu"><p><b>${who.name}</b><br /><span class="faint small">role ${who.role}${who.namespace !== '*' ? ', namespace ' + who.namespace : ''}</span></p>
      <button type="button" class="button" onClick=${() => signOut().catch((e) => toast('You are still signed in: ' + e.message, 'bad'))}>Sign out</button></div></details>`;
}
