//! The rooms of a crate, and which of them know which. A room is what lies directly under `src`: a file, or a directory with all that is in it.
//!
//! Tests keep rooms in rows: a room knows only rooms of earlier rows. So there are no circles, and a crate can be read from its leaves.
//! `lib.rs` is a room, too: it is known by a room that uses what it defines or passes on. Code for tests may look everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// Which room knows which other, and in which of its files.
#[derive(Debug, Default)]
pub struct Rooms {
    known_by: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Rooms {
    /// Reads the sources of the crate in this directory.
    pub fn of_crate(root: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        read(&root.join("src"), "", &mut files)?;
        Ok(Self::of(&files))
    }

    /// The rooms of these files: path under `src` → text.
    pub fn of(files: &BTreeMap<String, String>) -> Self {
        let for_tests: Vec<String> =
            files.iter().flat_map(|(path, text)| modules_for_tests(path, text)).collect();
        let is_for_tests = |path: &str| {
            let path = path.trim_end_matches(".rs");
            for_tests.iter().any(|module| path.strip_prefix(module.as_str()).is_some_and(is_end_of_name))
        };
        let kept: Vec<(&String, String)> = files
            .iter()
            .filter(|(path, _)| !is_for_tests(path))
            .map(|(path, text)| (path, without_tests(text)))
            .collect();
        let names: BTreeSet<&str> = kept.iter().map(|(path, _)| room_of(path)).collect();
        let mut known_by: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> =
            names.iter().map(|name| ((*name).to_owned(), BTreeMap::new())).collect();
        for (path, code) in kept {
            let room = room_of(path);
            let known = if room == LIB { named_in_lib(&code, &names) } else { named(path, &code, &names) };
            for other in known.into_iter().filter(|other| *other != room) {
                let files = known_by.entry(room.to_owned()).or_default().entry(other).or_default();
                files.insert(path.clone());
            }
        }
        Self { known_by }
    }

    /// What is not as the rows have it: a room that knows one of its own row or of a later one, one that is in no row, a name without a room.
    pub fn against(&self, rows: &[&[&str]]) -> Vec<String> {
        let row = |room: &str| rows.iter().position(|row| row.contains(&room));
        let strangers = self.known_by.keys().filter(|room| row(room).is_none());
        let mut wrong: Vec<String> = strangers.map(|room| format!("{room} is in no row")).collect();
        let missing = rows.iter().copied().flatten().filter(|name| !self.known_by.contains_key(**name));
        wrong.extend(missing.map(|name| format!("there is no room {name}")));
        for (room, known) in &self.known_by {
            for (other, files) in known.iter().filter(|(other, _)| row(other) >= row(room)) {
                let files: Vec<&str> = files.iter().map(String::as_str).collect();
                wrong.push(format!("{room} knows {other}: {}", files.join(", ")));
            }
        }
        wrong
    }
}

const LIB: &str = "lib";

fn read(dir: &Path, inside: &str, files: &mut BTreeMap<String, String>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let inside = if inside.is_empty() { name.into_owned() } else { format!("{inside}/{name}") };
        if path.is_dir() {
            read(&path, &inside, files)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.insert(inside, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

fn room_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// The module that a file holds, as a path without an ending; empty for the root of the crate.
fn module_of(path: &str) -> &str {
    match path.trim_end_matches(".rs") {
        LIB => "",
        module => module.strip_suffix("/mod").unwrap_or(module),
    }
}

fn is_end_of_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// What is there for tests only: the line it is declared in, and the file that an attribute names for it.
struct ForTests<'a> {
    /// The number of the line with `#[cfg(test)]`.
    at: usize,
    declared: &'a str,
    file: Option<&'a str>,
}

fn for_tests(text: &str) -> impl Iterator<Item = ForTests<'_>> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let marks: Vec<usize> = (0..lines.len()).filter(|at| lines[*at] == "#[cfg(test)]").collect();
    marks.into_iter().filter_map(move |at| {
        let after = &lines[at + 1..];
        let attributes = after.iter().take_while(|line| line.starts_with("#[")).count();
        let file = after[..attributes]
            .iter()
            .find_map(|line| line.strip_prefix("#[path = \"").and_then(|line| line.strip_suffix("\"]")));
        Some(ForTests { at, declared: after.get(attributes)?, file })
    })
}

/// The modules in other files that a file has for its tests.
fn modules_for_tests(path: &str, text: &str) -> Vec<String> {
    let beside = path.rsplit_once('/').map_or(String::new(), |(dir, _)| format!("{dir}/"));
    let module = module_of(path);
    let inside = if module.is_empty() { String::new() } else { format!("{module}/") };
    let modules = for_tests(text).filter_map(|one| {
        let (_, name) = one.declared.strip_suffix(';')?.split_once("mod ")?;
        Some(match one.file {
            Some(file) => format!("{beside}{}", file.trim_end_matches(".rs")),
            None => format!("{inside}{name}"),
        })
    });
    modules.collect()
}

/// The code up to the tests at its end, without comments.
fn without_tests(text: &str) -> String {
    let tests = for_tests(text).find(|one| one.declared.contains("mod ") && one.declared.ends_with('{'));
    let end = tests.map_or(usize::MAX, |one| one.at);
    let code = text.lines().take(end).filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Which rooms `lib.rs` names, where they are in scope.
fn named_in_lib(code: &str, rooms: &BTreeSet<&str>) -> BTreeSet<String> {
    let is_named = |room: &str| {
        let path = format!("{room}::");
        code.match_indices(&path).any(|(at, _)| !code[..at].ends_with(|c| is_of_name(c) || c == ':'))
    };
    rooms.iter().filter(|room| is_named(room)).map(|room| (*room).to_owned()).collect()
}

/// Which rooms a file names by paths from the root of the crate: with `crate::`, or with as many `super::` as lead there.
fn named(path: &str, code: &str, rooms: &BTreeSet<&str>) -> BTreeSet<String> {
    let up = "super::".repeat(module_of(path).split('/').count());
    let mut found = BTreeSet::new();
    for root in ["crate::", up.as_str()] {
        for (at, _) in code.match_indices(root) {
            if code[..at].ends_with(|c| is_of_name(c) || c == ':') {
                continue;
            }
            for name in first_names(&code[at + root.len()..]) {
                let room = if rooms.contains(name) { name } else { LIB };
                found.insert(room.to_owned());
            }
        }
    }
    found
}

/// The names that a path goes on with: one, or those of a list in braces.
fn first_names(rest: &str) -> Vec<&str> {
    let name = |text: &str| text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    let Some(list) = rest.strip_prefix('{') else { return vec![&rest[..name(rest)]] };
    let (mut names, mut depth, mut starts) = (Vec::new(), 0, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => starts = true,
            c if starts && is_of_name(c) => {
                names.push(&list[at..at + name(&list[at..])]);
                starts = false;
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(files: &[(&str, &str)]) -> Rooms {
        Rooms::of(&files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    fn wrong(files: &[(&str, &str)], rows: &[&[&str]]) -> Vec<String> {
        rooms(files).against(rows)
    }

    #[test]
    fn a_room_may_know_earlier_rows_and_itself() {
        let files = [("a/mod.rs", "mod b;"), ("a/b.rs", "use crate::a::X;"), ("c.rs", "use crate::a::X;")];
        assert_eq!(wrong(&files, &[&["a"], &["c"]]), Vec::<String>::new());
        assert_eq!(wrong(&files, &[&["c"], &["a"]]), ["c knows a: c.rs"]);
        assert_eq!(
            wrong(&files, &[&["a", "c"]]),
            ["c knows a: c.rs"],
            "rooms of one row do not know each other"
        );
    }

    #[test]
    fn every_room_is_in_a_row_and_every_name_is_a_room() {
        assert_eq!(wrong(&[("a.rs", "")], &[&["b"]]), ["a is in no row", "there is no room b"]);
    }

    #[test]
    fn lists_in_braces_and_paths_by_super_are_seen() {
        let other = ("c/mod.rs", "");
        let knows_c = |path: &str, text: &str| wrong(&[(path, text), other], &[&["a"], &["c"]]).len() == 1;
        assert!(knows_c("a.rs", "use crate::{a::{x, y}, c};"));
        assert!(knows_c("a.rs", "use super::c;"));
        assert!(knows_c("a/mod.rs", "use super::c;"));
        assert!(knows_c("a/b.rs", "use super::super::c;"));
        assert!(!knows_c("a/b.rs", "use super::c;"), "that is a::c");
        assert!(!knows_c("a.rs", "use evac_crate::c; use crate::a::{c};"));
        assert!(!knows_c("a.rs", "// crate::c"));
    }

    #[test]
    fn what_lib_defines_belongs_to_lib_which_knows_rooms_by_their_names() {
        let files = [("lib.rs", "mod a;\nmod b;\nuse a::X;"), ("a.rs", ""), ("b.rs", "use crate::World;")];
        assert_eq!(wrong(&files, &[&["a"], &["lib"], &["b"]]), Vec::<String>::new());
        assert_eq!(wrong(&files, &[&["lib"], &["a"], &["b"]]), ["lib knows a: lib.rs"]);
        assert_eq!(wrong(&files, &[&["a"], &["b"], &["lib"]]), ["b knows lib: b.rs"]);
    }

    #[test]
    fn tests_may_look_everywhere() {
        let inline = "#[cfg(test)]\n#[allow(x)]\npub(crate) mod tests {\n    use crate::c;\n}";
        let beside = "#[cfg(test)]\nmod fixtures;";
        let elsewhere = "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;";
        let files = [
            ("a/mod.rs", beside),
            ("a/fixtures.rs", "use crate::c;"),
            ("a/b.rs", elsewhere),
            ("a/b_tests.rs", "use crate::c;"),
            ("a/d.rs", inline),
            ("c.rs", ""),
        ];
        assert_eq!(wrong(&files, &[&["a"], &["c"]]), Vec::<String>::new());
    }
}
