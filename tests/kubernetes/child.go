// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// child is one component, run as this same program under another command.
//
// Components are processes and not goroutines because each one fills the same
// process-wide registries of flags, metrics and feature gates.
type child struct {
	name    string
	process *os.Process
	log     string
	done    chan struct{} // closed when it has ended
	state   string        // how it ended; to be read after done
}

// start runs a component with its output in DIR/NAME.log. It must be called
// from the thread that lives as long as the program (see runUp): on Linux the
// kernel kills a child when the thread that started it ends.
func start(dir, name string, args []string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, append([]string{name}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s could not be started: %w", name, err)
	}
	c := &child{name: name, process: cmd.Process, log: log.Name(), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // what it says is in ProcessState
		c.state = cmd.ProcessState.String()
		close(c.done)
	}()
	return c, nil
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// kill ends the child at once. There is nothing to be gained by asking: what
// etcd has acknowledged is already with the kernel, and the audit log is
// written before a request is answered.
func (c *child) kill() {
	_ = c.process.Kill()
	<-c.done
}

// tail is the end of the child's log, for an error message.
func (c *child) tail() string {
	const lines, most = 15, 16 << 10
	file, err := os.Open(c.log)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > most {
		_, _ = file.Seek(-most, io.SeekEnd)
	}
	data, _ := io.ReadAll(file)
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
