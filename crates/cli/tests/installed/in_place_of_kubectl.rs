//! Kubernetes' own test of `kubectl drain`, `cordon`, `uncordon` and `taint`, with evac in kubectl's place.
//!
//! The test is a shell script of the Kubernetes repository (`test/cmd/node-management.sh`), which comes with the module that the real API server is
//! built from. Whatever it asks of kubectl besides these four verbs is done by kubectl.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use evac_world::NodeSpec;

use crate::scenario::{Arm, Cluster};
use crate::skip;

/// What the script's surroundings provide there: its helpers, a namespace, and the program under test.
const DRIVER: &str = r#"
set -o errexit -o nounset -o pipefail -o errtrace
# What a command printed is caught in a variable by the script: whoever reads of its failure needs it.
trap 'echo "failed: $BASH_COMMAND"; echo "${output_message:-}${response:-}"' ERR
source "$KUBERNETES_SOURCE/hack/lib/logging.sh"
source "$KUBERNETES_SOURCE/hack/lib/test.sh"
source "$KUBERNETES_SOURCE/test/cmd/node-management.sh"
id_field=".metadata.name"
kube_flags=(--kubeconfig "$KUBECONFIG")
kubectl() {
  local word
  for word in "$@"; do
    case "$word" in
      drain | cordon | uncordon | taint) "$EVAC" "$@"; return ;;
      -*) ;;
      *) break ;;
    esac
  done
  "$KUBECTL" "$@"
}
create_and_use_new_namespace() {
  kubectl create namespace suite
  kubectl config set-context --current --namespace=suite
}
# The label is for the server: it keeps account of who writes which field only of an object that was created with one.
kubectl create -f - <<END
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "127.0.0.1", "labels": {"suite": "yes"}}}
END
run_cluster_management_tests
echo "the suite has come to its end"
"#;

/// The folder of the Kubernetes sources that the real API server is built from.
fn sources() -> Option<PathBuf> {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kubernetes");
    let asked = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"])
        .current_dir(module)
        .output()
        .ok()?;
    let folder = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    folder.join("test/cmd/node-management.sh").is_file().then_some(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tests_of_kubernetes_for_its_node_verbs_pass_with_evac_in_kubectls_place() {
    let Some(server) = std::env::var_os("EVAC_KUBERNETES").map(PathBuf::from) else {
        skip("kubectl's own tests: need the real Kubernetes programs");
        return;
    };
    let Some(sources) = sources() else {
        skip("kubectl's own tests: the sources of Kubernetes are not on this machine");
        return;
    };
    let cluster = Cluster::start(Arm::Kubernetes, NodeSpec::workers(0), false).await;
    let mut bash = Command::new("bash");
    bash.args(["-c", DRIVER])
        .env("KUBERNETES_SOURCE", sources)
        .env("EVAC", env!("CARGO_BIN_EXE_evac"))
        .env("KUBECTL", server.with_file_name("kubectl"))
        .env("KUBECONFIG", &cluster.kubeconfig)
        .env("HOME", cluster.kubeconfig.parent().unwrap())
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    let ran = tokio::task::spawn_blocking(move || bash.output().unwrap()).await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    cluster.stop().await;
    assert!(ran.status.success() && said.contains("the suite has come to its end"), "{said}");
    // Each assertion of the suite says so when it holds; a suite that was cut short would hold in fewer.
    let held = said.matches("Successful").count();
    assert!(held >= 30, "only {held} assertions were made:\n{said}");
}
