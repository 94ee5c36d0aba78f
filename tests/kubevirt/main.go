// SPDX-License-Identifier: Apache-2.0

// Command evac-kubevirt holds the programs of KubeVirt that evac is tested
// with, in one file: virtctl, the client, and virt-api and virt-controller, the
// control plane, which is run beside our simulated nodes. It also prints what
// virt-operator would have installed for them.
//
// Nothing here needs a hypervisor: none of the programs links libvirt.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"kubevirt.io/client-go/log"
	"kubevirt.io/kubevirt/pkg/service"
	virtapi "kubevirt.io/kubevirt/pkg/virt-api"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch"
	"kubevirt.io/kubevirt/pkg/virtctl"
)

const usage = `Usage: evac-kubevirt COMMAND [FLAGS]

  virtctl ARGS...           the client (also when called through the name virtctl)
  virt-api FLAGS...         reviews and subresources of machines, in the foreground
  virt-controller FLAGS...  the controllers of machines, in the foreground
  manifests FLAGS...        prints what virt-operator would install for the two

Every command takes --help.
`

// commands maps a name to what runs it. A command reads os.Args, because that
// is what the programs of KubeVirt do, and returns the exit code.
var commands = map[string]func() int{
	"virtctl":         virtctl.Execute,
	"virt-api":        runAPI,
	"virt-controller": runController,
	"manifests":       runManifests,
}

func runAPI() int {
	log.InitializeLogging("virt-api")
	app := virtapi.NewVirtApi()
	service.Setup(app)
	app.Execute()
	return 0
}

func runController() int {
	watch.Execute()
	return 0
}

func main() {
	// A link named after a command is that command, so that a test can put
	// "virtctl" on its PATH.
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
		fmt.Fprintf(os.Stderr, "evac-kubevirt: there is no command %q\n\n%s", name, usage)
		os.Exit(2)
	}
	// Drop our own name: the programs must see the arguments they would see
	// when called by name.
	os.Args = os.Args[1:]
	os.Exit(run())
}
