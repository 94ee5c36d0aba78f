// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package main

import "syscall"

// Without Linux's Pdeathsig, children outlive a SIGKILL of the parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
