// Command outbox compares the relay with Watermill's SQL forwarder: the same Postgres, the same embedded NATS server, the
// same rows, in rounds that take turns. What counts first is CPU per row, of this process and of Postgres: rows per second
// depend on how busy the machine is. Its module is one of its own, so that the program does not depend on Watermill.
package main
