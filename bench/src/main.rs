//! Side-by-side benchmarks. Both sides run in the same process tree on the same machine, by turns, and
//! the results are ratios: `evac-bench apiserver|beside|compare|drain|evacuate|maintenance|outlook|plan|scale`.
// Objects of a real cluster have many fields, and a macro that writes them takes a step for each.
#![recursion_limit = "512"]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod apiserver;
mod audit;
mod beside;
mod cluster;
mod compare;
mod drain;
mod evacuate;
mod guests;
mod maintenance;
mod operator;
mod outlook;
mod plan;
mod process;
mod report;
mod scale;
mod tool;
mod unused;

use anyhow::{Result, bail};

#[tokio::main]
async fn main() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["apiserver"] => apiserver::run(apiserver::Size::default()).await,
        ["apiserver", "--quick"] => apiserver::run(apiserver::Size::quick()).await,
        ["beside", words @ ..] => beside::run(beside::Plan::read(words)?).await,
        ["compare", words @ ..] => compare::run(words).await,
        ["drain"] => drain::run(3).await,
        ["drain", "--quick"] => drain::run(1).await,
        ["evacuate"] => evacuate::run(&[50, 200]).await,
        ["evacuate", "--quick"] => evacuate::run(&[10]).await,
        ["evacuate", counts @ ..] => {
            let counts: Result<Vec<usize>, _> = counts.iter().map(|count| count.parse()).collect();
            evacuate::run(&counts?).await
        }
        ["maintenance"] => maintenance::run(3).await,
        ["maintenance", "--quick"] => maintenance::run(1).await,
        ["outlook"] => outlook::run(outlook::Size { first: 500, seeds: 10, real: false }, None),
        ["outlook", "--quick"] => outlook::run(outlook::Size { first: 500, seeds: 2, real: false }, None),
        ["outlook", "--real"] => outlook::run(outlook::Size { first: 500, seeds: 2, real: true }, None),
        ["outlook", "--seeds", first, seeds, shape @ ..] => {
            let size = outlook::Size { first: first.parse()?, seeds: seeds.parse()?, real: false };
            outlook::run(size, shape.first().copied())
        }
        ["plan"] => plan::run(100_000),
        ["plan", "--quick"] => plan::run(10_000),
        ["scale"] => scale::run(100_000).await,
        ["scale", "--quick"] => scale::run(10_000).await,
        // How the bench starts its server.
        ["scale-server", instances, kubeconfig] => {
            scale::serve(scale::Size::of(instances.parse()?), kubeconfig).await
        }
        other => bail!(
            "unknown benchmark {other:?}; there are: apiserver, beside, compare, drain, evacuate, maintenance, outlook, plan and scale, each with [--quick]"
        ),
    }
}
