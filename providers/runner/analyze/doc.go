// Package analyze reads a working tree and its history, and writes documents about it: Markdown for people, JSON for programs.
//
// An analysis is a function of what it reads: the same tree and history give the same documents, byte for byte. It changes nothing, calls nobody, and runs
// nothing that it finds. What it reads is bounded by [Limits] in files, bytes and commits; a document says what was left out. Symbolic links are not
// followed, so nothing outside of the tree is read. Every analysis ends soon after its context does.
//
// [All] lists the analyses. Secrets that are found are masked in what they return.
package analyze
