//! A drain on a terminal: what is seen of it while it works, and that nothing of that stays.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]
#![cfg(unix)]

use std::io::{Read, Write};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};
use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of one node with pods, and a terminal on which its drain runs.
struct Case {
    api: Arc<Api>,
    client: kube::Client,
    world: World,
    front: Front,
    folder: tempfile::TempDir,
}

impl Case {
    async fn with_pods(count: usize) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clock = Clock::real();
        let api = Api::new(clock, Settings { seed: 1, ..Settings::default() });
        let front = Front::open(api.clone(), 0).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), &front.kubeconfig).unwrap();
        let client = kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default");
        let world = World::start(client.clone(), clock, Options::cluster(NodeSpec::workers(1)));
        world.idle().await;
        let case = Self { api, client, world, front, folder };
        for number in 1..=count {
            let pod = json!({
                "metadata": {"name": format!("pod-{number}")},
                "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}
            });
            case.post("/api/v1/namespaces/default/pods", &pod).await;
        }
        case.world.idle().await;
        case
    }

    async fn post(&self, path: &str, body: &Value) {
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes()).unwrap();
        self.client.request_text(request).await.unwrap();
    }

    /// A webhook that takes the call and never answers, so that evictions hang.
    async fn silent_webhook(&self) -> TcpListener {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}/", silent.local_addr().unwrap().port());
        let hook = json!({
            "metadata": {"name": "silent"},
            "webhooks": [{
                "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 30, "failurePolicy": "Fail", "clientConfig": {"url": url},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}],
            }]
        });
        self.post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", &hook).await;
        silent
    }

    fn drain(&self, rows: u16, columns: u16) -> Terminal {
        let command = Command::new(env!("CARGO_BIN_EXE_evac"))
            .args(["drain", "node-1", "--force"])
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR");
        Terminal::run(command, rows, columns)
    }

    async fn end(self) {
        self.world.stop().await;
        self.front.close().await;
        drop(self.api);
    }
}

struct Terminal {
    keyboard: Arc<Pty>,
    child: Child,
    printed: mpsc::UnboundedReceiver<Vec<u8>>,
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

impl Terminal {
    fn run(command: Command, rows: u16, columns: u16) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let child = command.spawn(pts).unwrap();
        let keyboard = Arc::new(pty);
        let reader = keyboard.clone();
        let (sender, printed) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // When the program is gone, reading fails.
            while let Ok(read @ 1..) = (&*reader).read(&mut buffer) {
                let _ = sender.send(buffer[..read].to_vec());
            }
        });
        Self { keyboard, child, printed, screen: vt100::Parser::new(rows, columns, 0), bytes: Vec::new() }
    }

    fn seen(&self) -> String {
        self.screen.screen().contents()
    }

    /// Takes in what was printed; false when the program is gone.
    async fn look(&mut self) -> bool {
        let news = tokio::time::timeout(PATIENCE, self.printed.recv()).await;
        let Some(bytes) = news.unwrap_or_else(|_| panic!("nothing more is seen:\n{}", self.seen())) else {
            return false;
        };
        self.screen.process(&bytes);
        self.bytes.extend(bytes);
        true
    }

    /// Looks until the words are there, and what was being drawn is drawn whole.
    async fn until(&mut self, words: &str) {
        while !self.seen().contains(words) || self.updates().0 != self.updates().1 {
            assert!(self.look().await, "it ended before {words:?} was seen:\n{}", self.seen());
        }
    }

    /// How often a drawing was begun and ended: each is one update for the terminal.
    fn updates(&self) -> (usize, usize) {
        let count = |mark: &[u8]| self.bytes.windows(mark.len()).filter(|bytes| *bytes == mark).count();
        (count(b"\x1b[?2026h"), count(b"\x1b[?2026l"))
    }

    fn press_ctrl_c(&self) {
        (&*self.keyboard).write_all(&[3]).unwrap();
    }

    async fn ended(&mut self) -> ExitStatus {
        while self.look().await {}
        self.child.wait().unwrap()
    }
}

/// What only the view has, and no line above it.
fn of_the_view(text: &str) -> Vec<&str> {
    let of_view = |line: &&str| line.contains(['█', '░']) || line.starts_with("  ");
    text.lines().filter(of_view).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_narrow_terminal_the_view_fits_and_after_ctrl_c_nothing_of_it_is_left() {
    let case = Case::with_pods(30).await;
    let silent = case.silent_webhook().await;
    let mut terminal = case.drain(20, 40);
    tokio::time::timeout(PATIENCE, silent.accept()).await.expect("the webhook is called").unwrap();
    terminal.until("pods are leaving").await;
    let seen = terminal.seen();
    assert!(seen.contains("0/30"), "{seen}");
    let first = seen.lines().position(|line| line.contains('░')).expect("a bar");
    for row in first..20 {
        assert!(!terminal.screen.screen().row_wrapped(u16::try_from(row).unwrap()), "row {row} of:\n{seen}");
    }
    assert!(terminal.screen.screen().hide_cursor());

    terminal.press_ctrl_c();
    terminal.until("press Ctrl-C again").await;
    terminal.press_ctrl_c();
    assert_eq!(terminal.ended().await.code(), Some(6));
    let seen = terminal.seen();
    assert_eq!(of_the_view(&seen), [] as [&str; 0], "{seen}");
    assert!(!terminal.screen.screen().hide_cursor());
    let (begun, ended) = terminal.updates();
    assert!(begun > 0 && begun == ended, "{begun} begun, {ended} ended");
    case.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_there_are_the_lines_of_a_script_and_one_that_sums_up() {
    let case = Case::with_pods(3).await;
    let mut terminal = case.drain(24, 80);
    assert!(terminal.ended().await.success());
    let seen = terminal.seen();
    assert_eq!(of_the_view(&seen), [] as [&str; 0], "{seen}");
    let lines: Vec<&str> = seen.lines().collect();
    let [.., drained, safe, summary] = lines.as_slice() else { panic!("{seen}") };
    assert_eq!((*drained, *safe), ("node/node-1 drained", "node/node-1 safe to power off: yes"));
    assert!(summary.starts_with("3 pods: 3 evicted, in ") && summary.ends_with(" s"), "{seen}");
    let (begun, ended) = terminal.updates();
    assert_eq!(begun, ended);
    case.end().await;
}
