// Package signin lets people in by an OpenID Connect provider: it sends a browser there, and makes a session of what comes back.
//
// GET /v1/session/oidc begins it (signin.go), GET /v1/session/oidc/callback is where the provider sends the browser to. The code that comes with it is exchanged for an ID token
// (provider.go), whose claims become a name, a role and a namespace by the rules of the configuration (claims.go). From then on the session is like that of a token: a cookie that package auth opens.
//
// What is guaranteed:
//   - A code is taken only from the browser that asked for it (state, in a sealed cookie of ten minutes), once (PKCE S256, nonce), and an ID token only with a signature of the
//     issuer, for this client, that has not expired; clocks may differ by a minute (nbf may be four ahead).
//   - A browser is sent on to pages of the console only, and to the provider's address; both are never those of a Host header.
//   - No token is in an address, a cookie, a log or an answer; what the provider says of an error is in the log only.
//   - Nobody has a role without a rule that says so. The first rule that holds counts. A mail address counts only where the provider says that it is verified.
//   - Nothing is stored. The provider is asked at a sign-in only: who has a session keeps it until it ends, also when the provider would refuse by now.
package signin
