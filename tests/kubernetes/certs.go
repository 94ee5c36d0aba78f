// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Names of the key pairs in DIR/pki; each is NAME.crt and NAME.key.
const (
	clusterCA    = "ca"             // signs the server, and client certificates of users
	frontProxyCA = "front-proxy-ca" // signs only what the API server shows to aggregated servers
	serving      = "apiserver"
	frontProxy   = "front-proxy-client"
	accounts     = "service-account" // NAME.key and NAME.pub: signs service account tokens
)

type pki struct{ dir string }

func (p pki) cert(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p pki) key(name string) string  { return filepath.Join(p.dir, name+".key") }
func (p pki) pub(name string) string  { return filepath.Join(p.dir, name+".pub") }

// createPKI writes all keys and certificates, unless an earlier run on the
// same directory did: the service account tokens it gave out must stay good.
func createPKI(dir string) (pki, error) {
	p := pki{dir}
	if _, err := os.Stat(p.pub(accounts)); err == nil { // written last
		return p, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return p, err
	}
	ca, err := p.issue(clusterCA, authority("evac-kubernetes-ca"), nil)
	if err != nil {
		return p, err
	}
	// A second authority, because whoever holds a front proxy certificate may
	// claim to be any user: no certificate of the first one may count as that.
	frontCA, err := p.issue(frontProxyCA, authority("evac-kubernetes-front-proxy-ca"), nil)
	if err != nil {
		return p, err
	}
	_, err = p.issue(serving, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
	}, ca)
	if err != nil {
		return p, err
	}
	_, err = p.issue(frontProxy, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "front-proxy-client"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, frontCA)
	if err != nil {
		return p, err
	}

	key, err := p.newKey(accounts)
	if err != nil {
		return p, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return p, err
	}
	return p, writePEM(p.pub(accounts), "PUBLIC KEY", public, 0o644)
}

func authority(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
}

// signer is a certificate with its private key.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue writes a new key and its certificate, signed by ca or, when that is
// nil, by itself.
func (p pki) issue(name string, template *x509.Certificate, ca *signer) (*signer, error) {
	key, err := p.newKey(name)
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	// An hour back, for clocks that are set back while a test runs.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	if ca == nil {
		ca = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &signer{certificate, key}, writePEM(p.cert(name), "CERTIFICATE", der, 0o644)
}

// newKey writes a P-256 key: RSA keys take long enough to make to be noticed.
func (p pki) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(p.key(name), "EC PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

func newToken() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// writeFile replaces path as a whole, so that no reader sees half of it and an
// older file's wider mode does not live on.
func writeFile(path string, data []byte, mode os.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // fails, harmlessly, after the rename
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(mode)
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
