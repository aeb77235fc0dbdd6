package gateway

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rclone/gofakes3"

	"github.com/bcc94042/instar/providers/platform/storage"
)

// page is one page of a list while it is read. It holds so many entries as a page has, and as many again, however many objects there are.
type page struct {
	prefix *gofakes3.Prefix
	after  string // the names of the page are behind this one
	most   int    // entries of a page
	all    []entry
	cut    string // the first name that was left out, as there are more; empty when none was. Those behind it are of another page
}

// entry is an object, or the folder that some are in, under which it is listed.
type entry struct {
	name   string
	folder bool
	info   *jetstream.ObjectInfo
}

func newPage(prefix *gofakes3.Prefix, of gofakes3.ListBucketPage) *page {
	most := int(min(of.MaxKeys, gofakes3.DefaultMaxBucketKeys))
	if most <= 0 {
		most = gofakes3.DefaultMaxBucketKeys
	}
	return &page{prefix: prefix, after: of.Marker, most: most}
}

// take takes what is said of a name, or leaves it out.
func (p *page) take(info *jetstream.ObjectInfo) {
	folder, ok := within(info.Name, p.prefix)
	if !ok || info.Name <= p.after || folder != "" && folder == p.after || strings.HasPrefix(info.Name, reserved) {
		return
	}
	e := entry{cmp.Or(folder, info.Name), folder != "", info}
	if e.folder && !storage.IsObject(info) || p.cut != "" && e.name >= p.cut {
		return // others may be in the folder
	}
	if p.all = append(p.all, e); len(p.all) > 4*(p.most+1) {
		p.compact()
	}
}

// compact leaves the first entries, each once: of a name the last one that came.
func (p *page) compact() {
	slices.SortStableFunc(p.all, func(x, y entry) int { return cmp.Compare(x.name, y.name) })
	kept := p.all[:0]
	for i, e := range p.all {
		if i+1 < len(p.all) && p.all[i+1].name == e.name || !e.folder && !storage.IsObject(e.info) {
			continue
		}
		kept = append(kept, e)
	}
	if len(kept) > p.most {
		p.cut, kept = kept[p.most].name, kept[:p.most]
	}
	clear(p.all[len(kept):])
	p.all = kept
}

// list is the page. It may be empty, though there are more, where all of it was deleted while it was read.
func (p *page) list() *gofakes3.ObjectList {
	p.compact()
	list := gofakes3.NewObjectList()
	for _, e := range p.all {
		list.NextMarker = e.name
		if e.folder {
			list.AddPrefix(e.name)
			continue
		}
		list.Add(&gofakes3.Content{Key: e.name, LastModified: gofakes3.NewContentTime(e.info.ModTime), ETag: quoted(md5Of(e.info)), Size: int64(e.info.Size)}) // #nosec G115 -- below the quota
	}
	if list.IsTruncated = p.cut != ""; !list.IsTruncated {
		list.NextMarker = ""
	}
	return list
}

// within reports whether a name begins with the prefix, and which folder it is in then, if the prefix has a delimiter and the rest of the name, too. [gofakes3.Prefix.Match] takes names that begin
// with a delimiter for others.
func within(name string, p *gofakes3.Prefix) (folder string, ok bool) {
	if p == nil {
		return "", true
	}
	rest, ok := strings.CutPrefix(name, p.Prefix)
	if !ok || !p.HasDelimiter || p.Delimiter == "" {
		return "", ok
	}
	if at := strings.Index(rest, p.Delimiter); at >= 0 {
		return name[:len(p.Prefix)+at+len(p.Delimiter)], true
	}
	return "", true
}
