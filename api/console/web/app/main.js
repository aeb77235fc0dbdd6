// Where the console begins: who looks, the theme, the stream of changes, the keyboard, and the page that the address names.
import { html, render, useEffect, useRef, useState } from './base.js';
import { useStore } from './store.js';
import { loadSession, session } from './api.js';
import { Failure, Heading, Loading } from './parts.js';
import { Frame } from './frame.js';
import { SignIn } from './signin.js';
import { applyTheme } from './time.js';
import { match, place, start as followLinks } from './router.js';
import { connection, start as listen } from './live.js';
import { start as keys } from './keys.js';
import { routes } from './pages.js';

const modules = new Map();

/** loaded is the page for a path: {Page, params}, null where there is none. */
async function loaded(path) {
  for (const [pattern, load] of routes) {
    const params = match(pattern, path);
    if (!params) continue;
    if (!modules.has(pattern)) modules.set(pattern, (await load()).default);
    return { Page: modules.get(pattern), params };
  }
  return null;
}

/** shown is what App shows for a path. */
const shown = (path) => loaded(path).then((p) => ({ path, ...(p || { missing: true }) }), () => ({ path, broken: true }));

const begun = {}; // the first page, where the stream of changes begins, and why nobody knows yet who looks

function App() {
  const who = useStore(session);
  const { path } = useStore(place);
  const [page, setPage] = useState(begun.page);
  const [error, setError] = useState(begun.error);
  const first = useRef(true);
  const ask = () => loadSession().then(() => setError(undefined), setError);
  useEffect(() => {
    if (page.path === path) return;
    let gone = false;
    shown(path).then((p) => !gone && setPage(p));
    return () => { gone = true; };
  }, [path]);
  useEffect(() => { if (who) listen(); }, [!who]); // also for who has not signed in yet: that may be done in another tab
  useEffect(() => connection.follow((is) => { if (['live', 'signedout'].includes(is)) ask(); }), []); // somebody may have signed in or out in another tab, or the session has ended
  useEffect(() => {
    if (!page.path) return;
    if (first.current) { first.current = false; return; }
    document.querySelector('#main h1')?.focus({ preventScroll: true });
  }, [page.path]);
  useEffect(() => {
    if (!error) return;
    const timer = setTimeout(ask, 2000);
    return () => clearTimeout(timer);
  }, [error]);
  if (!who) return error ? html`<main class="alone"><h1 class="hidden-text">Instar</h1><${Failure} error=${error} retry=${ask} /></main>` : null;
  if (!who.role) return html`<${SignIn} />`;
  const { Page, params } = page;
  return html`<${Frame}>${page.missing ? html`<${Missing} path=${path} />` : page.broken ? html`<${Broken} />` : Page ? html`<${Page} key=${path + who.name} params=${params} />` : html`<${Loading} />`}</${Frame}>`;
}

function Missing({ path }) {
  return html`<${Heading} title="There is no such page" /><div class="card"><p>The console has nothing at <code>${path}</code>.</p>
    <p>Machines are at <code>/ui/machines/NAME</code>, entities at <code>/ui/entities/MACHINE/ID</code>.</p><p><a class="button" href="/ui/">Go home</a></p></div>`;
}

/** Broken is for a page that could not be loaded: the program has been replaced by another version, or does not run. */
function Broken() {
  return html`<${Heading} title="This page could not be loaded" /><div class="card"><p>The server may run another version by now, or not at all.</p><p><button class="button button-main" onClick=${() => location.reload()}>Load again</button></p></div>`;
}

applyTheme();
followLinks();
keys();
// What the page stands on is asked for before it is drawn; until then there is what index.html has. So is where the stream of changes begins: what the page loads is not to be older than that. But it is not waited for for long.
const counts = fetch('/v1/counts', { credentials: 'same-origin' }).then(async (res) => { if (res.ok) begun.counts = (await res.json()).items; }).catch(() => {});
await Promise.all([
  loadSession().catch((error) => { begun.error = error; }),
  shown(place.get().path).then((page) => { begun.page = page; }),
  Promise.race([counts, new Promise((resolve) => { setTimeout(resolve, 100); })]),
]);
if (session.get()) listen(begun.counts);
const app = document.getElementById('app');
app.replaceChildren();
render(html`<${App} />`, app);
