//! Which cluster, as whom: kubectl's connection flags.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use evac_clock::Clock;
use evac_engine::Http;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::exit::Failure;
use crate::proxy::is_direct;

#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Path to the kubeconfig file to use
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The name of the kubeconfig context to use
    #[arg(long)]
    pub context: Option<String>,
    /// The name of the kubeconfig cluster to use
    #[arg(long)]
    pub cluster: Option<String>,
    /// The name of the kubeconfig user to use
    #[arg(long)]
    pub user: Option<String>,
    /// The namespace of pods named without one
    #[arg(long, short = 'n', add = crate::complete::namespaces())]
    pub namespace: Option<String>,
    /// Username to impersonate
    #[arg(long = "as", value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to impersonate, may be repeated
    #[arg(long = "as-group", value_name = "GROUP")]
    pub impersonate_group: Vec<String>,
    /// UID to impersonate
    #[arg(long = "as-uid", value_name = "UID")]
    pub impersonate_uid: Option<String>,
    /// How long to wait for one request, such as 30s; 0 uses the default
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse_lenient, default_value = "0", hide_default_value = true)]
    pub request_timeout: Duration,
    /// The address of the API server
    #[arg(long, short = 's', value_name = "URL")]
    pub server: Option<String>,
    /// Bearer token for authentication
    #[arg(long)]
    pub token: Option<String>,
    /// Do not check the server's certificate
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub insecure_skip_tls_verify: bool,
    /// Path to a certificate authority file
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Path to a client certificate file
    #[arg(long, value_name = "FILE")]
    pub client_certificate: Option<String>,
    /// Path to a client key file
    #[arg(long, value_name = "FILE")]
    pub client_key: Option<String>,
    /// Server name to expect in the server's certificate
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

impl ClusterArgs {
    /// Reads the configuration as kubectl does and connects without hidden retries.
    pub async fn connect(&self) -> Result<(Http, String), Failure> {
        let config = self.config().await?;
        let namespace = config.default_namespace.clone();
        let server = config.cluster_url.to_string();
        let client = evac_engine::http::connect(config)
            .map_err(|error| Failure::error(format!("cannot use this cluster configuration: {error}")))?;
        Ok((Http::new(client, Clock::real(), self.request_timeout).at(&server), namespace))
    }

    /// Whether the API server is reached on loopback.
    pub async fn is_on_this_machine(&self) -> Result<bool, Failure> {
        let url = self.config().await?.cluster_url;
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        Ok(host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback()))
    }

    async fn config(&self) -> Result<kube::Config, Failure> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let mut config = if let Some(path) = &self.kubeconfig {
            let file = Kubeconfig::read_from(path).map_err(|error| unusable(&error))?;
            kube::Config::from_custom_kubeconfig(file, &options).await.map_err(|error| unusable(&error))?
        } else if options.context.is_some() || options.cluster.is_some() || options.user.is_some() {
            kube::Config::from_kubeconfig(&options).await.map_err(|error| unusable(&error))?
        } else if let Some(server) = &self.server {
            match kube::Config::infer().await {
                Ok(config) => config,
                Err(_) => kube::Config::new(address(server)?),
            }
        } else {
            kube::Config::infer().await.map_err(|error| not_inferred(&error))?
        };
        if let Some(server) = &self.server {
            config.cluster_url = address(server)?;
        }
        if config.proxy_url.is_some()
            && config.proxy_url == proxy_of_environment()
            && is_direct(&config.cluster_url, &variable("NO_PROXY").unwrap_or_default())
        {
            config.proxy_url = None;
        }
        if let Some(path) = &self.certificate_authority {
            config.root_cert_file = Some(path.clone());
            config.root_cert = None;
        }
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        config.accept_invalid_certs |= self.insecure_skip_tls_verify;
        if self.tls_server_name.is_some() {
            config.tls_server_name.clone_from(&self.tls_server_name);
        }
        let who = &mut config.auth_info;
        if let Some(token) = &self.token {
            who.token = Some(token.clone().into());
        }
        if self.client_certificate.is_some() {
            who.client_certificate.clone_from(&self.client_certificate);
            who.client_certificate_data = None;
        }
        if self.client_key.is_some() {
            who.client_key.clone_from(&self.client_key);
            who.client_key_data = None;
        }
        if self.impersonate.is_some() {
            who.impersonate.clone_from(&self.impersonate);
        }
        if !self.impersonate_group.is_empty() {
            who.impersonate_groups = Some(self.impersonate_group.clone());
        }
        if self.impersonate_uid.is_some() {
            who.impersonate_uid.clone_from(&self.impersonate_uid);
        }
        Ok(config)
    }
}

const NO_CLUSTER: &str = "no cluster is configured: there is no kubeconfig at ~/.kube/config or where $KUBECONFIG points; give --kubeconfig, --context or --server, or try things out with `evac sandbox up`";

/// Neither a kubeconfig nor the account of a pod was found; what a person can put right is the kubeconfig.
fn not_inferred(error: &InferConfigError) -> Failure {
    match std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<KubeconfigError>()) {
        Some(cause) if is_absent(cause) => Failure::error(NO_CLUSTER),
        Some(cause) => unusable(cause),
        None => Failure::error(error.to_string()),
    }
}

fn unusable(error: &KubeconfigError) -> Failure {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if !text.contains(&cause.to_string()) {
            text = format!("{text}: {cause}");
        }
        source = cause.source();
    }
    Failure::error(format!("cannot load the cluster configuration: {text}"))
}

/// Whether there is no file to read a configuration from.
fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// As programs read it: in capitals, or else in small letters.
fn variable(name: &str) -> Option<String> {
    let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    read(name).or_else(|| read(&name.to_lowercase()))
}

fn proxy_of_environment() -> Option<http::Uri> {
    variable("HTTPS_PROXY")?.parse().ok()
}

fn address(text: &str) -> Result<http::Uri, Failure> {
    text.parse().map_err(|_| Failure::usage(format!("'{text}' is not the address of a server")))
}

#[derive(Debug, Clone, Args, Default)]
pub struct OwnerArgs {
    /// The name under which you drain; by default $EVAC_OWNER or user@host
    #[arg(long, value_name = "NAME", help_heading = "How to go about it")]
    pub owner: Option<String>,
}

impl OwnerArgs {
    /// Who we are in the words other drainers will read on the node.
    pub fn name(&self) -> String {
        self.owner.clone().filter(|name| !name.is_empty()).unwrap_or_else(default_owner)
    }
}

fn default_owner() -> String {
    if let Ok(owner) = std::env::var("EVAC_OWNER")
        && !owner.is_empty()
    {
        return owner;
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME")).or_else(|| variable("USERNAME"));
    format!("{}@{}", user.as_deref().unwrap_or("evac"), host())
}

fn host() -> String {
    let variable = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    variable
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok().map(|text| text.trim().to_owned()))
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| "localhost".into())
}

/// Which of our runs this is: the host and the process, so that an operator who finds the lease knows where to look.
pub fn instance() -> String {
    format!("{}:{}", host(), std::process::id())
}
