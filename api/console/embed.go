//go:build !no_ui

package console

import (
	"embed"
	"io/fs"
)

//go:embed web
var embedded embed.FS

// web has the files of the page; nil has none.
var web = func() fs.FS {
	sub, err := fs.Sub(embedded, "web")
	if err != nil {
		panic("console: " + err.Error()) // the name is that of the line above
	}
	return sub
}()
