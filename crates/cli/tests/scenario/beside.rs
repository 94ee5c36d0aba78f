//! What a scenario says of itself about KubeVirt: whether it runs beside KubeVirt's own control plane, and what of evac it shows there.
//!
//! Scenarios obey these lines, and the table in `docs/kubevirt.md` is made from them (`cargo xtask compatibility`).

/// When a scenario runs beside KubeVirt's own control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beside {
    /// In every test run, with the newest release.
    Always,
    /// In every test run, also with the release before it.
    BothReleases,
    /// It passes there, and is run only where it is asked for.
    OnDemand,
    /// Likewise, but not with the release before the newest, which lacks what it needs.
    OnDemandNewest,
    /// Never, for this reason.
    No(String),
}

/// The lines of one scenario that are about KubeVirt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    pub beside: Option<Beside>,
    /// Commands (`evac drain`) and roles (`role tenants`).
    pub covers: Vec<String>,
}

const BESIDE: &str = "beside kubevirt: ";
const COVERS: &str = "covers: ";

/// Whether a line is one of those that `notes` reads.
pub fn is_note(line: &str) -> bool {
    line.starts_with(BESIDE) || line.starts_with(COVERS)
}

/// Reads them from the text of a scenario.
pub fn notes(text: &str) -> Result<Notes, String> {
    let mut notes = Notes::default();
    for (at, line) in text.lines().enumerate() {
        if let Some(when) = line.strip_prefix(BESIDE) {
            let when = read(when.trim()).ok_or_else(|| {
                let known = "always, both releases, on demand, on demand with the newest release, or no, because REASON";
                format!("line {}: expected {known}: {line}", at + 1)
            })?;
            notes.beside = Some(when);
        } else if let Some(list) = line.strip_prefix(COVERS) {
            notes.covers.extend(list.split(',').map(|one| one.trim().to_owned()));
        }
    }
    let runs = notes.beside.as_ref().is_some_and(|when| !matches!(when, Beside::No(_)));
    if !notes.covers.is_empty() && !runs {
        return Err("it covers something, and does not run beside KubeVirt".into());
    }
    Ok(notes)
}

fn read(when: &str) -> Option<Beside> {
    match when {
        "always" => Some(Beside::Always),
        "both releases" => Some(Beside::BothReleases),
        "on demand" => Some(Beside::OnDemand),
        "on demand with the newest release" => Some(Beside::OnDemandNewest),
        _ => {
            let why = when.strip_prefix("no, because ")?;
            (!why.trim().is_empty()).then(|| Beside::No(why.to_owned()))
        }
    }
}
