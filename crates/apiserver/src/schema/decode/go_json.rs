//! The words for text that is no JSON: where a reader that goes byte by byte stops, and what it hoped for.

/// Where the scanner stands inside a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Key,
    Value,
    Element,
}

/// What is wrong with a text that a JSON parser refused.
pub(super) fn complaint(text: &[u8]) -> String {
    let mut scanner = Scanner { text, at: 0, inside: Vec::new() };
    match scanner.document() {
        Err(Some(why)) => why,
        Err(None) => "unexpected end of JSON input".to_owned(),
        // The parsers disagree, which only numbers out of range can bring about.
        Ok(()) => "invalid JSON".to_owned(),
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    inside: Vec<Inside>,
}

/// `Err(None)` is the end of the text.
type Scan = Result<(), Option<String>>;

impl Scanner<'_> {
    fn next(&mut self) -> Result<u8, Option<String>> {
        let byte = self.text.get(self.at).copied().ok_or(None)?;
        self.at += 1;
        Ok(byte)
    }

    /// Inside a word or a number the end of the text counts as a blank.
    fn next_in_token(&mut self) -> u8 {
        self.next().unwrap_or(b' ')
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn document(&mut self) -> Scan {
        self.blanks();
        self.value(false)?;
        loop {
            self.blanks();
            let Some(inside) = self.inside.pop() else {
                return match self.peek() {
                    None => Ok(()),
                    Some(byte) => invalid(byte, "after top-level value"),
                };
            };
            let byte = self.next()?;
            match (inside, byte) {
                (Inside::Key, b':') => {
                    self.inside.push(Inside::Value);
                    self.blanks();
                    self.value(false)?;
                }
                (Inside::Key, byte) => return invalid(byte, "after object key"),
                (Inside::Value, b',') => {
                    self.blanks();
                    self.key(false)?;
                }
                (Inside::Element, b',') => {
                    self.inside.push(Inside::Element);
                    self.blanks();
                    self.value(false)?;
                }
                (Inside::Value, b'}') | (Inside::Element, b']') => {}
                (Inside::Value, byte) => return invalid(byte, "after object key:value pair"),
                (Inside::Element, byte) => return invalid(byte, "after array element"),
            }
        }
    }

    /// A value, or in a list that has just begun also its end.
    fn value(&mut self, may_end: bool) -> Scan {
        match self.next()? {
            b'{' => {
                self.blanks();
                self.key(true)
            }
            b'[' => {
                self.blanks();
                self.inside.push(Inside::Element);
                self.value(true)
            }
            b']' if may_end => {
                self.inside.pop();
                Ok(())
            }
            b'"' => self.string(),
            b'n' => self.literal("null"),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'-' => match self.next_in_token() {
                byte @ b'0'..=b'9' => self.number(byte),
                byte => invalid(byte, "in numeric literal"),
            },
            byte @ b'0'..=b'9' => self.number(byte),
            byte => invalid(byte, "looking for beginning of value"),
        }
    }

    fn key(&mut self, may_end: bool) -> Scan {
        match self.next()? {
            b'"' => {
                self.inside.push(Inside::Key);
                self.string()
            }
            b'}' if may_end => Ok(()),
            byte => invalid(byte, "looking for beginning of object key string"),
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        for wanted in word.bytes().skip(1) {
            let byte = self.next_in_token();
            if byte != wanted {
                return invalid(byte, &format!("in literal {word} (expecting '{}')", char::from(wanted)));
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Scan {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next_in_token() {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next_in_token();
                            if !byte.is_ascii_hexdigit() {
                                return invalid(byte, "in \\u hexadecimal character escape");
                            }
                        }
                    }
                    byte => return invalid(byte, "in string escape code"),
                },
                byte if byte < 0x20 => return invalid(byte, "in string literal"),
                _ => {}
            }
        }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn number(&mut self, first: u8) -> Scan {
        if first != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            let byte = self.next_in_token();
            if !byte.is_ascii_digit() {
                return invalid(byte, "after decimal point in numeric literal");
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            let mut byte = self.next_in_token();
            if matches!(byte, b'+' | b'-') {
                byte = self.next_in_token();
            }
            if !byte.is_ascii_digit() {
                return invalid(byte, "in exponent of numeric literal");
            }
            self.digits();
        }
        Ok(())
    }
}

fn invalid(byte: u8, context: &str) -> Scan {
    let shown = match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        // Bytes are shown as characters of the same number.
        byte => {
            let quoted = crate::status::quoted(&char::from(byte).to_string());
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    };
    Err(Some(format!("invalid character {shown} {context}")))
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn a_complaint_names_the_first_character_that_does_not_fit() {
        for (text, why) in [
            ("not json", "invalid character 'o' in literal null (expecting 'u')"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
            ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        ] {
            assert_eq!(complaint(text.as_bytes()), why, "{text}");
        }
        assert_eq!(complaint(b"\xae"), "invalid character '\u{ae}' looking for beginning of value");
    }
}
