// The page for those who have no session: a token opens one.
import { html, useEffect, useRef, useState } from './base.js';
import { signIn } from './api.js';
import { Failure } from './parts.js';

export function SignIn() {
  const [token, setToken] = useState('');
  const [error, setError] = useState();
  const [busy, setBusy] = useState(false);
  const input = useRef();
  useEffect(() => { document.title = 'Sign in · Instar'; input.current.focus(); }, []);
  const go = async (e) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try { await signIn(token.trim()); } catch (err) { setError(err); setBusy(false); }
  };
  return html`<main class="alone"><form class="card signin" onSubmit=${go}>
    <h1>Sign in to Instar</h1>
    <p class="sub">This server asks for a token. It is one of those in <code>auth.tokens</code> of its configuration, and is exchanged for a session of 12 hours.</p>
    <label class="field"><span class="field-name">Token</span><input ref=${input} class="input mono" type="password" autocomplete="current-password" value=${token} onInput=${(e) => setToken(e.target.value)} /></label>
    <${Failure} error=${error} small />
    <button type="submit" class="button button-main" disabled=${busy || !token.trim()}>${busy ? 'Signing in…' : 'Sign in'}</button>
  </form></main>`;
}
