//! Takes a list apart while it arrives, so that it is never in memory as a whole.
//!
//! The elements of the top-level `items` are handed over one by one, each as soon as its last byte is there. What is left of the list (its
//! metadata, and a 0 in place of each element) is small, and is parsed at the end like any other answer: a list that is not JSON is found out there
//! or in one of its elements.
//!
//! ```text
//!  {"kind": …, "items": [ {…} , {…} ], "metadata": …}
//!  └ Around ──────────┘ └Between┘└Within┘ … └ Around ┘
//! ```

/// Where in the list the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Outside of `items`.
    Around,
    /// In `items`, before, between or after its elements.
    Between,
    /// In an element with brackets or quotes around it.
    Within,
    /// In an element without: a number or a word.
    Bare,
}

/// What arrives of one list.
#[derive(Debug)]
pub(crate) struct Items {
    place: Place,
    /// How many brackets are open, in the element or around it.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Where the last string outside of `items` begins in the rest: the name of a field, if a colon follows.
    string: usize,
    /// The colon after `items` has come, and its value not yet.
    is_next: bool,
    /// The beginning of an element whose end has not come yet.
    element: Vec<u8>,
    rest: Vec<u8>,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl Items {
    pub fn new() -> Self {
        Self {
            place: Place::Around,
            depth: 0,
            in_string: false,
            escaped: false,
            string: 0,
            is_next: false,
            element: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Takes the next part of the list, and hands over the elements that end in it.
    pub fn take<E>(&mut self, part: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        // Where in this part the element at hand begins.
        let mut begin = 0;
        let mut position = 0;
        while let Some(&byte) = part.get(position) {
            match self.place {
                Place::Around => self.around(byte),
                Place::Between => {
                    if self.between(byte) {
                        begin = position;
                    }
                }
                Place::Within => {
                    if self.is_last(byte) {
                        self.hand_over(part.get(begin..=position).unwrap_or_default(), &mut each)?;
                    }
                }
                Place::Bare => {
                    if is_space(byte) || matches!(byte, b',' | b']') {
                        self.hand_over(part.get(begin..position).unwrap_or_default(), &mut each)?;
                        // This byte is not part of the element.
                        continue;
                    }
                }
            }
            position += 1;
        }
        if matches!(self.place, Place::Within | Place::Bare) {
            self.element.extend_from_slice(part.get(begin..).unwrap_or_default());
        }
        Ok(())
    }

    /// The list without its elements.
    pub fn rest(self) -> Vec<u8> {
        self.rest
    }

    fn hand_over<E>(&mut self, end: &[u8], each: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.place = Place::Between;
        if self.element.is_empty() {
            return each(end);
        }
        self.element.extend_from_slice(end);
        let handed = each(&self.element);
        self.element.clear();
        handed
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
            b'[' if begins => self.place = Place::Between,
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

    /// True if an element begins.
    fn between(&mut self, byte: u8) -> bool {
        match byte {
            b',' | b' ' | b'\t' | b'\n' | b'\r' => self.rest.push(byte),
            b']' => {
                self.rest.push(byte);
                self.place = Place::Around;
                self.depth = 1;
            }
            _ => {
                self.rest.push(b'0');
                self.place = if matches!(byte, b'{' | b'[' | b'"') { Place::Within } else { Place::Bare };
                self.depth = usize::from(byte != b'"');
                self.in_string = byte == b'"';
                return true;
            }
        }
        false
    }

    /// Whether the element ends with this byte.
    fn is_last(&mut self, byte: u8) -> bool {
        if self.in_string {
            self.pass_string(byte);
            return !self.in_string && self.depth == 0;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth -= 1;
                return self.depth == 0;
            }
            _ => {}
        }
        false
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
    use std::convert::Infallible;

    use serde_json::{Value, json};

    use super::*;

    /// The elements and the rest, of a list that comes in these parts.
    fn split<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, String) {
        let (mut items, mut found) = (Items::new(), Vec::new());
        for part in parts {
            let each = |element: &[u8]| {
                found.push(String::from_utf8(element.to_vec()).unwrap());
                Ok::<(), Infallible>(())
            };
            items.take(part, each).unwrap();
        }
        (found, String::from_utf8(items.rest()).unwrap())
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
    fn every_list_is_taken_apart_in_the_same_way_wherever_its_parts_end() {
        for list in LISTS {
            let whole = split([list.as_bytes()]);
            assert_eq!(split(list.as_bytes().chunks(1)), whole, "{list}");
            for cut in 0..list.len() {
                let (before, after) = list.as_bytes().split_at(cut);
                assert_eq!(split([before, after]), whole, "{list} cut at {cut}");
            }
        }
    }

    #[test]
    fn the_elements_are_those_that_a_parser_finds_and_the_rest_is_all_around_them() {
        for list in LISTS.iter().filter(|list| !list.is_empty()) {
            let parsed: Value = serde_json::from_str(list).unwrap();
            let (found, rest) = split([list.as_bytes()]);
            let found: Vec<Value> = found.iter().map(|one| serde_json::from_str(one).unwrap()).collect();
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
            let (found, rest) = split([broken.as_bytes()]);
            let all_parse = found.iter().all(|one| serde_json::from_str::<Value>(one).is_ok());
            assert!(
                !all_parse || serde_json::from_str::<Value>(&rest).is_err(),
                "{broken}: {found:?} {rest}"
            );
        }
    }

    #[test]
    fn an_element_is_handed_over_with_its_last_byte_and_what_is_handed_over_is_not_kept() {
        let mut items = Items::new();
        let mut found = 0;
        let mut take = |part: &str| {
            let each = |_: &[u8]| {
                found += 1;
                Ok::<_, Infallible>(())
            };
            items.take(part.as_bytes(), each).unwrap();
            (found, items.element.len())
        };
        assert_eq!(take(r#"{"items":[{"a":"#), (0, 5));
        assert_eq!(take("1}"), (1, 0));
        assert_eq!(take(r#",{"a":2},{"a":3},["#), (3, 1));
    }
}
