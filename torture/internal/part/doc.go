// Package part is what all parts of a torture have: [T] has a seed, a directory, servers that end with the part, and counts
// broken promises.
package part
