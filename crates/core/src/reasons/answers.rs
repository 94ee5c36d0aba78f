//! Why the API server, or a webhook that it asks, did not take a request to evict a pod.

use super::Severity::{Never, Progress, Slow};
use super::component::{self, SERVER, SilentHook};
use super::table::family;

family! {
    /// What was answered to an eviction, or that nothing was.
    AnswerReason in Reason::Answer {
        title: "What the API server answered",
        told: "In blockers, after a pod was asked to leave.",
        subject: Pod,
    }

    /// An admission webhook said no.
    WebhookRefused {
        /// The name of the webhook.
        webhook: String = "policy.example.com".into(),
        /// Its answer.
        message: String = "not on Fridays".into(),
    } => {
        severity: Slow,
        sentence: ("is refused by admission webhook {webhook}: {message}"),
        brief: ("refused by {webhook}"),
        remedy: ("ask the owner of {webhook}"),
    }

    /// KubeVirt's webhook said no, because it could not move the guest.
    VmNotMigratable {
        /// The name of the webhook.
        webhook: String = "virt-launcher-eviction-interceptor.kubevirt.io".into(),
        /// Its answer.
        message: String = "VMI db is configured with an eviction strategy but is not live-migratable".into(),
    } => {
        severity: Never,
        sentence: ("runs a virtual machine that must be live-migrated and cannot be ({webhook}: {message})"),
        brief: ("its machine cannot be migrated"),
        remedy: ("shut the machine down, or change what prevents its migration"),
    }

    /// KubeVirt's webhook said no, because it moves the guest.
    VmMoving {
        /// Its answer.
        message: String = "Eviction triggered evacuation of VMI \"shop/db\"".into(),
    } => {
        severity: Progress,
        sentence: ("runs a virtual machine that is being moved: {message}"),
    }

    /// Nothing is evicted in a namespace that is being deleted.
    NamespaceTerminating {
        /// The namespace of the pod.
        namespace: String = "shop".into(),
    } => {
        severity: Slow,
        sentence: ("waits for the deletion of namespace {namespace}, which does not allow evictions"),
        brief: ("namespace {namespace} is being deleted"),
        remedy: ("nothing, the namespace's deletion removes the pod"),
    }

    /// The server asks for fewer requests.
    Throttled => {
        severity: Slow,
        sentence: ("waits because the API server asks for fewer requests"),
        brief: ("the server asks for fewer requests"),
    }

    /// The server failed.
    ServerError {
        /// The status of its answer.
        status: u16 = 500,
        /// The message in it.
        message: String = "etcdserver: request timed out".into(),
    } => {
        severity: Slow,
        sentence: ("could not be evicted, the server answered {status}: {message}"),
        brief: ("the server answered {status}"),
        remedy: ("check the API server and its webhooks"),
    }

    /// The server was not reached.
    Unreachable {
        /// What the connection failed with.
        message: String = "connection refused".into(),
    } => {
        severity: Slow,
        sentence: ("could not be evicted, the server was not reached: {message}"),
        brief: ("the server was not reached"),
        remedy: ("check the API server and its webhooks"),
    }

    /// The request was sent and its answer was lost.
    OutcomeUnknown {
        /// What the connection failed with.
        message: String = "connection closed before message completed".into(),
    } => {
        severity: Slow,
        sentence: ("may have been evicted, the answer was lost: {message}"),
        brief: ("the answer was lost"),
    }

    /// The API server could not ask an admission webhook, and refuses for that.
    WebhookSilent {
        /// The webhook and who should have answered.
        #[serde(flatten)]
        hook: SilentHook = SilentHook::example("virt-launcher-eviction-interceptor.kubevirt.io"),
    } => {
        severity: Slow,
        sentence: ("could not be evicted, {hook}, and until it does the API server refuses"),
        brief: ("{} does not answer", hook.component),
        remedy: ("{}", hook.fix()),
    }

    /// An answer that no API server gives to such a request. A proxy whose server is away for a moment says
    /// so with a web page, too.
    StrangeAnswer {
        /// The status of the answer.
        status: u16 = 200,
        /// What it says, in short.
        message: String = component::page_words("Sign in"),
    } => {
        severity: if *status >= 500 { Slow } else { Never },
        sentence: ("could not be asked to leave, {}", component::strange_words(SERVER, *status, message)),
        brief: ("the server answered {status}, not in JSON"),
        remedy: ("{}", component::strange_fix(SERVER)),
        also: { status: 502, message: component::page_words("Bad Gateway") },
    }

    /// The right to evict pods is missing.
    Forbidden {
        /// The answer of the server.
        message: String = "User \"kim\" cannot create resource \"pods/eviction\"".into(),
    } => {
        severity: Never,
        sentence: ("may not be evicted by you: {message}"),
        brief: ("you may not evict it"),
        remedy: ("ask for the right to create pods/eviction"),
    }

    /// The server has no eviction API.
    EvictionUnsupported => {
        severity: Never,
        sentence: ("cannot be evicted because this server has no eviction API"),
        remedy: ("use --disable-eviction to delete pods without asking budgets"),
    }
}
