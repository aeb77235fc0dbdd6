// Command release writes what is given to others into a directory: the program for each system, a bill of what is in each (CycloneDX), the
// checksums of all, and, with a key, a signature of those. Binaries depend on the sources, the version and the Go release only, so that anybody
// can build them again and compare.
//
//	release -version v1.2.3 -out dist [-key ~/.ssh/id_ed25519]
//
// It is a module of its own, lest those who import the libraries get what only it needs.
package main
