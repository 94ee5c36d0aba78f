// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // CronJob time zones must not depend on the machine

	"go.etcd.io/etcd/server/v3/embed"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func runAPIServer() int         { return cli.Run(apiserver.NewAPIServerCommand()) }
func runControllerManager() int { return cli.Run(controllermanager.NewControllerManagerCommand()) }
func runScheduler() int         { return cli.Run(scheduler.NewSchedulerCommand()) }

func runKubectl() int {
	// kubectl logs while it is still building its commands, before flags are
	// parsed, so the verbosity has to be set beforehand.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints in kubectl's own form, and exits
	}
	return 0
}

// runEtcd serves a single-member etcd without TLS. It can listen on port 0 and
// tell where it ended up, which the stock etcd program cannot: that way two
// control planes starting at once can never take each other's port.
func runEtcd() int {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	dataDir := flags.String("data-dir", "", "directory of the data (required)")
	listen := flags.String("listen", "127.0.0.1:0", "address for clients")
	addressFile := flags.String("address-file", "", "file to write the client address to once it serves")
	fsync := flags.Bool("fsync", false, "make every write durable against loss of power; slower")
	_ = flags.Parse(os.Args[1:])
	if *dataDir == "" || flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "etcd: --data-dir is required, and there are no positional arguments")
		return 2
	}

	config := embed.NewConfig()
	config.Dir = *dataDir
	config.UnsafeNoFsync = !*fsync
	// A lone member has nobody to wait for; the usual second before it elects
	// itself would only slow every test down.
	config.TickMs, config.ElectionMs = 10, 100
	clients := url.URL{Scheme: "http", Host: *listen}
	peers := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // required, never used
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	server, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	defer server.Close()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ready := server.Server.ReadyNotify()
	for {
		select {
		case <-ready:
			ready = nil // a closed channel would be chosen for ever
			if *addressFile == "" {
				continue
			}
			address := server.Clients[0].Addr().String()
			if err := writeFile(*addressFile, []byte(address), 0o600); err != nil {
				fmt.Fprintln(os.Stderr, "etcd:", err)
				return 1
			}
		case err := <-server.Err():
			fmt.Fprintln(os.Stderr, "etcd:", err)
			return 1
		case <-signals:
			return 0
		}
	}
}
