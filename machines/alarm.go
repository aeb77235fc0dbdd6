package machines

import "time"

// alarms are the timers that survive a change of the state.
func (s *stepping[D]) alarms() map[string]Timer {
	var kept map[string]Timer
	for i := range s.def.Alarms {
		if t, armed := s.next.Timers[s.def.Alarms[i].Name]; armed {
			kept = with(kept, s.def.Alarms[i].Name, t)
		}
	}
	return kept
}

// setAlarms makes the alarms what the data says now.
func (s *stepping[D]) setAlarms() {
	for i := range s.def.Alarms {
		a := &s.def.Alarms[i]
		until := a.Until(s.tx.Data)
		if s.states[s.next.State].Terminal {
			until = time.Time{}
		}
		t, armed := s.next.Timers[a.Name]
		switch {
		case until.IsZero():
			s.disarm(a.Name)
		case !armed || !t.At.Equal(until):
			s.arm(a.Name, until)
		}
	}
}
