// Package observer looks at every entity whose state has a poll, and earlier when something tells of a change or, in a transitional state, when an effect
// has ended. Only findings that would change something become commands.
package observer
