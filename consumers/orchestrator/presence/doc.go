// Package presence tells whether anybody asks for the tasks of a queue of workers, so that none is started that nobody would take.
//
// The contract:
//   - A queue is asked for while a request of a worker waits at its consumer, and for [Present] after one was seen, something was delivered, or something was acked. So a worker that
//     fetches a batch, works on it and fetches the next one is there, as is one whose requests do not wait.
//   - One that is not asked for is known to be asked for as soon as a request comes: the subject of requests is subscribed to, for as long as that lasts.
//   - What is not known yet is not there. A question that is not answered changes nothing.
//
// A queue costs one question to its consumer a second, while [Watch.Asked] is called for it, whatever its tasks are.
package presence
