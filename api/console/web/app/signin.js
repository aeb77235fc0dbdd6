// The page for those who have no session: a provider, or a token, opens one.
import { html, useEffect, useRef, useState } from './base.js';
import { session, signIn } from './api.js';
import { Failure } from './parts.js';
import { navigate } from './router.js';
import { useStore } from './store.js';

const whys = { // of ?signin=, as the server says why the provider let nobody in
  denied: 'The provider did not let you in. Try again, or ask those who look after it.',
  expired: 'The sign-in took more than ten minutes, or was begun in another tab or browser. Begin again.',
  unknown: 'The provider knows you, but no row of auth.oidc.roles says what you may do here. Ask an admin of this server: its log names your claims.',
  invalid: 'The answer of the provider does not hold. Its log, and that of this server, say why: often a clock, the secret of the client, or its registered address.',
  unreachable: 'The provider does not answer. Try again, or use a token. The log of this server says more.',
};

export function SignIn() {
  const { provider } = useStore(session);
  const [token, setToken] = useState('');
  const query = new URLSearchParams(location.search);
  const why = whys[query.get('signin')];
  query.delete('signin');
  const here = location.pathname + (query.size ? '?' + query : '');
  const [error, setError] = useState(why && { title: 'Nobody has signed in', message: why });
  const [busy, setBusy] = useState(false);
  const input = useRef();
  useEffect(() => { document.title = 'Sign in · Instar'; if (!provider) input.current.focus(); }, []);
  const go = async (e) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try { await signIn(token.trim()); navigate(here, { replace: true }); } catch (err) { setError(err); setBusy(false); }
  };
  return html`<main class="alone"><form autocapitalize="none" class="card signin" onSubmit=${go}>
    <h1>Sign in to Instar</h1>
    ${provider && html`<p><a class="button button-main" href=${provider.href + '?to=' + encodeURIComponent(here)}>Sign in at ${provider.name}</a></p>`}
    <p class="sub">${provider ? 'Or with a token' : 'This server asks for a token'}. It is one of those in <code>auth.tokens</code> of its configuration, and is exchanged for a session of 12 hours.</p>
    <label class="field"><span class="field-name">Token</span><input ref=${input} class="input mono" type="password" autocomplete="current-password" value=${token} onInput=${(e) => setToken(e.target.value)} /></label>
    <${Failure} error=${error} small />
    <button type="submit" class=${'button' + (provider ? '' : ' button-main')} disabled=${busy || !token.trim()}>${busy ? 'Signing in…' : 'Sign in'}</button>
  </form></main>`;
}
