// Package knativetest plays the API server of a cluster and Knative's controller, for tests of what talks to them.
//
// [Server] speaks the part of the Kubernetes API that a client of Knative Services uses, over real HTTP: get, list,
// watch with resource versions that expire, server-side apply with preconditions, delete with preconditions and
// propagation, a generation that rises with the specification, status objects for errors. What it cannot do it refuses.
// It has two kinds of objects, Knative Services and, without a watch, Secrets, which go with the one that owns them; it knows one field manager and takes every list for atomic, as Knative's schema has the
// containers; how several managers share an object is for tests against a real API server.
//
// [Controller] and [Replay] serve a real API server as well.
//
// The test changes objects behind the client's back ([Server.Edit], [Server.Remove]), plays the controller by hand
// ([Server.SetStatus]) or lets [Server.Play] do it, and says what goes wrong ([Server.Fail], [Server.Expire],
// [Server.CutWatches]).
package knativetest
