// SPDX-License-Identifier: Apache-2.0

// Command evac-kubernetes is a real Kubernetes control plane in one file, for
// tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
// kubectl, and an "up" command that starts them together on this machine.
//
// There is no kubelet, so no container ever runs: a test writes Node objects
// and pod statuses itself.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	"k8s.io/component-base/version"
)

const usage = `Usage: evac-kubernetes COMMAND [FLAGS]

  up --dir DIR             start a control plane and keep it until a signal
  kubectl ARGS...          kubectl (also when called through the name kubectl)
  etcd FLAGS...            one component alone, in the foreground
  kube-apiserver FLAGS...
  kube-controller-manager FLAGS...
  kube-scheduler FLAGS...
  version                  print what is inside

Every command takes --help.
`

// commands maps a name to what runs it. A command reads os.Args, because that
// is what the Kubernetes components do, and returns the exit code.
var commands = map[string]func() int{
	"up":                      runUp,
	"kubectl":                 runKubectl,
	"etcd":                    runEtcd,
	"kube-apiserver":          runAPIServer,
	"kube-controller-manager": runControllerManager,
	"kube-scheduler":          runScheduler,
	"version":                 runVersion,
}

func main() {
	// A link named after a command is that command, so that a test can put
	// "kubectl" on its PATH.
	if run, ok := commands[filepath.Base(os.Args[0])]; ok {
		os.Exit(run())
	}
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	name := os.Args[1]
	switch name {
	case "help", "-h", "--help":
		fmt.Print(usage)
		return
	}
	run, ok := commands[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "evac-kubernetes: there is no command %q\n\n%s", name, usage)
		os.Exit(2)
	}
	// Drop our own name: the components must see the arguments they would see
	// as a program of their own.
	os.Args = os.Args[1:]
	os.Exit(run())
}

func runVersion() int {
	fmt.Printf("kubernetes %s\netcd v%s\n%s %s/%s\n",
		version.Get().GitVersion, etcdversion.Version,
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return 0
}
