// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	controllerManagerConfig = "kube-controller-manager.kubeconfig"
	schedulerConfig         = "kube-scheduler.kubeconfig"
	poll                    = 50 * time.Millisecond
)

// errStopped says that the program was told to end.
var errStopped = errors.New("stopped")

// up is one control plane.
type up struct {
	dir, kubeconfig                         string
	auditLog, auditPolicy                   string
	noScheduler, noControllerManager, fsync bool
	timeout                                 time.Duration
	apiServerExtra                          stringList
	controllerManagerExtra                  stringList
	schedulerExtra                          stringList

	pki      pki
	deadline time.Time
	stop     chan struct{} // closed when the program shall end
	children []*child
}

// stringList is a flag that may be given more than once.
type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, " ") }
func (l *stringList) Set(s string) error { *l = append(*l, s); return nil }

func (u *up) path(name string) string { return filepath.Join(u.dir, name) }

func runUp() int {
	u := &up{stop: make(chan struct{})}
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	flags.StringVar(&u.dir, "dir", "", "directory of data, keys and logs (required); starting again on it continues with its data")
	flags.StringVar(&u.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator to write (default DIR/kubeconfig)")
	flags.BoolVar(&u.noScheduler, "no-scheduler", false, "do not run kube-scheduler")
	flags.BoolVar(&u.noControllerManager, "no-controller-manager", false, "do not run kube-controller-manager; a namespace then has no default service account, and no pod can be made in it before a test makes one")
	flags.BoolVar(&u.fsync, "fsync", false, "make every write of etcd durable against loss of power; slower")
	flags.StringVar(&u.auditLog, "audit-log", "", "write the API server's audit log to this file")
	flags.StringVar(&u.auditPolicy, "audit-policy", "", "audit policy file (default: level Metadata for everything)")
	flags.DurationVar(&u.timeout, "timeout", 3*time.Minute, "give up when the control plane is not ready after this time")
	flags.Var(&u.apiServerExtra, "apiserver-flag", "another flag for kube-apiserver, such as --apiserver-flag=--v=4; may be repeated")
	flags.Var(&u.controllerManagerExtra, "controller-manager-flag", "another flag for kube-controller-manager; may be repeated")
	flags.Var(&u.schedulerExtra, "scheduler-flag", "another flag for kube-scheduler; may be repeated")
	exitOnStdinClose := flags.Bool("exit-on-stdin-close", false, "end when standard input is closed")
	_ = flags.Parse(os.Args[1:])
	switch {
	case u.dir == "":
		return fail(2, errors.New("--dir is required"))
	case flags.NArg() > 0:
		return fail(2, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	case u.auditPolicy != "" && u.auditLog == "":
		return fail(2, errors.New("--audit-policy needs --audit-log"))
	}

	// Linux ends the children when the thread that started them ends, so this
	// goroutine, which starts them all, must keep its thread.
	runtime.LockOSThread()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	stdin := make(chan struct{})
	if *exitOnStdinClose {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(stdin)
		}()
	}
	go func() {
		select {
		case <-signals:
		case <-stdin:
		}
		close(u.stop)
	}()

	err := u.run()
	for _, c := range u.children {
		c.kill()
	}
	if err != nil && !errors.Is(err, errStopped) {
		return fail(1, err)
	}
	return 0
}

func fail(code int, err error) int {
	fmt.Fprintln(os.Stderr, "evac-kubernetes up:", err)
	return code
}

// run starts everything, says so, and stays until told to end or until a
// component has died.
func (u *up) run() error {
	u.deadline = time.Now().Add(u.timeout)
	unlock, err := u.prepare()
	if err != nil {
		return err
	}
	defer unlock()

	admin, controllerManager, scheduler := newUsers()
	if err := writeTokens(u.path("tokens.csv"), admin, controllerManager, scheduler); err != nil {
		return err
	}
	etcd, err := u.startEtcd()
	if err != nil {
		return err
	}
	api, err := u.startAPIServer(etcd, admin)
	if err != nil {
		return err
	}

	// The other components start only now: before /readyz the API server has
	// not written the RBAC rules that they need.
	for path, user := range map[string]user{
		u.kubeconfig:                    admin,
		u.path(controllerManagerConfig): controllerManager,
		u.path(schedulerConfig):         scheduler,
	} {
		if err := writeKubeconfig(path, api.server, api.ca, user); err != nil {
			return err
		}
	}
	if !u.noScheduler {
		if _, err := u.start("kube-scheduler", u.schedulerFlags()); err != nil {
			return err
		}
	}
	if !u.noControllerManager {
		manager, err := u.start("kube-controller-manager", u.controllerManagerFlags())
		if err != nil {
			return err
		}
		err = u.wait(manager, "the default service account", func() bool {
			return api.ok("/api/v1/namespaces/default/serviceaccounts/default")
		})
		if err != nil {
			return err
		}
	}

	fmt.Printf("ready: export KUBECONFIG=%s\n", u.kubeconfig)
	for {
		if err := u.pause(); err != nil {
			return err
		}
	}
}

// prepare makes the directory and the files that do not depend on a port, and
// takes the directory for this process alone.
func (u *up) prepare() (unlock func(), err error) {
	if u.kubeconfig == "" {
		u.kubeconfig = filepath.Join(u.dir, "kubeconfig")
	}
	for _, path := range []*string{&u.dir, &u.kubeconfig, &u.auditLog, &u.auditPolicy} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(u.dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(u.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another control plane is running in %s", u.dir)
	}
	unlock = func() { lock.Close() }

	if err := refuseForeign(u.kubeconfig); err != nil {
		unlock()
		return nil, err
	}
	if u.auditLog != "" && u.auditPolicy == "" {
		u.auditPolicy = u.path("audit-policy.yaml")
		if err := writeFile(u.auditPolicy, []byte(defaultAuditPolicy), 0o644); err != nil {
			unlock()
			return nil, err
		}
	}
	if u.pki, err = createPKI(u.path("pki")); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// startEtcd returns the address of etcd once it serves.
func (u *up) startEtcd() (address string, err error) {
	file := u.path("etcd.address")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	etcd, err := u.start("etcd", u.etcdFlags())
	if err != nil {
		return "", err
	}
	err = u.wait(etcd, "etcd", func() bool {
		data, err := os.ReadFile(file)
		address = string(data)
		return err == nil
	})
	return address, err
}

// apiServer is the API server as its administrator sees it.
type apiServer struct {
	server string // its URL
	ca     []byte
	token  string
	client *http.Client
}

func (a *apiServer) ok(path string) bool {
	request, err := http.NewRequest(http.MethodGet, a.server+path, nil)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	response, err := a.client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}

// startAPIServer returns once /readyz says ok.
func (u *up) startAPIServer(etcd string, admin user) (*apiServer, error) {
	ca, err := os.ReadFile(u.pki.cert(clusterCA))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		server, err := u.start("kube-apiserver", u.apiServerFlags(etcd, port))
		if err != nil {
			return nil, err
		}
		api := &apiServer{"https://127.0.0.1:" + port, ca, admin.token, client}
		err = u.wait(server, "/readyz of kube-apiserver", func() bool { return api.ok("/readyz") })
		if err == nil {
			return api, nil
		}
		// Somebody was faster at taking the port: try another one.
		if attempt == 5 || !server.ended() || !strings.Contains(server.tail(), "address already in use") {
			return nil, err
		}
		u.children = u.children[:len(u.children)-1]
	}
}

func (u *up) start(name string, flags []string) (*child, error) {
	c, err := start(u.dir, name, flags)
	if err == nil {
		u.children = append(u.children, c)
	}
	return c, err
}

// wait polls until done says so. of is the component that is being waited for:
// when the time is up, its log is the one to show.
func (u *up) wait(of *child, what string, done func() bool) error {
	for !done() {
		if err := u.pause(); err != nil {
			return err
		}
		if time.Now().After(u.deadline) {
			return fmt.Errorf("gave up on %s after %s; the log of %s ends with:\n%s", what, u.timeout, of.name, of.tail())
		}
	}
	return nil
}

// pause lets a moment pass; it fails when the program shall end or when a
// component has died.
func (u *up) pause() error {
	select {
	case <-u.stop:
		return errStopped
	case <-time.After(poll):
	}
	for _, c := range u.children {
		if c.ended() {
			return fmt.Errorf("%s died (%s); its log %s ends with:\n%s", c.name, c.state, c.log, c.tail())
		}
	}
	return nil
}
