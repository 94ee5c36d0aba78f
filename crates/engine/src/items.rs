//! Takes a list apart while it arrives, so that it is never in memory as a whole.
//!
//! The elements of the top-level `items` are parsed one by one, a block of text at a time: what has come of an element is looked at again only when
//! much more has come. What is left of the list (its metadata, and a 0 in place of each element) is small, and is parsed at the end like any other
//! answer: a list that is not JSON is found out there or in one of its elements.

use serde::de::DeserializeOwned;
use serde_json::Deserializer;

/// How much is read before the elements in it are parsed: a few dozen of them.
const BLOCK: usize = 256 * 1024;

/// What arrives of one list.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing about the place of the next byte")]
pub(crate) struct Items {
    block: usize,
    /// Within `items`, before, between or after its elements.
    is_inside: bool,
    /// How many brackets are open around the next byte, outside of `items`.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Where the last string outside of `items` begins in the rest: the name of a field, if a colon follows.
    string: usize,
    /// The colon after `items` has come, and its value not yet.
    is_next: bool,
    /// What has not been looked at.
    text: Vec<u8>,
    rest: Vec<u8>,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl Items {
    pub fn new() -> Self {
        Self::in_blocks(BLOCK)
    }

    fn in_blocks(block: usize) -> Self {
        Self {
            block,
            is_inside: false,
            depth: 0,
            in_string: false,
            escaped: false,
            string: 0,
            is_next: false,
            text: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Takes the next part of the list, and hands over the elements in a block that is full.
    pub fn take<T: DeserializeOwned, E: From<serde_json::Error>>(
        &mut self,
        part: &[u8],
        each: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        self.text.extend_from_slice(part);
        if self.text.len() < self.block { Ok(()) } else { self.look(each) }
    }

    /// Hands over the elements that are left; gives the list without its elements.
    pub fn finish<T: DeserializeOwned, E: From<serde_json::Error>>(
        mut self,
        each: impl FnMut(T) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        self.look(each)?;
        // The beginning of an element without an end.
        self.rest.append(&mut self.text);
        Ok(self.rest)
    }

    fn look<T: DeserializeOwned, E: From<serde_json::Error>>(
        &mut self,
        mut each: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        let text = std::mem::take(&mut self.text);
        let mut left = text.as_slice();
        while let Some((&byte, after)) = left.split_first() {
            if !self.is_inside {
                self.around(byte);
            } else if self.begins(byte) {
                let mut elements = Deserializer::from_slice(left).into_iter::<T>();
                let element = match elements.next() {
                    Some(Err(error)) if !error.is_eof() => return Err(error.into()),
                    Some(Ok(element)) => element,
                    // The rest of it is still to come.
                    Some(Err(_)) | None => break,
                };
                let (_, after) = left.split_at(elements.byte_offset());
                if after.is_empty() && !matches!(byte, b'{' | b'[' | b'"') {
                    // A number has no end of its own.
                    break;
                }
                self.rest.push(b'0');
                each(element)?;
                left = after;
                continue;
            }
            left = after;
        }
        self.text.extend_from_slice(left);
        Ok(())
    }

    fn around(&mut self, byte: u8) {
        let begins = std::mem::take(&mut self.is_next);
        self.rest.push(byte);
        if self.in_string {
            self.pass_string(byte);
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.string = self.rest.len() - 1;
            }
            b'[' if begins => self.is_inside = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if self.depth == 1 => self.is_next = self.names_items(),
            _ if begins && is_space(byte) => self.is_next = true,
            _ => {}
        }
    }

    /// Whether the string before this colon is `items`, however it is written.
    fn names_items(&self) -> bool {
        let name = self.rest.get(self.string..self.rest.len() - 1).unwrap_or_default();
        serde_json::from_slice::<String>(name).is_ok_and(|name| name == "items")
    }

    /// Whether an element begins with this byte; else it belongs to the list.
    fn begins(&mut self, byte: u8) -> bool {
        if is_space(byte) || matches!(byte, b',' | b']') {
            self.rest.push(byte);
            self.is_inside = byte != b']';
            return false;
        }
        true
    }

    fn pass_string(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
        } else {
            self.escaped = byte == b'\\';
            self.in_string = byte != b'"';
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Error, Value, json};

    use super::*;

    /// The elements and the rest, of a list that comes in these parts and is looked at in blocks of this size.
    fn split<'a>(
        parts: impl IntoIterator<Item = &'a [u8]>,
        block: usize,
    ) -> Result<(Vec<Value>, String), Error> {
        let (mut items, mut found) = (Items::in_blocks(block), Vec::new());
        let mut each = |element: Value| {
            found.push(element);
            Ok::<(), Error>(())
        };
        for part in parts {
            items.take(part, &mut each)?;
        }
        let rest = items.finish(each)?;
        Ok((found, String::from_utf8(rest).unwrap()))
    }

    const LISTS: &[&str] = &[
        r#"{"kind":"PodList","items":[{"a":1},{"a":2}],"metadata":{"resourceVersion":"7"}}"#,
        r#"{"metadata":{"resourceVersion":"7","items":[1]},"items":[ {"a":[1,[2]]} , {"items":[3]} ]}"#,
        r#"{"items":[{"text":"]}\\\"\\"},{"text":"\\"},{"t":"ä\u0022"}],"metadata":{}}"#,
        r#"{"items":[],"metadata":{}}"#,
        r#"{"items":null,"metadata":{}}"#,
        r#"{"metadata":{"continue":"items"}}"#,
        r#"{"items":{"a":[1]}}"#,
        r#"{ "it\u0065ms" : [ 1, -2.5e3, true, null, "x,]", [4, 5] ] , "after" : [6] }"#,
        r#"["items",[1]]"#,
        r#"{"kind":"items","items":"items"}"#,
        "",
    ];

    #[test]
    fn every_list_is_taken_apart_in_the_same_way_wherever_its_parts_and_blocks_end() {
        for list in LISTS {
            let whole = split([list.as_bytes()], BLOCK).unwrap();
            for block in [1, 7, BLOCK] {
                assert_eq!(split(list.as_bytes().chunks(1), block).unwrap(), whole, "{list}");
                for cut in 0..list.len() {
                    let (before, after) = list.as_bytes().split_at(cut);
                    assert_eq!(split([before, after], block).unwrap(), whole, "{list} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn the_elements_are_those_that_a_parser_finds_and_the_rest_is_all_around_them() {
        for list in LISTS.iter().filter(|list| !list.is_empty()) {
            let parsed: Value = serde_json::from_str(list).unwrap();
            let (found, rest) = split([list.as_bytes()], BLOCK).unwrap();
            let expected = parsed.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            assert_eq!(found, expected, "{list}");
            let mut around = parsed;
            if !found.is_empty() {
                around["items"] = json!(vec![0; found.len()]);
            }
            assert_eq!(serde_json::from_str::<Value>(&rest).unwrap(), around, "{list}");
        }
    }

    #[test]
    fn what_is_not_json_is_not_json_in_an_element_or_in_the_rest() {
        for broken in [
            r#"{"items":[{"a":1}"#,
            r#"{"items":[{"a":1"#,
            r#"{"items":[{"a":1}{"a":2}]}"#,
            r#"{"items":[{"a":1},]}"#,
            r#"{"items":[,{"a":1}]}"#,
            r#"{"items":[{"a":]}]}"#,
            r#"{"items":[{"a":1]]}"#,
            r#"{"items":[{}]]"#,
            r#"{"items":[nonsense]}"#,
            r#"{"items":[{}],"items""#,
            r#"{"items":[{}]} more"#,
            r#"}"items":[{}]"#,
        ] {
            for block in [1, BLOCK] {
                let taken = split(broken.as_bytes().chunks(1), block);
                let is_json =
                    taken.as_ref().is_ok_and(|(_, rest)| serde_json::from_str::<Value>(rest).is_ok());
                assert!(!is_json, "{broken}: {taken:?}");
            }
        }
    }

    #[test]
    fn elements_are_handed_over_with_their_block_and_are_not_kept() {
        let mut items = Items::in_blocks(12);
        let mut found = 0;
        let mut take = |part: &str| {
            let each = |_: Value| {
                found += 1;
                Ok::<(), Error>(())
            };
            items.take(part.as_bytes(), each).unwrap();
            (found, items.text.len())
        };
        assert_eq!(take(r#"{"items":[{"a":"#), (0, 5));
        assert_eq!(take("1}"), (0, 7));
        assert_eq!(take(r#",{"a":2},{"a":3},["#), (3, 1));
    }
}
