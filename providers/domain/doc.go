// Package domain proves domain names, has certificates issued for them, and tells the proxy where their requests go.
//
// The contract:
//   - A name is proven by its TXT record ([machine.Proof]), and, where [Records] knows where the proxy is, by leading there. Each look and each verification asks the
//     name servers anew.
//   - [Table] keeps who has a name, and where its requests go. Every write is fenced by the version of the entity, also after the name was removed.
//   - [Certificates] issues and renews with ACME. What is issued is in the storage that all nodes share, and is issued once, by one of them.
//   - Nothing is given back before its certificate is forgotten; what belongs to another entity is left alone.
package domain
