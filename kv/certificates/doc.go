// Package certificates keeps what certmagic stores (certificates, their private keys, accounts) in a JetStream bucket that all nodes share.
//
// The contract:
//   - A value is sealed with its key as associated data: nothing of it is in the clear in the bucket, and what was sealed under one key does not
//     open under another one. The keys themselves, which have names of domains, are readable.
//   - Reads and lists are answered by the leader of the bucket: Load returns what the last Store has written, also on a replicated bucket.
//   - Delete leaves nothing behind, not even a marker, and a folder goes in one step.
//   - A lock is a [kv.Lease], held by at most one call to Lock of all processes and renewed until it is unlocked. It ends a life after its process has died.
//     As every lease it hinders and fences nothing: certmagic has to stand two at once, and does.
//   - Nothing here makes the bucket. Its stream has to allow lives of messages (AllowMsgTTL), with which locks that were given back go, and purges.
package certificates
