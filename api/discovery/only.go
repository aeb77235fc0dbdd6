package discovery

// Only shows some namespaces of what a finder finds. The others are as if nothing had ever been in them; the index is
// that of all.
func Only(f Finder, namespaces []string) Finder {
	o := only{f, make(map[string]bool, len(namespaces))}
	for _, namespace := range namespaces {
		o.shown[namespace] = true
	}
	return o
}

type only struct {
	all   Finder
	shown map[string]bool
}

func (o only) Find(q Query) Result {
	r := o.all.Find(q)
	if !o.shown[q.Namespace] {
		return Result{Index: r.Index}
	}
	return r
}

func (o only) Watch(namespace, service string, after uint64) <-chan struct{} {
	if !o.shown[namespace] {
		return nil
	}
	return o.all.Watch(namespace, service, after)
}

func (o only) Inhabited(namespace string) bool {
	return o.shown[namespace] && o.all.Inhabited(namespace)
}
