package session

// Looked is how many messages were read back.
func (o *Opener) Looked() int { return o.looked }
