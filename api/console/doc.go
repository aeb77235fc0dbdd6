// Package console is the web console: a page at /ui/ with all that it loads, and sessions of browsers.
//
// The page is a client of the API like any other: whatever it shows or does, a script can. So there is nothing here about
// machines or entities, only files (files.go) and the routes that turn a token into a cookie and back (session.go). What the page is
// made of is in web: app has what pages share (each module says at its top what it offers), pages has one module for each page,
// vendor has what others wrote, with its versions in VENDOR.md. Browsers load these modules as they are; there is no build step.
//
// What is guaranteed:
//   - No request of the page leaves the origin: the policy that goes with it allows nothing else, neither inline scripts nor inline styles.
//   - Files are served below a path that has the hash of all of them and may be cached for ever; the page itself is asked for each time. All are
//     compressed once per process.
//   - An unknown path below /ui/ is the page, which says what is missing: every address can be opened directly.
//   - A program that is built with -tags no_ui has no page, and the same API.
package console
