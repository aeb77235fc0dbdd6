package consumer

// NextTimer is when the consumer has something to do by itself.
func (o *Consumer) NextTimer() int64 {
	next := o.wakes()
	for _, at := range []int64{o.check, o.idle} {
		if at > 0 {
			next = min(next, at)
		}
	}
	return next
}

// wakes is when the loop of the consumer looks for messages by itself.
func (o *Consumer) wakes() int64 {
	next := never
	if o.beat > 0 {
		next = o.beat
	}
	for _, w := range o.waiting {
		if w.expires > 0 {
			next = min(next, w.expires+ackDelay) // which is when the server looks again that finds it is not over yet
		}
		if w.beat > 0 {
			next = min(next, w.beat+ackDelay)
		}
	}
	if o.resumes > 0 {
		next = min(next, o.resumes)
	}
	return next
}

// Fire does what is due.
func (o *Consumer) Fire() {
	now := o.now()
	awake := o.wakes() <= now
	if o.resumes <= now {
		o.resumes = 0
	}
	if o.check > 0 && o.check <= now && o.checkPending() {
		awake = true
	}
	if o.beat > 0 && o.beat <= now {
		o.beat = now + int64(o.cfg.Heartbeat)
		if o.active {
			o.heartbeat(o.cfg.DeliverSubject)
		}
	}
	if awake {
		o.Run()
	}
	if o.idle > 0 && o.idle <= now {
		o.expire(now)
	}
}

// expire removes a consumer that nobody has used for long.
func (o *Consumer) expire(now int64) {
	o.idle = 0
	if !o.pull() {
		if !o.active {
			o.s.RemoveConsumer(o)
		}
		return
	}
	o.serveWaiting(true)
	limit := int64(o.patience)
	if len(o.waiting) > 0 {
		o.idle = now + limit
		return
	}
	if since := now - o.seen.UnixNano(); since < limit {
		o.idle = now + limit - since
		return
	}
	for _, p := range o.pending {
		o.idle = max(o.idle, p.ts+int64(o.ackWait())+limit)
	}
	if o.idle <= now {
		o.idle = 0
		o.s.RemoveConsumer(o)
	}
}
