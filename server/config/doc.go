// Package config is what a server can be told, and how that is read.
//
// [Load] takes flags over environment over file over defaults, in one of two modes: [Dev] for one's own machine, [Serve] for all
// others. Every scalar is a row of the table in options.go, which gives it its flag, its variable, its key and its line of help. Lists
// (tokens, users, templates, sources) are in the file only. Keys that nothing has, durations without a unit and texts that YAML takes
// for something else are refused with their line.
//
// [Config.Validate] tells everything that is wrong, and refuses listeners that strangers can reach while nothing protects them.
// [Config.String] and [Config.Changes] are for the log: no secret is in them.
//
// The package decides nothing about machines, and opens nothing but the files that it is told to check.
package config
