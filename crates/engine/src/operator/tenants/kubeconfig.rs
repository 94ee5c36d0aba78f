//! Reads the kubeconfig of a tenant as what it is: a text that somebody else wrote.
//!
//! A kubeconfig can name programs to run, files to read and proxies to go through. Here it may say where the server is, whom to
//! trust about that, and who we are there, all of it inline. Everything else is refused, wherever in the file it stands, with a
//! reason that holds nothing of the file but the names of fields. Unknown fields are refused too: who knows what they mean.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::config::AuthInfo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Map, Value};
use thiserror::Error;

/// Kubeconfigs have a few thousand characters.
const LARGEST: usize = 128 * 1024;
const LONGEST_TOKEN: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("it is larger than {} KiB", LARGEST / 1024)]
    TooLarge,
    #[error("it is not text in UTF-8")]
    NotText,
    #[error("it cannot be read as YAML")]
    NotYaml,
    #[error("{0} is not {1}")]
    Shape(String, &'static str),
    #[error("it has no {0}")]
    Missing(&'static str),
    #[error("{0} is {1}")]
    Forbidden(String, &'static str),
    #[error("{0} is unknown")]
    Unknown(String),
    #[error("it has more than one {0} of the same name")]
    Twice(&'static str),
    #[error("the server is not an https address with nothing but host, port and path")]
    Server,
    #[error("{0} cannot be read: {1}")]
    Material(&'static str, &'static str),
}

/// How a tenant is reached. It holds secrets and shows none of them.
pub struct Access {
    pub host: String,
    pub port: u16,
    pub path: String,
    /// The name in the server's certificate, where it is not the host.
    pub server_name: Option<String>,
    pub authorities: Vec<Vec<u8>>,
    pub who: AuthInfo,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({}:{}, …)", self.host, self.port)
    }
}

/// What a field may be.
enum Rule {
    Text,
    /// Read by nobody.
    Ignored,
    /// False is what it would be anyway.
    False(&'static str),
    Flag,
    Never(&'static str),
}

const FILE: &str = "a file of ours, and only inline data is allowed";
const PROGRAM: &str = "a program to run, which is not allowed";

const CLUSTER: &[(&str, Rule)] = &[
    ("server", Rule::Text),
    ("certificate-authority-data", Rule::Text),
    ("tls-server-name", Rule::Text),
    ("disable-compression", Rule::Flag),
    ("extensions", Rule::Ignored),
    ("insecure-skip-tls-verify", Rule::False("a server that nobody vouches for, which is not allowed")),
    ("certificate-authority", Rule::Never(FILE)),
    ("proxy-url", Rule::Never("a proxy, which is not allowed")),
];
const USER: &[(&str, Rule)] = &[
    ("client-certificate-data", Rule::Text),
    ("client-key-data", Rule::Text),
    ("token", Rule::Text),
    ("extensions", Rule::Ignored),
    ("client-certificate", Rule::Never(FILE)),
    ("client-key", Rule::Never(FILE)),
    ("tokenFile", Rule::Never(FILE)),
    ("exec", Rule::Never(PROGRAM)),
    ("auth-provider", Rule::Never(PROGRAM)),
    ("username", Rule::Never("a password's owner, and passwords are not allowed")),
    ("password", Rule::Never("a password, which is not allowed")),
    ("as", Rule::Never("an impersonation, which is not allowed")),
    ("as-uid", Rule::Never("an impersonation, which is not allowed")),
    ("as-groups", Rule::Never("an impersonation, which is not allowed")),
    ("as-user-extra", Rule::Never("an impersonation, which is not allowed")),
];
const CONTEXT: &[(&str, Rule)] = &[
    ("cluster", Rule::Text),
    ("user", Rule::Text),
    ("namespace", Rule::Text),
    ("extensions", Rule::Ignored),
];
const TOP: &[(&str, Rule)] = &[
    ("apiVersion", Rule::Text),
    ("kind", Rule::Text),
    ("current-context", Rule::Text),
    ("preferences", Rule::Ignored),
    ("extensions", Rule::Ignored),
    ("clusters", Rule::Ignored),
    ("users", Rule::Ignored),
    ("contexts", Rule::Ignored),
];

pub fn read(bytes: &[u8]) -> Result<Access, Refusal> {
    if bytes.len() > LARGEST {
        return Err(Refusal::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Refusal::NotText)?;
    // The error of the parser may quote the text, so it is dropped.
    let options = serde_saphyr::options! {
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        budget: serde_saphyr::budget! { max_aliases: 0, max_anchors: 0, max_depth: 16 },
    };
    let file: Value = serde_saphyr::from_str_with_options(text, options).map_err(|_| Refusal::NotYaml)?;
    let top = object(&file, "the kubeconfig")?;
    check(top, TOP, "")?;
    if top.get("kind").and_then(Value::as_str) != Some("Config") {
        return Err(Refusal::Shape("it".into(), "of kind Config"));
    }
    let clusters = entries(top, "clusters", "cluster", CLUSTER)?;
    let users = entries(top, "users", "user", USER)?;
    let contexts = entries(top, "contexts", "context", CONTEXT)?;
    let current = text_of(top, "current-context").ok_or(Refusal::Missing("current-context"))?;
    let context = named(&contexts, current).ok_or(Refusal::Missing("context that is current"))?;
    let of = |field: &str| text_of(context, field).unwrap_or_default();
    let cluster = named(&clusters, of("cluster")).ok_or(Refusal::Missing("cluster for its context"))?;
    let user = named(&users, of("user")).ok_or(Refusal::Missing("user for its context"))?;
    let (host, port, path) = server(text_of(cluster, "server").unwrap_or_default())?;
    Ok(Access {
        host,
        port,
        path,
        server_name: server_name(cluster)?,
        authorities: authorities(cluster)?,
        who: who(user)?,
    })
}

type Object = Map<String, Value>;

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Object, Refusal> {
    value.as_object().ok_or_else(|| Refusal::Shape(what.to_owned(), "a map of fields"))
}

fn text_of<'a>(object: &'a Object, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The name of a field as it may be shown.
fn shown(prefix: &str, field: &str) -> String {
    let harmless = field.len() <= 40 && field.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if harmless { format!("{prefix}{field}") } else { format!("a field {prefix}? with a strange name") }
}

fn check(object: &Object, rules: &[(&str, Rule)], prefix: &str) -> Result<(), Refusal> {
    for (field, value) in object {
        let rule = rules.iter().find(|(name, _)| name == field).map(|(_, rule)| rule);
        // Nothing is as good as not there.
        match rule {
            None => return Err(Refusal::Unknown(shown(prefix, field))),
            Some(_) if value.is_null() => {}
            Some(Rule::Never(what)) => return Err(Refusal::Forbidden(shown(prefix, field), what)),
            Some(Rule::False(what)) if *value != Value::Bool(false) => {
                return Err(Refusal::Forbidden(shown(prefix, field), what));
            }
            Some(Rule::Text) if !value.is_string() => {
                return Err(Refusal::Shape(shown(prefix, field), "text"));
            }
            Some(Rule::Flag) if !value.is_boolean() => {
                return Err(Refusal::Shape(shown(prefix, field), "true or false"));
            }
            Some(Rule::Ignored | Rule::Text | Rule::Flag | Rule::False(_)) => {}
        }
    }
    Ok(())
}

/// The entries of one of the lists, each with its name. All of them are checked, also those that are not current.
fn entries<'a>(
    top: &'a Object,
    list: &'static str,
    part: &'static str,
    rules: &[(&str, Rule)],
) -> Result<Vec<(&'a str, &'a Object)>, Refusal> {
    let items = match top.get(list) {
        None | Some(Value::Null) => return Err(Refusal::Missing(list)),
        Some(value) => value.as_array().ok_or_else(|| Refusal::Shape(list.to_owned(), "a list"))?,
    };
    let mut found: Vec<(&str, &Object)> = Vec::new();
    for item in items {
        let item = object(item, list)?;
        if let Some(field) = item.keys().find(|field| *field != "name" && *field != part) {
            return Err(Refusal::Unknown(shown(&format!("{list}."), field)));
        }
        let name = text_of(item, "name").ok_or(Refusal::Missing("name for an entry"))?;
        let inner = object(item.get(part).unwrap_or(&Value::Null), part)?;
        check(inner, rules, &format!("{part}."))?;
        if found.iter().any(|(known, _)| *known == name) {
            return Err(Refusal::Twice(part));
        }
        found.push((name, inner));
    }
    Ok(found)
}

fn named<'a>(entries: &[(&str, &'a Object)], name: &str) -> Option<&'a Object> {
    entries.iter().find(|(known, _)| *known == name).map(|(_, object)| *object)
}

fn server(text: &str) -> Result<(String, u16, String), Refusal> {
    let uri: Uri = text.parse().map_err(|_| Refusal::Server)?;
    let authority = uri.authority().ok_or(Refusal::Server)?;
    let plain = uri.scheme_str() == Some("https")
        && !authority.as_str().contains('@')
        && uri.query().is_none()
        && !text.contains('#')
        && !uri.path().contains("..");
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = match authority.port() {
        Some(port) => port.as_u16(),
        None if authority.as_str().ends_with(':') => return Err(Refusal::Server),
        None => 443,
    };
    // As an address or as a name, both of the kind that certificates are made for.
    if !plain || port == 0 || ServerName::try_from(host.clone()).is_err() {
        return Err(Refusal::Server);
    }
    Ok((host, port, uri.path().trim_end_matches('/').to_owned()))
}

fn server_name(cluster: &Object) -> Result<Option<String>, Refusal> {
    let Some(name) = text_of(cluster, "tls-server-name") else { return Ok(None) };
    match ServerName::try_from(name.to_owned()) {
        Ok(_) => Ok(Some(name.to_owned())),
        Err(_) => Err(Refusal::Material("cluster.tls-server-name", "it is not a name")),
    }
}

fn decoded(object: &Object, field: &str, what: &'static str) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(text) = text_of(object, field) else { return Ok(None) };
    STANDARD.decode(text).map(Some).map_err(|_| Refusal::Material(what, "it is not base64"))
}

fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<Vec<u8>>, Refusal> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| Refusal::Material(what, "it is not PEM"))?;
    let sound = |one: &CertificateDer<'_>| x509_parser::parse_x509_certificate(one).is_ok();
    if all.is_empty() || !all.iter().all(sound) {
        return Err(Refusal::Material(what, "it has no certificate, or a broken one"));
    }
    Ok(all.iter().map(|one| one.to_vec()).collect())
}

/// Without an authority of its own a tenant would be trusted because of whoever this machine trusts.
fn authorities(cluster: &Object) -> Result<Vec<Vec<u8>>, Refusal> {
    const WHAT: &str = "cluster.certificate-authority-data";
    let pem = decoded(cluster, "certificate-authority-data", WHAT)?;
    certificates(&pem.ok_or(Refusal::Missing("certificate-authority-data"))?, WHAT)
}

fn who(user: &Object) -> Result<AuthInfo, Refusal> {
    const CERTIFICATE: &str = "user.client-certificate-data";
    const KEY: &str = "user.client-key-data";
    let mut who = AuthInfo::default();
    let certificate = decoded(user, "client-certificate-data", CERTIFICATE)?;
    let key = decoded(user, "client-key-data", KEY)?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            certificates(&certificate, CERTIFICATE)?;
            PrivateKeyDer::from_pem_slice(&key).map_err(|_| Refusal::Material(KEY, "it is not a key"))?;
            who.client_certificate_data = text_of(user, "client-certificate-data").map(str::to_owned);
            who.client_key_data = text_of(user, "client-key-data").map(|text| text.to_owned().into());
        }
        (None, None) => {}
        (Some(_), None) => return Err(Refusal::Missing("client-key-data for its certificate")),
        (None, Some(_)) => return Err(Refusal::Missing("client-certificate-data for its key")),
    }
    if let Some(token) = text_of(user, "token") {
        if token.len() > LONGEST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Refusal::Material("user.token", "it is not a token"));
        }
        who.token = Some(token.to_owned().into());
    }
    if who.token.is_none() && who.client_certificate_data.is_none() {
        return Err(Refusal::Missing("token or client certificate"));
    }
    Ok(who)
}
