// SPDX-License-Identifier: Apache-2.0

package main

import "net"

// featureGates are given to every component, as in a real cluster. The gate is
// alpha in Kubernetes 1.37; the API group it guards also has to be turned on
// at the API server (see --runtime-config below).
const featureGates = "--feature-gates=EvictionRequestAPI=true"

// defaultAuditPolicy records who did what to which object, without bodies.
const defaultAuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
`

func (u *up) etcdFlags() []string {
	flags := []string{"--data-dir", u.path("etcd"), "--address-file", u.path("etcd.address")}
	if u.fsync {
		flags = append(flags, "--fsync")
	}
	return flags
}

func (u *up) apiServerFlags(etcd, port string) []string {
	flags := []string{
		"--etcd-servers=http://" + etcd,
		"--bind-address=127.0.0.1",
		"--secure-port=" + port,
		// Without this the API server looks for a default route, which a
		// closed-off test machine may not have.
		"--advertise-address=127.0.0.1",
		// The "kubernetes" service gets no endpoints: a loopback address is
		// not a valid one, and no pod runs that could use it.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + u.pki.cert(serving),
		"--tls-private-key-file=" + u.pki.key(serving),

		"--authorization-mode=RBAC",
		"--token-auth-file=" + u.path("tokens.csv"),
		"--client-ca-file=" + u.pki.cert(clusterCA),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + u.pki.pub(accounts),
		"--service-account-signing-key-file=" + u.pki.key(accounts),

		// What aggregated API servers need to believe the user names that
		// this one passes on to them.
		"--requestheader-client-ca-file=" + u.pki.cert(frontProxyCA),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + u.pki.cert(frontProxy),
		"--proxy-client-key-file=" + u.pki.key(frontProxy),

		featureGates,
		"--runtime-config=lifecycle.k8s.io/v1alpha1=true",
	}
	if u.auditLog != "" {
		flags = append(flags,
			"--audit-log-path="+u.auditLog,
			"--audit-policy-file="+u.auditPolicy,
			"--audit-log-maxsize=0", // a test wants to read all of it in one file
		)
	}
	return append(flags, u.apiServerExtra...)
}

func (u *up) controllerManagerFlags() []string {
	return append([]string{
		"--kubeconfig=" + u.path(controllerManagerConfig),
		"--leader-elect=false",
		"--secure-port=0", // serves nothing, so it needs no port
		"--use-service-account-credentials=true",
		// With the usual 20 requests a second, it would spend five seconds on
		// getting those credentials before it does anything else.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		// It makes this directory; the usual one is in /usr/libexec.
		"--flex-volume-plugin-dir=" + u.path("flexvolume"),
		"--service-account-private-key-file=" + u.pki.key(accounts),
		"--root-ca-file=" + u.pki.cert(clusterCA),
		"--cluster-signing-cert-file=" + u.pki.cert(clusterCA),
		"--cluster-signing-key-file=" + u.pki.key(clusterCA),
		featureGates,
	}, u.controllerManagerExtra...)
}

func (u *up) schedulerFlags() []string {
	return append([]string{
		"--kubeconfig=" + u.path(schedulerConfig),
		"--leader-elect=false",
		"--secure-port=0",
		featureGates,
	}, u.schedulerExtra...)
}

// freePort finds a port for the API server, which cannot listen on port 0.
// Another program can take it before the API server does, so that the caller
// has to be ready to try again.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}
