// Package api answers questions to the API of JetStream about a core, as the server answers them: in its JSON, with its error codes.
package api
