// Package poison finds the message that ends the process each time that it is handled, by a fatal error or by taking all memory. It would be
// taken again for ever: no count of deliveries survives the process. So a process writes down what it begins, in the bucket of owners, and
// takes the note back when that has ended. What several processes in a row have died with is suspected: it is done when
// nothing else that is suspected is, and given up after a bound.
package poison
