// SPDX-License-Identifier: Apache-2.0

// Command evac-helm renders a chart with Helm's own engine, as `helm template`
// does, and checks it with Helm's own linter. Nothing of it talks to a cluster.
package main

import (
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
)

func main() {
	release := flag.String("release", "evac-operator", "name of the release")
	namespace := flag.String("namespace", "evac", "namespace of the release")
	set := flag.String("set", "", "values, as for helm --set")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: evac-helm [--release NAME] [--namespace NAME] [--set VALUES] CHART")
		os.Exit(2)
	}
	text, err := render(flag.Arg(0), *release, *namespace, *set)
	if err != nil {
		fmt.Fprintln(os.Stderr, "evac-helm:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func render(path, release, namespace, set string) (string, error) {
	values, err := strvals.Parse(set)
	if err != nil {
		return "", err
	}
	linter := lint.AllWithKubeVersion(path, values, namespace, nil)
	for _, message := range linter.Messages {
		fmt.Fprintln(os.Stderr, message)
		if message.Severity >= support.WarningSev {
			return "", fmt.Errorf("the linter objects: %s", message)
		}
	}
	chart, err := loader.Load(path)
	if err != nil {
		return "", err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	var documents []string
	for _, crd := range chart.CRDObjects() {
		documents = append(documents, string(crd.File.Data))
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names) // the order of a map changes from run to run
	for _, name := range names {
		if text := strings.TrimSpace(files[name]); strings.HasSuffix(name, ".yaml") && text != "" {
			documents = append(documents, text+"\n")
		}
	}
	return strings.Join(documents, "---\n"), nil
}
