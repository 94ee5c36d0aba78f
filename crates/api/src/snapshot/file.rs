//! The snapshot as bytes: gzip over lines of JSON. The first line is the [`Header`], each further one an object, in the order of the header's kinds, as
//! many of each as the header says.

use std::io::{BufRead, BufReader, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Deserialize;
use thiserror::Error;

use super::header::{FORMAT, Header, Reading, VERSION};
use super::kinds::SnapshotKind;

/// More than this is not unpacked: ten times what a cluster of 5,000 nodes and 100,000 machines takes.
const MOST: u64 = 8 << 30;
/// The longest line: an API server stores no object of more than a few megabytes.
const LONGEST: u64 = 16 << 20;

/// Why a file cannot be used as a snapshot; each message ends a sentence that begins with the name of the file.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("is not a snapshot of evac: it is not compressed with gzip; make one with `evac capture FILE`")]
    NotCompressed,
    #[error(
        "is not a snapshot of evac, though it is compressed with gzip; make one with `evac capture FILE`"
    )]
    Foreign,
    #[error(
        "is a snapshot of format version {0}, and this evac reads versions up to {VERSION}; use the evac that wrote it, or a newer one"
    )]
    Newer(u32),
    #[error("ends too early: it was cut off when it was written or copied; capture it again")]
    Truncated,
    #[error("is damaged: {0}; capture it again")]
    Damaged(String),
    #[error("unpacks to more than {0} bytes, which is more than any cluster takes; it is not used")]
    TooLarge(u64),
}

/// Puts a snapshot together. The lines are objects that were reduced by their kind, in the order of the header.
pub fn write<'a, W: Write>(
    into: W,
    header: &Header,
    lines: impl IntoIterator<Item = &'a str>,
) -> std::io::Result<W> {
    let mut packed = GzEncoder::new(into, Compression::default());
    serde_json::to_writer(&mut packed, header)?;
    packed.write_all(b"\n")?;
    for line in lines {
        packed.write_all(line.as_bytes())?;
        packed.write_all(b"\n")?;
    }
    packed.finish()
}

/// An object in a snapshot.
#[derive(Debug)]
pub struct Line<'a> {
    pub kind: &'static SnapshotKind,
    pub json: &'a [u8],
}

/// A snapshot that is being read: one object is in memory at a time.
#[derive(Debug)]
pub struct SnapshotReader<R: Read> {
    pub header: Header,
    lines: Lines<R>,
    /// The kinds that are still to come, the next one last, and how many of each.
    to_come: Vec<(&'static SnapshotKind, usize)>,
}

#[derive(Debug)]
struct Lines<R: Read> {
    from: BufReader<std::io::Take<GzDecoder<BufReader<R>>>>,
    line: Vec<u8>,
    most: u64,
}

#[derive(Deserialize)]
struct Beginning {
    format: String,
    version: u32,
}

impl<R: Read> SnapshotReader<R> {
    /// Reads the header.
    pub fn open(from: R) -> Result<Self, SnapshotError> {
        Self::bounded(from, MOST)
    }

    fn bounded(from: R, most: u64) -> Result<Self, SnapshotError> {
        let mut from = BufReader::new(from);
        let begins = from.fill_buf().map_err(SnapshotError::Unreadable)?;
        match begins {
            [] => return Err(SnapshotError::Truncated),
            [0x1f, 0x8b, ..] | [0x1f] => {}
            _ => return Err(SnapshotError::NotCompressed),
        }
        // One byte more than is allowed shows that there is more.
        let unpacked = GzDecoder::new(from).take(most.saturating_add(1));
        let mut lines = Lines { from: BufReader::new(unpacked), line: Vec::new(), most };
        let Some(line) = lines.next()? else { return Err(SnapshotError::Foreign) };
        let beginning: Beginning = serde_json::from_slice(line).map_err(|_| SnapshotError::Foreign)?;
        if beginning.format != FORMAT {
            return Err(SnapshotError::Foreign);
        }
        if beginning.version > VERSION {
            return Err(SnapshotError::Newer(beginning.version));
        }
        let header: Header = serde_json::from_slice(line)
            .map_err(|error| SnapshotError::Damaged(format!("its first line does not fit: {error}")))?;
        let mut to_come = Vec::new();
        for one in &header.kinds {
            let Reading::Read { objects, .. } = one.state else { continue };
            let kind = SnapshotKind::named(&one.kind)
                .ok_or_else(|| SnapshotError::Damaged(format!("it has an unknown kind, {}", one.kind)))?;
            to_come.push((kind, objects));
        }
        to_come.reverse();
        Ok(Self { header, lines, to_come })
    }

    /// The next object; nothing after the last one.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, SnapshotError> {
        while self.to_come.last().is_some_and(|(_, left)| *left == 0) {
            self.to_come.pop();
        }
        let Some((kind, left)) = self.to_come.last_mut() else {
            return match self.lines.next()? {
                None => Ok(None),
                Some(_) => Err(SnapshotError::Damaged("it has more objects than its first line says".into())),
            };
        };
        *left -= 1;
        let kind = *kind;
        match self.lines.next()? {
            Some(json) => Ok(Some(Line { kind, json })),
            None => Err(SnapshotError::Truncated),
        }
    }
}

impl<R: Read> Lines<R> {
    fn next(&mut self) -> Result<Option<&[u8]>, SnapshotError> {
        self.line.clear();
        let read = (&mut self.from).take(LONGEST).read_until(b'\n', &mut self.line).map_err(broken)?;
        if self.from.get_ref().limit() == 0 {
            return Err(SnapshotError::TooLarge(self.most));
        }
        if read == 0 {
            return Ok(None);
        }
        if self.line.pop() != Some(b'\n') {
            let long = read as u64 == LONGEST;
            return Err(if long { SnapshotError::TooLarge(LONGEST) } else { SnapshotError::Truncated });
        }
        Ok(Some(&self.line))
    }
}

fn broken(error: std::io::Error) -> SnapshotError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => SnapshotError::Truncated,
        // So the decompression says that a header, a block or the checksum is not right.
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => {
            SnapshotError::Damaged(error.to_string())
        }
        _ => SnapshotError::Unreadable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Cluster, KindState};
    use super::*;

    fn header(nodes: usize) -> Header {
        let state = Reading::Read { objects: nodes, resource_version: "7".into() };
        Header {
            format: FORMAT.into(),
            version: VERSION,
            evac: "1".into(),
            captured: "2026-01-01T00:00:00Z".parse().unwrap(),
            cluster: Cluster::Uid("u".into()),
            kinds: vec![KindState { kind: "nodes".into(), state }],
        }
    }

    fn packed(header: &Header, lines: &[&str]) -> Vec<u8> {
        write(Vec::new(), header, lines.iter().copied()).unwrap()
    }

    fn zipped(text: &str) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap()
    }

    fn all(bytes: &[u8], most: u64) -> Result<Vec<String>, SnapshotError> {
        let mut reader = SnapshotReader::bounded(bytes, most)?;
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line()? {
            lines.push(format!("{} {}", line.kind.name, String::from_utf8_lossy(line.json)));
        }
        Ok(lines)
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let bytes = packed(&header(2), &["{\"a\":1}", "{}"]);
        assert_eq!(all(&bytes, MOST).unwrap(), ["nodes {\"a\":1}", "nodes {}"]);
        assert_eq!(SnapshotReader::open(bytes.as_slice()).unwrap().header, header(2));
    }

    #[test]
    fn a_snapshot_that_was_cut_off_anywhere_is_never_taken_for_a_whole_one() {
        let bytes = packed(&header(2), &["{\"a\":1}", "{\"b\":2}"]);
        for length in 0..bytes.len() {
            let error = all(&bytes[..length], MOST).unwrap_err();
            assert!(matches!(error, SnapshotError::Truncated), "{length}: {error}");
        }
    }

    #[test]
    fn fewer_or_more_objects_than_the_header_says_are_not_passed_over() {
        assert!(matches!(all(&packed(&header(2), &["{}"]), MOST), Err(SnapshotError::Truncated)));
        assert!(matches!(all(&packed(&header(1), &["{}", "{}"]), MOST), Err(SnapshotError::Damaged(_))));
    }

    #[test]
    fn a_changed_byte_is_found() {
        let bytes = packed(&header(2), &["{\"a\":1}", "{\"b\":2}"]);
        let last = bytes.len() - 6;
        for place in [10, bytes.len() / 2, last] {
            let mut changed = bytes.clone();
            changed[place] ^= 0x55;
            assert!(all(&changed, MOST).is_err(), "{place}");
        }
    }

    #[test]
    fn files_of_others_are_told_from_snapshots() {
        assert!(matches!(all(b"apiVersion: v1", MOST), Err(SnapshotError::NotCompressed)));
        for text in ["", "hello\n", "{}\n", "{\"format\":\"x\",\"version\":1}\n", "[1]\n"] {
            assert!(matches!(all(&zipped(text), MOST), Err(SnapshotError::Foreign)), "{text}");
        }
    }

    #[test]
    fn a_newer_version_is_named_whatever_else_its_header_says() {
        let text = format!("{{\"format\":\"{FORMAT}\",\"version\":2,\"more\":{{}}}}\n");
        assert!(matches!(all(&zipped(&text), MOST), Err(SnapshotError::Newer(2))));
    }

    #[test]
    fn a_small_file_that_unpacks_to_a_large_one_is_not_unpacked() {
        let long = format!("\"{}\"", "a".repeat(100_000));
        let bytes = packed(&header(3), &[&long, &long, &long]);
        assert!(bytes.len() < 2000);
        assert!(matches!(all(&bytes, 150_000), Err(SnapshotError::TooLarge(150_000))));
        let endless = "a".repeat(LONGEST as usize + 1);
        assert!(matches!(all(&packed(&header(1), &[&endless]), MOST), Err(SnapshotError::TooLarge(LONGEST))));
    }
}
