package pdeathsig

import "syscall"

// Set has the kernel send the process a signal when the thread that starts it ends.
func Set(attr *syscall.SysProcAttr, s syscall.Signal) { attr.Pdeathsig = s }
