// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName marks a kubeconfig as written by this program.
const contextName = "evac-kubernetes"

// user is one line of the API server's token file.
type user struct{ token, name, group string }

// The users the API server knows. The two components are not administrators,
// so that RBAC and the audit log see them as they would in a real cluster.
func newUsers() (admin, controllerManager, scheduler user) {
	return user{newToken(), "admin", "system:masters"},
		user{newToken(), "system:kube-controller-manager", ""},
		user{newToken(), "system:kube-scheduler", ""}
}

func writeTokens(path string, users ...user) error {
	var lines strings.Builder
	for _, u := range users {
		// token, user name, user id, groups
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", u.token, u.name, u.name, u.group)
	}
	return writeFile(path, []byte(lines.String()), 0o600)
}

func writeKubeconfig(path, server string, ca []byte, u user) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[u.name] = &clientcmdapi.AuthInfo{Token: u.token}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: u.name}
	config.CurrentContext = contextName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFile(path, data, 0o600)
}

// refuseForeign guards a kubeconfig that somebody cares about, such as the one
// in the home directory, against being replaced.
func refuseForeign(path string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(old)
	if len(old) > 0 && (err != nil || config.CurrentContext != contextName || len(config.Contexts) != 1) {
		return fmt.Errorf("%s exists and was not written by evac-kubernetes, so it is left alone; name another file", path)
	}
	return nil
}
