// Signing in by a provider of OpenID Connect, in a real browser: the cookies have to come along over three sites' worth of redirects. The provider is the test's own.
import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { desktop, freePort, launch, openPage, Server, violations } from './server.mjs';

const b64 = (v) => Buffer.from(v).toString('base64url');

/** provider lets in whom it is told, at another site than the console: localhost is not 127.0.0.1. */
async function provider() {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const codes = new Map();
  const p = { claims: {} };
  const json = (res, v, status = 200) => res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(v));
  const web = createServer(async (req, res) => {
    const url = new URL(req.url, p.issuer);
    const q = url.searchParams;
    if (url.pathname === '/.well-known/openid-configuration') return json(res, { issuer: p.issuer, authorization_endpoint: p.issuer + '/auth', token_endpoint: p.issuer + '/token', jwks_uri: p.issuer + '/keys', id_token_signing_alg_values_supported: ['RS256'] });
    if (url.pathname === '/keys') return json(res, { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' }] });
    if (url.pathname === '/auth') { // a page with a button, as providers have it
      const code = randomUUID();
      codes.set(code, q);
      const to = `${q.get('redirect_uri')}?${new URLSearchParams({ code, state: q.get('state') })}`;
      return res.writeHead(200, { 'Content-Type': 'text/html' }).end(`<h1>Who are you?</h1><a href="${to.replaceAll('&', '&amp;')}">Ann</a>`);
    }
    let body = '';
    for await (const part of req) body += part;
    const form = new URLSearchParams(body);
    const asked = codes.get(form.get('code'));
    codes.delete(form.get('code'));
    if (!asked || b64(createHash('sha256').update(form.get('code_verifier')).digest()) !== asked.get('code_challenge')) return json(res, { error: 'invalid_grant' }, 400);
    const now = Math.floor(Date.now() / 1000);
    const text = [{ alg: 'RS256', kid: 'one' }, { iss: p.issuer, aud: 'instar', sub: 'ann', iat: now, exp: now + 60, nonce: asked.get('nonce'), ...p.claims }].map((v) => b64(JSON.stringify(v))).join('.');
    return json(res, { access_token: 'access', token_type: 'Bearer', id_token: text + '.' + sign('sha256', Buffer.from(text), privateKey).toString('base64url') });
  });
  await new Promise((resolve) => { web.listen(0, '127.0.0.1', resolve); });
  p.issuer = 'http://localhost:' + web.address().port;
  p.end = () => { web.closeAllConnections(); web.close(); };
  return p;
}

test('somebody signs in by a provider, or with a token, is shown what the role allows, and signs out', async () => {
  const idp = await provider();
  const dir = mkdtempSync(join(tmpdir(), 'instar-oidc-'));
  const at = '127.0.0.1:' + await freePort();
  const hash = (token) => createHash('sha256').update(token).digest('hex');
  writeFileSync(join(dir, 'secret'), 'the-secret', { mode: 0o600 });
  writeFileSync(join(dir, 'instar.yaml'), `
auth:
  tokens: [{name: ops, hash: 'sha256:${hash('the-token')}', role: admin}, {name: hands, hash: 'sha256:${hash('operate')}', role: operate}, {name: acme, hash: 'sha256:${hash('acme')}', role: operate, namespace: acme}]
  oidc: {issuer: '${idp.issuer}', clientId: instar, clientSecretFile: ${join(dir, 'secret')}, url: 'http://${at}', roles: [{value: lookers, role: read}]}
`);
  const server = await Server.start('--config', join(dir, 'instar.yaml'), '--http', at);
  const browser = await launch();
  try {
    const context = await browser.newContext({ viewport: desktop });
    const page = await openPage(context, server, '/ui/machines/service?q=hello');
    page.wrong = [];
    page.setDefaultTimeout(60000);
    const go = async () => { await page.getByRole('link', { name: /^Sign in at localhost/ }).click(); await page.getByRole('link', { name: 'Ann' }).click(); };
    await page.getByRole('heading', { name: 'Sign in to Instar' }).waitFor();
    assert.deepEqual(await violations(page), []);

    await go(); // nobody has given her a role
    await page.getByRole('alert').filter({ hasText: 'no row of auth.oidc.roles' }).waitFor();
    assert.deepEqual(await violations(page), []);

    idp.claims = { groups: ['lookers'], email: 'ann@example.com', email_verified: true };
    await go();
    await page.getByRole('heading', { name: 'services' }).waitFor();
    assert.equal(page.url(), `${server.url}/ui/machines/service?q=hello&namespace=*`, 'the page that was asked for, and nothing else in the address than what a list says');
    await page.locator('.pill', { hasText: 'Live' }).waitFor();
    const cookies = await context.cookies();
    assert.deepEqual(cookies.filter((c) => c.name.startsWith('instar')).map((c) => [c.name, c.httpOnly, c.sameSite]), [['instar_session', true, 'Strict']]);
    assert.deepEqual(await page.evaluate(() => fetch('/v1/session').then((r) => r.json()).then((s) => [s.name, s.role])), ['oidc:ann@example.com', 'read']);
    assert.equal(await page.evaluate(() => fetch('/v1/services/hello/refresh', { method: 'POST' }).then((r) => r.status)), 403);
    await page.locator('.table >> text="hello"').waitFor();
    assert.equal(await page.locator('.heading-actions button, .bulk, .table input').count(), 0, 'who reads is offered nothing else');

    await page.getByLabel('Signed in as oidc:ann@example.com').click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in to Instar' }).waitFor();
    assert.equal(await page.evaluate(() => fetch('/v1/services').then((r) => r.status)), 401);
    const out = async (name) => { await page.getByLabel('Signed in as ' + name).click(); await page.getByRole('button', { name: 'Sign out' }).click(); };
    const token = async (text) => { await page.getByLabel('Token').fill(text); await page.getByRole('button', { name: 'Sign in' }).click(); };
    await token('operate');
    await page.click('.table >> text="hello"');
    await page.click('.heading-actions >> text=More');
    const offered = await page.locator('.heading-actions button').allTextContents();
    assert.ok(offered.some((text) => /^update/.test(text)) && !offered.some((text) => /^purge/.test(text)), `who operates is offered ${offered}`);
    await page.goto(server.url + '/ui/nodes');
    await page.locator('.parts').waitFor();
    assert.equal(await page.locator('main button:has-text("Drain")').count(), 0);
    const made = await server.ask('/v1/services/tea/create?namespace=acme', { spec: { image: 'hello' } }, { Authorization: 'Bearer operate' });
    assert.equal(made.status, 200, JSON.stringify(made.body));
    await page.goto(server.url + '/ui/machines/service?namespace=foo'); // who looks chooses a namespace, which the browser remembers
    await page.waitForSelector('.bar .namespace:has-text("foo")');
    await page.waitForSelector('main >> text=in the namespace foo');
    await page.goto(server.url + '/ui/nodes');
    await out('hands');
    await page.getByRole('heading', { name: 'Sign in to Instar' }).waitFor();
    await page.reload();
    await token('operate');
    await page.waitForSelector('.bar .namespace:has-text("foo")'); // the same person
    await out('hands');
    await token('operate');
    await page.waitForSelector('.bar .namespace:has-text("foo")'); // also without loading the page anew
    await out('hands');
    await page.reload();
    await go();
    await page.waitForSelector('.bar .namespace:has-text("All namespaces")'); // somebody else
    await out('oidc:ann@example.com');
    await token('operate');
    await page.getByLabel('Signed in as hands').waitFor();
    await page.goto(server.url + '/ui/machines/service?namespace=foo');
    await page.waitForSelector('main >> text=in the namespace foo');
    await page.getByLabel('Signed in as hands').click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await token('acme');
    await page.getByLabel('Signed in as acme').waitFor();
    await page.locator('.table >> text="tea"').waitFor();
    assert.equal(new URL(page.url()).searchParams.get('namespace'), 'acme', 'one that sees no other is not kept in one that was chosen, or passed on');
    await page.goto(server.url + '/ui/machines/service');
    await page.locator('.table >> text="tea"').click();
    await page.waitForSelector('h1:has-text("tea")');
    await page.goto(server.url + '/ui/entities/service/tea'); // as for the API, that of the token
    await page.locator('.facts .state').first().waitFor();
    await page.goto(server.url + '/ui/machines/service');
    await page.waitForSelector('.diagram svg');
    await page.locator('.heading-actions button', { hasText: 'create' }).click();
    assert.equal(await page.locator('dialog').getByLabel('Namespace').inputValue(), 'acme');
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('text=Time in state').count(), 0, 'these numbers are of all namespaces');

    const other = await openPage(context, server, '/ui/entities/service/hello'); // what another tab of the browser shows
    other.setDefaultTimeout(60000);
    await other.getByLabel('Signed in as acme').waitFor();
    await other.locator('.pill', { hasText: 'Live' }).click(); // also while it is paused
    await out('acme');
    await other.getByRole('heading', { name: 'Sign in to Instar' }).waitFor();
    await token('operate');
    await other.getByLabel('Signed in as hands').waitFor();
    await other.locator('.heading-actions button:text-is("update")').click();
    await other.locator('dialog .fields').first().waitFor();
    await out('hands');
    await other.getByRole('heading', { name: 'Sign in to Instar' }).waitFor();
    await other.locator('dialog').waitFor({ state: 'hidden' });
    const third = await openPage(context, server, '/ui/nodes');
    await third.getByRole('heading', { name: 'Sign in to Instar' }).waitFor();
    await token('operate');
    await third.getByLabel('Signed in as hands').waitFor(); // nobody signed in here
    await other.locator('dialog .fields').first().waitFor(); // who had begun it is back
    await out('hands');
    await token('acme');
    await other.locator('dialog').waitFor({ state: 'detached' }); // it shows what was for another
    assert.deepEqual(other.wrong.filter((w) => !/status of 40[13]/.test(w)), []);
    assert.deepEqual(page.wrong.filter((w) => !w.startsWith('left the origin: ' + idp.issuer)), []);
    await context.close();
  } finally {
    await browser.close();
    await server.end();
    idp.end();
  }
});
