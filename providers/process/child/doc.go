// Package child starts processes that outlive this program, follows them, takes up those of an earlier one, and leaves nothing of them behind.
//
// A process leads a group of its own, and has a mark of its own in its environment, which all that it starts inherit. When it has ended, whatever is left in
// its group or has its mark is killed, also what has begun a session of its own. What has left the group lives on where its mark cannot be read: in a program
// that was started without it, that has written over its environment (as setproctitle does), or that is not dumpable.
package child
