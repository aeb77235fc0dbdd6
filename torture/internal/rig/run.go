package rig

// Run starts any program; what it says is appended to the file log.
func Run(log string, env []string, name string, args ...string) (*Process, error) {
	return start(log, env, name, args...)
}
