// Package audit is what records of changes look like, and how it is found out that one of them was changed, removed or put in another one's place.
//
// The contract:
//   - Each class of records (state, resource, error, progress) has a stream of its own, whose messages go when they have their age and in no other way. So what is left is
//     always the end of a chain without gaps.
//   - A record says where it stands in its stream, the hash of the one before it, and its own. Whoever changes a record, or takes one out, has to write all later ones anew;
//     that, too, is noticed by who has kept one of them elsewhere, such as in a file of `instar audit export`.
//   - A record is a line of JSON, and its hash is that of the line without it: no program has to write JSON as this one does to check it.
//
// Package consumers/audit writes records, api/audit reads them, and the command line checks them ([Chain]).
package audit
