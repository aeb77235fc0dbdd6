// Package knative runs services as Knative Services (serving.knative.dev/v1) of a Kubernetes cluster.
//
// # What stands in the cluster
//
// One object per service, of the service's name, in the namespace [Config].Namespace or in that of the service's own
// name. It is written by server-side apply with the field manager "instar" and force: what instar wants wins over
// what others wrote into the same fields, and fields that it does not want are left to their owners.
//
// Labels say whose an object is: app.kubernetes.io/managed-by=instar, instar/owner=[Config].Owner and
// instar/namespace. Annotations say what was asked for: the hash of the specification, the life, the attempt, the
// fence, and every field that was applied (values of the environment as a hash). The template of the revision carries
// the hash, too, so that each new specification is a new revision, and the generation that asked for it, so that a
// replacement by the same specification happens once.
//
// # Whose objects are touched
//
// An object without the label instar/owner, or with the label of another owner, is foreign: Apply is refused with
// Invalid, Delete leaves it alone, and Observe finds nothing of ours. No specification changes that, also not one with
// forceReplace: who may ask for a service has no say over what others run. Who may write the object in the cluster can
// hand it over by labelling it; it is taken over at the next Apply.
//
// # Releases of tenants
//
// ApplyPod runs a release of a tenant as a Knative Service that has files of its own: a Secret NAME.files, which the
// service owns, so that the cluster removes it with that. Its annotation instar/address keeps the address that the
// release was told ([Pod].Address), for ObservePod. Mark says by an empty Secret whose a name is. Both carry the
// labels, and a foreign one is not touched either. What runs them has an owner of its own ([Config].Owner), so that no
// service that users ask for can take the place of a release.
//
// # Races
//
// An Apply reads, judges and writes on the condition that the object is still the one that was read: its uid and its
// resource version, or, for one that was not there, that there is still none. A Delete has the same condition. Whoever
// is overtaken reads again. So a fence is exact for as long as the object is there. Of an object that has gone, the
// fence is remembered by this process only: a call that was begun by another process before the object went, and which
// arrives after it, is not fenced. It ends with its deadline, so that can only be a matter of seconds, and what it
// leaves carries the old life and is removed by the next Apply of the name.
//
// # Answers
//
// Every call has a deadline. An API server that is down, overloaded or in trouble is Unavailable, with its Retry-After;
// so are credentials that are not accepted, because whoever mends them should not have to ask for everything again. A
// refusal of the API server or of an admission webhook is Invalid and carries its words. That the API server has no
// Knative Services at all is Unavailable and never taken for the absence of a service.
//
// # Watch
//
// One list-watch for all objects of the owner tells which services have changed. It lists again when its resource
// version has expired. It is a trigger only: each look reads the object itself, and the poll finds what a watch misses.
package knative
