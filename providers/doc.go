// Package providers touches the world for the machines: it performs effects and looks at what became of them.
//
// Nothing here publishes, stores state of an entity or decides about one. A provider gets a [machines.Task] and
// returns a [machines.Result]; it looks at an entity and returns a [machines.Finding]. The workers and observers that
// call it know it only by an interface of their own.
//
// For services the provider is [Serving] over a [Gateway]. The contract of every gateway, checked by one suite
// (package providertest):
//   - Each call is idempotent: the same desired hash, or the same attempt, changes nothing the second time.
//   - Each call that changes something is fenced: with a fence older than one seen for that key, in this life or an
//     earlier one, it is refused with [Older] and nothing happens. An entity that waits for it goes on above the one seen.
//     So what is there when a call is not refused is of this life or an earlier one. Apply and Delete end what is left of
//     an earlier one.
//   - Errors are [*Error] with a code; nobody reads their text.
//   - Apply and Delete start something and return; Observe tells how far it is. The generation rises with each new
//     specification, the observed generation follows it, and Ready means nothing while the two differ.
//   - While a new revision is not healthy the old one goes on serving, also when the new one never becomes healthy.
//   - Every call ends soon after its context does.
//
// Gateways: process (the embedded default), knative (a cluster; its fence is weaker once an object has gone, see there)
// and simulated (tests and demonstrations). Providers of other machines: probe, which checks instances, and relay. What a
// provider implements is effects.Performer of the consumers, and observer.Looker if its entities are polled.
package providers
