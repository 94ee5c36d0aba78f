// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/kubevirt/pkg/certificates/bootstrap"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/install"
	operatorutil "kubevirt.io/kubevirt/pkg/virt-operator/util"
)

// lifetime of the certificates: longer than any test.
const lifetime = 24 * time.Hour

// runManifests prints, as one JSON list, what virt-operator of this version
// would put into a cluster, and writes the certificates where the pods would
// have had them mounted. Left out is what nothing here could play a part in:
// pods, monitoring, OpenShift's own kinds, the ready-made instance types, and
// the review of the KubeVirt object, which virt-operator itself would answer.
func runManifests() int {
	flags := flag.NewFlagSet("manifests", flag.ExitOnError)
	namespace := flags.String("namespace", "kubevirt", "the namespace of KubeVirt")
	folder := flags.String("certificates", "", "the folder that gets tls.crt and tls.key of each certificate")
	_ = flags.Parse(os.Args[1:])
	if *folder == "" {
		fmt.Fprintln(os.Stderr, "evac-kubevirt manifests: --certificates is needed")
		return 2
	}
	objects, err := manifests(*namespace, *folder)
	if err == nil {
		list := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
		err = json.NewEncoder(os.Stdout).Encode(list)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "evac-kubevirt manifests: %v\n", err)
		return 1
	}
	return 0
}

func manifests(namespace, folder string) ([]any, error) {
	config := &operatorutil.KubeVirtDeploymentConfig{Namespace: namespace}
	strategy, err := install.GenerateCurrentInstallStrategy(config, "", namespace)
	if err != nil {
		return nil, err
	}
	own, err := components.NewKubeVirtCrd()
	if err != nil {
		return nil, err
	}
	secrets, bundle, err := certificates(strategy.CertificateSecrets(), folder)
	if err != nil {
		return nil, err
	}
	objects := []any{
		&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
		},
		own,
	}
	add(&objects, strategy.CRDs())
	add(&objects, strategy.ServiceAccounts())
	add(&objects, strategy.ClusterRoles())
	add(&objects, strategy.ClusterRoleBindings())
	add(&objects, strategy.Roles())
	add(&objects, strategy.RoleBindings())
	// virt-operator sends these by a typed client and may leave their version wrong.
	for _, policy := range strategy.ValidatingAdmissionPolicies() {
		policy.APIVersion = admissionv1.SchemeGroupVersion.String()
		objects = append(objects, policy)
	}
	for _, binding := range strategy.ValidatingAdmissionPolicyBindings() {
		binding.APIVersion = admissionv1.SchemeGroupVersion.String()
		objects = append(objects, binding)
	}
	add(&objects, secrets)
	add(&objects, trusted(strategy.ConfigMaps(), bundle))
	add(&objects, strategy.Services())
	for _, service := range strategy.APIServices() {
		service.Spec.CABundle = bundle
		objects = append(objects, service)
	}
	for _, configuration := range strategy.ValidatingWebhookConfigurations() {
		if configuration.Name == components.VirtAPIValidatingWebhookName {
			for i := range configuration.Webhooks {
				configuration.Webhooks[i].ClientConfig.CABundle = bundle
			}
			objects = append(objects, configuration)
		}
	}
	for _, configuration := range strategy.MutatingWebhookConfigurations() {
		// The other one there is belongs to a feature that has to be switched on.
		if configuration.Name == components.VirtAPIMutatingWebhookName {
			for i := range configuration.Webhooks {
				configuration.Webhooks[i].ClientConfig.CABundle = bundle
			}
			objects = append(objects, configuration)
		}
	}
	return objects, nil
}

func add[T any](objects *[]any, more []T) {
	for _, one := range more {
		*objects = append(*objects, one)
	}
}

// trusted puts the authority into the ConfigMaps from which programs read it.
func trusted(maps []*corev1.ConfigMap, bundle []byte) []*corev1.ConfigMap {
	var once []*corev1.ConfigMap
	seen := map[string]bool{}
	for _, one := range maps {
		if !seen[one.Name] { // virt-operator names some twice
			seen[one.Name] = true
			one.Data = map[string]string{components.CABundleKey: string(bundle)}
			once = append(once, one)
		}
	}
	return once
}

// certificates fills the Secrets as virt-operator does, one authority for all,
// and writes each to FOLDER/NAME. It returns them and the authority.
func certificates(secrets []*corev1.Secret, folder string) ([]*corev1.Secret, []byte, error) {
	duration := &metav1.Duration{Duration: lifetime}
	byName := map[string]*corev1.Secret{}
	for _, secret := range secrets {
		byName[secret.Name] = secret
	}
	authority, ok := byName[components.KubeVirtCASecretName]
	if !ok {
		return nil, nil, fmt.Errorf("virt-operator no longer has a Secret %s", components.KubeVirtCASecretName)
	}
	if err := components.PopulateSecretWithCertificate(authority, nil, duration); err != nil {
		return nil, nil, err
	}
	signer, err := components.LoadCertificates(authority)
	if err != nil {
		return nil, nil, err
	}
	for _, secret := range secrets {
		if secret != authority {
			if err := components.PopulateSecretWithCertificate(secret, signer, duration); err != nil {
				return nil, nil, err
			}
		}
		mount := filepath.Join(folder, secret.Name)
		if err := os.MkdirAll(mount, 0o700); err != nil {
			return nil, nil, err
		}
		for name, data := range secret.Data {
			if err := os.WriteFile(filepath.Join(mount, name), data, 0o600); err != nil {
				return nil, nil, err
			}
		}
	}
	return secrets, authority.Data[bootstrap.CertBytesValue], nil
}
