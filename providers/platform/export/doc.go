// Package export saves what a tenant has, before it is taken away: the tables of its database, and the objects of its bucket.
//
// The contract:
//   - An export is a directory of the server's user alone: database/<schema>.<table>.csv with a header, as COPY writes it; bucket/<object>; and manifest.json, which says what there is,
//     with the rows of each table and the values of sequences.
//   - All tables are of one snapshot. Rows that policies hide are there too, or it fails.
//   - Either a whole export is there after a crash, on the disk, or none. One that is there, and has all that its manifest names, is not made again, so whoever names it has to give each a name of its own.
//   - The schema is not in it: that is what the migrations make.
package export
