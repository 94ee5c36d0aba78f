//! From text to steps.

use std::time::Duration;

use super::beside;

/// One scenario file.
#[derive(Debug)]
pub struct Scenario {
    pub nodes: usize,
    /// With the control plane of virtual machines.
    pub machines: bool,
    /// How many nodes the tenant cluster has, if there is one.
    pub tenant: Option<usize>,
    /// The embedded server cannot play this part.
    pub real_server_only: bool,
    /// Why what is said in the cluster need not be true when it ends.
    pub unrest: Option<String>,
    pub steps: Vec<(usize, Step)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Apply(String),
    /// The same in the tenant's cluster.
    InTenant(Box<Step>),
    /// Not where KubeVirt's own control plane runs, which does it in another way.
    WithoutKubeVirt(Box<Step>),
    /// The operator ends and another begins.
    RestartOperator,
    /// Waits for (or, if not waiting, checks) a condition.
    Condition {
        wait: bool,
        path: String,
        test: Test,
    },
    Patch {
        path: String,
        body: String,
    },
    Post {
        path: String,
        body: String,
    },
    Delete {
        path: String,
    },
    /// Keeps the value of a field under a name.
    Remember {
        name: String,
        path: String,
        pointer: String,
    },
    /// Asks until the answer is yes, or no.
    Ask {
        step: Box<Step>,
        yes: bool,
    },
    Kubelet {
        node: String,
        on: bool,
    },
    Power {
        node: String,
        on: bool,
    },
    Run {
        words: Vec<String>,
        expect: Expect,
        /// What was foretold of it has to come true.
        foreseen: bool,
    },
    Start {
        id: String,
        words: Vec<String>,
    },
    Signal {
        id: String,
        signal: String,
    },
    Join {
        id: String,
        expect: Expect,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    Equals { pointer: String, value: String },
    Differs { pointer: String, value: String },
    Absent { pointer: String },
    Count(usize),
}

/// What a command should have said and how it should have ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expect {
    pub stdout: Option<Vec<Line>>,
    pub stderr: Vec<Said>,
    pub exit: i32,
}

/// A line that has to come, perhaps in time.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub pattern: String,
    pub within: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Exact(String),
    AnyOrder(String),
    Anything,
}

impl Scenario {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut scenario = Self {
            nodes: 3,
            machines: false,
            tenant: None,
            real_server_only: false,
            unrest: None,
            steps: Vec::new(),
        };
        let mut foreseen = true;
        let mut lines = text.lines().enumerate().peekable();
        while let Some((at, raw)) = lines.next() {
            let line = raw.trim_end();
            let number = at + 1;
            let wrong = |why: &str| format!("line {number}: {why}: {line}");
            if line.is_empty() || line.starts_with('#') || beside::is_note(line) {
                continue;
            }
            let (inside, line) = match line.strip_prefix("in tenant ") {
                Some(line) => (true, line),
                None => (false, line),
            };
            let (ours_only, line) = match line.strip_prefix("without kubevirt ") {
                Some(line) => (true, line),
                None => (false, line),
            };
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            let step = match verb {
                "tenant" => {
                    scenario.tenant = Some(rest.parse().map_err(|_| wrong("not a number"))?);
                    continue;
                }
                "operator" if rest == "restart" => Step::RestartOperator,
                "nodes" => {
                    scenario.nodes = rest.parse().map_err(|_| wrong("not a number"))?;
                    continue;
                }
                "machines" => {
                    scenario.machines = true;
                    continue;
                }
                "unrest" => {
                    if rest.is_empty() {
                        return Err(wrong("expected a reason"));
                    }
                    scenario.unrest = Some(rest.to_owned());
                    continue;
                }
                "only" if rest == "on a real server" => {
                    scenario.real_server_only = true;
                    continue;
                }
                "apply" => {
                    let end = rest.strip_prefix("<<").ok_or_else(|| wrong("expected <<END"))?;
                    let mut yaml = String::new();
                    loop {
                        let (_, next) = lines.next().ok_or_else(|| wrong("no end of the block"))?;
                        if next == end {
                            break;
                        }
                        yaml.push_str(next);
                        yaml.push('\n');
                    }
                    Step::Apply(yaml)
                }
                "until" if rest.ends_with(" refused") || rest.ends_with(" accepted") => {
                    ask(rest).ok_or_else(|| wrong("expected post PATH JSON or delete PATH"))?
                }
                "kubelet" => match rest.split_once(' ') {
                    Some((node, "stop")) => Step::Kubelet { node: node.to_owned(), on: false },
                    Some((node, "start")) => Step::Kubelet { node: node.to_owned(), on: true },
                    _ => return Err(wrong("expected NODE stop or NODE start")),
                },
                "power" => match rest.split_once(' ') {
                    Some((node, "off")) => Step::Power { node: node.to_owned(), on: false },
                    Some((node, "on")) => Step::Power { node: node.to_owned(), on: true },
                    _ => return Err(wrong("expected NODE off or NODE on")),
                },
                "until" | "check" => {
                    condition(verb == "until", rest).ok_or_else(|| wrong("not a condition"))?
                }
                "patch" | "post" => {
                    let (path, body) = rest.split_once(' ').ok_or_else(|| wrong("expected PATH JSON"))?;
                    let (path, body) = (path.to_owned(), body.to_owned());
                    if verb == "patch" { Step::Patch { path, body } } else { Step::Post { path, body } }
                }
                "delete" => Step::Delete { path: rest.to_owned() },
                "remember" => match rest.split(' ').collect::<Vec<_>>().as_slice() {
                    [name, path, pointer] => Step::Remember {
                        name: (*name).to_owned(),
                        path: (*path).to_owned(),
                        pointer: (*pointer).to_owned(),
                    },
                    _ => return Err(wrong("expected NAME PATH POINTER")),
                },
                "unforeseen" if !rest.is_empty() => {
                    foreseen = false;
                    continue;
                }
                "$" => {
                    let foreseen = std::mem::replace(&mut foreseen, true);
                    Step::Run { words: words(rest), expect: Expect::default(), foreseen }
                }
                "start" => {
                    let (id, command) = rest.split_once(' ').ok_or_else(|| wrong("expected ID COMMAND"))?;
                    Step::Start { id: id.to_owned(), words: words(command) }
                }
                "signal" => {
                    let (id, signal) = rest.split_once(' ').ok_or_else(|| wrong("expected ID SIGNAL"))?;
                    Step::Signal { id: id.to_owned(), signal: signal.to_owned() }
                }
                "join" => Step::Join { id: rest.to_owned(), expect: Expect::default() },
                verb if matches!(verb, ">" | ">~" | "exit") || verb.starts_with('!') => {
                    let Some((_, Step::Run { expect, .. } | Step::Join { expect, .. })) =
                        scenario.steps.last_mut()
                    else {
                        return Err(wrong("belongs to no command"));
                    };
                    expectation(expect, verb, rest).ok_or_else(|| wrong("not a number"))?;
                    continue;
                }
                _ => return Err(wrong("unknown word")),
            };
            let step = if inside { Step::InTenant(Box::new(step)) } else { step };
            let step = if ours_only { Step::WithoutKubeVirt(Box::new(step)) } else { step };
            scenario.steps.push((number, step));
        }
        Ok(scenario)
    }

    /// Does it run one of these programs, perhaps with these words after it: `kubectl`, `evac vm start`?
    pub fn uses(&self, commands: &[&str]) -> bool {
        self.steps.iter().any(|(_, step)| match step {
            Step::Run { words, .. } | Step::Start { words, .. } => {
                let words: Vec<&str> =
                    words.iter().map(String::as_str).skip_while(|word| word.contains('=')).collect();
                commands.iter().any(|command| words.starts_with(&command.split(' ').collect::<Vec<_>>()))
            }
            _ => false,
        })
    }
}

fn expectation(expect: &mut Expect, verb: &str, rest: &str) -> Option<()> {
    let stdout = || -> Line {
        match (verb, rest) {
            (">", "...") => Line::Anything,
            (">", line) => Line::Exact(line.to_owned()),
            (_, line) => Line::AnyOrder(line.to_owned()),
        }
    };
    match verb {
        "exit" => expect.exit = rest.parse().ok()?,
        "!" => expect.stderr.push(Said { pattern: rest.to_owned(), within: None }),
        timed if timed.starts_with('!') => {
            let seconds = timed.strip_prefix('!')?.strip_suffix('s')?.parse().ok()?;
            let within = Some(Duration::from_secs(seconds));
            expect.stderr.push(Said { pattern: rest.to_owned(), within });
        }
        _ => expect.stdout.get_or_insert_with(Vec::new).push(stdout()),
    }
    Some(())
}

fn ask(rest: &str) -> Option<Step> {
    let (request, answer) = rest.rsplit_once(' ')?;
    let (verb, asked) = request.split_once(' ')?;
    let step = match verb {
        "post" => {
            let (path, body) = asked.split_once(' ')?;
            Step::Post { path: path.to_owned(), body: body.to_owned() }
        }
        "delete" => Step::Delete { path: asked.to_owned() },
        _ => return None,
    };
    Some(Step::Ask { step: Box::new(step), yes: answer == "accepted" })
}

fn condition(wait: bool, rest: &str) -> Option<Step> {
    let (path, test) = rest.split_once(' ')?;
    let words: Vec<&str> = test.splitn(3, ' ').collect();
    let test = match words.as_slice() {
        ["count", "==", number] => Test::Count(number.parse().ok()?),
        [pointer, "absent"] => Test::Absent { pointer: (*pointer).to_owned() },
        [pointer, "!=", value] => {
            Test::Differs { pointer: (*pointer).to_owned(), value: (*value).to_owned() }
        }
        [pointer, "==", value] => Test::Equals { pointer: (*pointer).to_owned(), value: (*value).to_owned() },
        _ => return None,
    };
    Some(Step::Condition { wait, path: path.to_owned(), test })
}

/// Splits a command line; double and single quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Does a line match a pattern in which `*` stands for anything? How wide the gaps between words are does
/// not matter: columns move with the ages in them.
pub fn matches(pattern: &str, line: &str) -> bool {
    let narrow = |text: &str| text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    matches_exactly(&narrow(pattern), &narrow(line))
}

fn matches_exactly(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else { return line.is_empty() };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// What is wrong with the lines of stdout, if anything.
pub fn difference(expected: &[Line], actual: &[&str]) -> Option<String> {
    let mut at = 0;
    let mut expected = expected.iter().peekable();
    while let Some(line) = expected.next() {
        match line {
            Line::Exact(pattern) => match actual.get(at) {
                Some(line) if matches(pattern, line) => at += 1,
                Some(line) => return Some(format!("expected {pattern:?}, got {line:?}")),
                None => return Some(format!("expected {pattern:?}, got the end")),
            },
            Line::Anything => {
                let next = expected.peek()?;
                let found = actual[at..].iter().position(|line| match next {
                    Line::Exact(pattern) | Line::AnyOrder(pattern) => matches(pattern, line),
                    Line::Anything => true,
                });
                match found {
                    Some(skipped) => at += skipped,
                    None => return Some(format!("nothing matches {next:?}")),
                }
            }
            Line::AnyOrder(first) => {
                let mut group = vec![first];
                while let Some(Line::AnyOrder(pattern)) = expected.peek() {
                    group.push(pattern);
                    expected.next();
                }
                for _ in 0..group.len() {
                    let Some(line) = actual.get(at) else {
                        return Some(format!("expected one of {group:?}, got the end"));
                    };
                    match group.iter().position(|pattern| matches(pattern, line)) {
                        Some(found) => group.remove(found),
                        None => return Some(format!("expected one of {group:?}, got {line:?}")),
                    };
                    at += 1;
                }
            }
        }
    }
    actual.get(at).map(|line| format!("expected the end, got {line:?}"))
}
