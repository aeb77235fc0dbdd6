// Package load is the clients: they send commands under ids of their own, repeat each under the same id until it is
// answered, and keep a log of what they were told. The log is all that the checks know of what was accepted.
package load
