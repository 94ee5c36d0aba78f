// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		// Even a SIGKILL of the parent must not leave a control plane behind.
		Pdeathsig: syscall.SIGKILL,
		// A Ctrl-C at the terminal is for the parent, which ends the rest.
		Setpgid: true,
	}
}
