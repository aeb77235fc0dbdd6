// Package tooltest runs the tools that users of Instar have against a server: linters and generators of OpenAPI, the parser
// of AsyncAPI, promtool, dnsperf, a worker and a reader of events in Node, the page of documents in a DOM. It is a module
// of its own, for the generators and what their code needs, with the tools of npm in package.json.
//
// make test-tools installs what it can. A tool that is not there is skipped, with a line that says so.
package tooltest
