// Package child starts processes that outlive this program, follows them, takes up those of an earlier one, and leaves nothing of them behind.
//
// A process leads a group of its own, and has a mark of its own in its environment, which all that it starts inherit. When it has ended, whatever is left in
// its group or has its mark is killed, also what has begun a session of its own. Only a program that takes the mark out of the environment of what it
// starts, and has it leave the group, has that live on.
package child
