// Command torture kills, stops, cuts off, fills up and takes the power from a running instar, and checks that nothing it has promised was
// broken. It builds the program with its failpoints, runs it as real processes in a temporary directory on ports of its
// own, and prints what was done and what was found. It ends with 1 when a promise was broken.
//
//	go -C torture run .              a short version, about five minutes on two slow cores
//	go -C torture run . -long        about an hour
//	go -C torture run . -only kill   one part
//
// The part operations needs the nats CLI, which make torture PART=operations brings, and, as upgrade, a clone that has the commit of the last release.
//
// What is checked is in internal/check, which shares no code with the program; what is run is in internal/rig; the
// clients are in internal/load. Each part is one file here.
package main
