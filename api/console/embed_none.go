//go:build no_ui

package console

import "io/fs"

// web has the files of the page; nil has none.
var web fs.FS
