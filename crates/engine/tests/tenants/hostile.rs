//! Every file under `hostile/` is refused with the reason in its first line, and nothing happens: no program runs, no file is read,
//! nobody is connected to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evac_api::Call;
use evac_api::kubevirt::request::create;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_core::Key;
use evac_core::tenants::quota::VisitQuota;
use evac_core::tenants::{Member, Trouble};
use evac_engine::Http;
use evac_engine::meter::Meter;
use evac_engine::operator::tenants::{kubeconfig, reach};
use futures::FutureExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Whoever reads from a pipe that nobody writes to waits for ever; so nobody waits longer than this.
const LONG: Duration = Duration::from_secs(10);

/// A host that keeps Secrets, and traps for whoever does what a kubeconfig says.
struct Traps {
    host: Http,
    listener: TcpListener,
    dir: PathBuf,
    values: BTreeMap<&'static str, String>,
}

impl Traps {
    async fn set() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let dir = std::env::temp_dir().join(format!("evac-hostile-{port}"));
        std::fs::create_dir_all(&dir).unwrap();
        let (pipe, program) = (dir.join("pipe"), dir.join("program"));
        let _ = std::fs::remove_file(&pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", dir.join("ran").display())).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(&program).status().unwrap().success());
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key);
        let certificate = STANDARD.encode(certificate.unwrap().pem());
        let values = BTreeMap::from([
            ("@PORT@", port.to_string()),
            ("@PIPE@", pipe.display().to_string()),
            ("@PROGRAM@", program.display().to_string()),
            ("@CA@", certificate.clone()),
            ("@CERT@", certificate),
            ("@KEY@", STANDARD.encode(key.serialize_pem())),
        ]);
        let api = Api::new(Clock::real(), Settings { seed: 1, ..Settings::default() });
        let client = kube::Client::new(Service::trusted(api, Identity::admin()), "default");
        let host = Http::new(client, Clock::real(), Duration::ZERO);
        Self { host, listener, dir, values }
    }

    fn fill(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// What becomes of a kubeconfig in a Secret.
    async fn enter(&self, name: &str, kubeconfig: &str) -> Result<Http, Trouble> {
        self.enter_from(name, kubeconfig, true).await
    }

    /// The same, where the host's own API server is (not) on this machine.
    async fn enter_from(&self, name: &str, kubeconfig: &str, loopback: bool) -> Result<Http, Trouble> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("{name}-kubeconfig"), "namespace": "default"},
            "data": {"value": STANDARD.encode(kubeconfig)},
        });
        let made = self.host.send(&create("/api/v1/namespaces/default/secrets", &secret)).await.unwrap();
        assert!(made.is_success(), "{name}");
        let member = Member {
            cluster: name.into(),
            secret: Key::new("default", format!("{name}-kubeconfig")),
            node: "worker-1".into(),
        };
        let meter = Arc::new(Meter::new(VisitQuota::VISIT));
        let entering = reach::tenant(&self.host, &member, "default", loopback, meter);
        tokio::time::timeout(LONG, entering).await.unwrap_or_else(|_| panic!("{name}: somebody reads a pipe"))
    }

    fn connected(&self) -> bool {
        self.listener.accept().now_or_never().is_some()
    }
}

impl Drop for Traps {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

const GOOD: &str = "apiVersion: v1
kind: Config
preferences: {}
clusters:
- {name: blue, cluster: {server: 'https://127.0.0.1:@PORT@', certificate-authority-data: @CA@, insecure-skip-tls-verify: false}}
contexts:
- {name: admin@blue, context: {cluster: blue, user: admin, namespace: default}}
current-context: admin@blue
users:
- {name: admin, user: {client-certificate-data: @CERT@, client-key-data: @KEY@, token: null}}
";

#[tokio::test]
async fn every_hostile_kubeconfig_is_refused_with_a_reason_and_nothing_happens() {
    let traps = Traps::set().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tenants/hostile");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let reason = text.lines().next().unwrap().strip_prefix("# refused: ").expect("the reason");
        let refused = traps.enter(&name, &traps.fill(&text)).await.err();
        let Some(Trouble::KubeconfigRefused { why, .. }) = refused else { panic!("{name}: {refused:?}") };
        assert!(why.starts_with(reason), "{name}: {why}");
        for secret in ["sesame", "@@@", traps.values["@KEY@"].as_str()] {
            assert!(!why.contains(secret), "{name}: {why}");
        }
        assert!(!traps.connected(), "{name}: somebody connected");
        assert!(!traps.dir.join("ran").exists(), "{name}: the program ran");
        count += 1;
    }
    assert!(count >= 30, "{count}");
}

#[tokio::test]
async fn the_traps_would_have_noticed() {
    let traps = Traps::set().await;
    let tenant = traps.enter("good", &traps.fill(GOOD)).await.expect("a good one is taken");
    assert!(!traps.connected(), "nobody is connected to before there is something to ask");
    let call = Call::get("/version");
    let asking = tenant.send(&call);
    let accepting = traps.listener.accept();
    let (stream, _) = tokio::select! {
        accepted = accepting => accepted.unwrap(),
        answer = asking => panic!("answered without a connection: {answer:?}"),
    };
    drop(stream);
    assert!(Command::new(&traps.values["@PROGRAM@"]).status().unwrap().success());
    assert!(traps.dir.join("ran").exists());
}

/// Serves one connection with TLS: reads the request and hands the stream over.
async fn serve_one(
    server: TcpListener,
    config: rustls::ServerConfig,
) -> tokio_rustls::server::TlsStream<tokio::net::TcpStream> {
    let (stream, _) = server.accept().await.unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let mut stream = acceptor.accept(stream).await.unwrap();
    let mut request = [0; 1024];
    let _ = stream.read(&mut request).await.unwrap();
    stream
}

/// A client that was let in, and the server it talks to.
async fn let_in(traps: &Traps, name: &str) -> (Http, TcpListener, rustls::ServerConfig) {
    let_in_as(traps, name, "127.0.0.1").await
}

async fn let_in_as(traps: &Traps, name: &str, host: &str) -> (Http, TcpListener, rustls::ServerConfig) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new([host.to_owned()]).unwrap().self_signed(&key).unwrap();
    let chain = vec![certificate.der().clone()];
    let secret = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, secret).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = GOOD
        .replace("127.0.0.1", host)
        .replace("@PORT@", &server.local_addr().unwrap().port().to_string())
        .replace("@CA@", &STANDARD.encode(certificate.pem()));
    (traps.enter(name, &traps.fill(&text)).await.unwrap(), server, config)
}

#[tokio::test]
async fn a_name_is_looked_up_once_and_its_certificate_has_to_be_for_it() {
    let traps = Traps::set().await;
    let (tenant, server, config) = let_in_as(&traps, "named", "localhost").await;
    let serving = async {
        let mut stream = serve_one(server, config).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        stream.flush().await.unwrap();
    };
    let call = Call::get("/version");
    let (answer, ()) = tokio::join!(tenant.send(&call), serving);
    assert_eq!(answer.unwrap().status, 200);
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_refused_like_its_address() {
    let traps = Traps::set().await;
    for (name, host) in [("by-name", "localhost"), ("by-address", "127.0.0.1"), ("in-ipv6", "[::1]")] {
        let text = traps.fill(&GOOD.replace("127.0.0.1", host));
        let refused = traps.enter_from(name, &text, false).await.err().unwrap().to_string();
        assert!(refused.contains("the server's address"), "{refused}");
    }
    assert!(!traps.connected());
}

#[tokio::test]
async fn an_answer_that_leads_elsewhere_is_not_followed() {
    let traps = Traps::set().await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (tenant, server, config) = let_in(&traps, "leading").await;
    let target = format!("https://{}/version", elsewhere.local_addr().unwrap());
    let serving = async {
        let mut stream = serve_one(server, config).await;
        let answer =
            format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    };
    let call = Call::get("/version");
    let (answer, ()) = tokio::join!(tenant.send(&call), serving);
    assert_eq!(answer.unwrap().status, 307);
    assert!(elsewhere.accept().now_or_never().is_none());
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let traps = Traps::set().await;
    let (tenant, server, config) = let_in(&traps, "endless").await;
    let serving = async {
        let mut stream = serve_one(server, config).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        let chunk = [b"100000\r\n".as_slice(), &vec![b'x'; 0x10_0000], b"\r\n"].concat();
        let mut sent = 0;
        while sent < 1000 && stream.write_all(&chunk).await.is_ok() {
            sent += 1;
        }
        sent
    };
    let call = Call::get("/version");
    let (answer, sent) = tokio::join!(tenant.send(&call), serving);
    assert!(answer.unwrap_err().to_string().ends_with("the server sends more than 16 MiB"));
    assert!((15..50).contains(&sent), "{sent} MiB");
}

#[test]
fn too_much_and_what_is_no_text_is_refused() {
    let large = format!("{GOOD}#{}", "x".repeat(200_000));
    assert_eq!(kubeconfig::read(large.as_bytes()).unwrap_err().to_string(), "it is larger than 128 KiB");
    assert_eq!(kubeconfig::read(&[0xff, 0xfe, 0x00]).unwrap_err().to_string(), "it is not text in UTF-8");
}

#[tokio::test]
async fn what_is_taken_shows_nothing_of_its_secrets() {
    let traps = Traps::set().await;
    let text = traps.fill(&GOOD.replace("token: null", "token: open-sesame"));
    let shown = format!("{:?}", kubeconfig::read(text.as_bytes()).unwrap());
    assert_eq!(shown, format!("Access(127.0.0.1:{}, …)", traps.values["@PORT@"]));
}
