//! Expressions as words.

use std::sync::Arc;

use super::CompileError;

#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    Ident(Arc<str>),
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Sign(&'static str),
    End,
}

/// Longer signs first.
const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

/// The words of a source, each with its place in characters.
pub fn words(source: &str) -> Result<Vec<(usize, Word)>, CompileError> {
    let chars: Vec<char> = source.chars().collect();
    let mut lexer = Lexer { source, chars: &chars, at: 0 };
    let mut words = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let word = lexer.word()?;
        let last = word == Word::End;
        words.push((at, word));
        if last {
            return Ok(words);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn fail(&self, at: usize, why: &str) -> CompileError {
        CompileError::at(self.source, at, &format!("Syntax error: {why}"))
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek(0) {
            if c == '/' && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            } else if matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}') {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn word(&mut self) -> Result<Word, CompileError> {
        let Some(first) = self.peek(0) else { return Ok(Word::End) };
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if let Some(word) = self.text()? {
            return Ok(word);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let start = self.at;
            while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                self.at += 1;
            }
            let name: String = self.chars[start..self.at].iter().collect();
            return Ok(Word::Ident(name.into()));
        }
        for sign in SIGNS {
            if sign.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c)) {
                self.at += sign.len();
                return Ok(Word::Sign(sign));
            }
        }
        Err(self.fail(self.at, &format!("token recognition error at: '{first}'")))
    }

    fn number(&mut self) -> Result<Word, CompileError> {
        let start = self.at;
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            let digits = self.take(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(&digits, 16);
            return self.whole(start, value.ok());
        }
        let mut digits = self.take(|c| c.is_ascii_digit());
        let mut fraction = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            fraction = true;
            self.at += 1;
            digits.push('.');
            digits.push_str(&self.take(|c| c.is_ascii_digit()));
        }
        let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
        if matches!(self.peek(0), Some('e' | 'E'))
            && self.peek(1 + signed).is_some_and(|c| c.is_ascii_digit())
        {
            fraction = true;
            digits.extend(&self.chars[self.at..=self.at + signed]);
            self.at += 1 + signed;
            digits.push_str(&self.take(|c| c.is_ascii_digit()));
        }
        if !fraction {
            let value = digits.parse();
            return self.whole(start, value.ok());
        }
        digits.parse().map(Word::Double).map_err(|_| self.fail(start, "invalid double literal"))
    }

    fn whole(&mut self, start: usize, value: Option<u64>) -> Result<Word, CompileError> {
        let unsigned = matches!(self.peek(0), Some('u' | 'U'));
        self.at += usize::from(unsigned);
        match value {
            Some(value) if unsigned => Ok(Word::Uint(value)),
            Some(value) => Ok(Word::Int(value)),
            None if unsigned => Err(CompileError::at(self.source, start, "invalid uint literal")),
            None => Err(CompileError::at(self.source, start, "invalid int literal")),
        }
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(&wanted) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    /// A string or bytes, if one begins here: `"…"`, `'''…'''`, `r"…"`, `b"…"`, `rb"…"`.
    fn text(&mut self) -> Result<Option<Word>, CompileError> {
        let start = self.at;
        let (mut raw, mut bytes, mut skip) = (false, false, 0);
        while let Some(c) = self.peek(skip) {
            match c {
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes => bytes = true,
                _ => break,
            }
            skip += 1;
        }
        let Some(quote) = self.peek(skip).filter(|c| matches!(c, '"' | '\'')) else { return Ok(None) };
        let triple = self.peek(skip + 1) == Some(quote) && self.peek(skip + 2) == Some(quote);
        let width = if triple { 3 } else { 1 };
        self.at += skip + width;
        let mut text = String::new();
        let mut octets = Vec::new();
        loop {
            let Some(c) = self.peek(0) else {
                return Err(self.fail(start, "the string does not end"));
            };
            if (0..width).all(|ahead| self.peek(ahead) == Some(quote)) {
                self.at += width;
                break;
            }
            if matches!(c, '\n' | '\r') && !triple {
                return Err(self.fail(start, "the string does not end on its line"));
            }
            self.at += 1;
            let c = if c == '\\' && !raw {
                match self.escape(start, bytes)? {
                    Escaped::Char(c) => c,
                    Escaped::Byte(b) => {
                        octets.push(b);
                        continue;
                    }
                }
            } else {
                c
            };
            if bytes {
                octets.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(c);
            }
        }
        Ok(Some(if bytes { Word::Bytes(octets.into()) } else { Word::Text(text.into()) }))
    }

    fn escape(&mut self, start: usize, bytes: bool) -> Result<Escaped, CompileError> {
        let Some(c) = self.peek(0) else { return Err(self.fail(start, "the string does not end")) };
        self.at += 1;
        let (digits, radix) = match c {
            'a' => return Ok(Escaped::Char('\u{7}')),
            'b' => return Ok(Escaped::Char('\u{8}')),
            'f' => return Ok(Escaped::Char('\u{c}')),
            'n' => return Ok(Escaped::Char('\n')),
            'r' => return Ok(Escaped::Char('\r')),
            't' => return Ok(Escaped::Char('\t')),
            'v' => return Ok(Escaped::Char('\u{b}')),
            '\\' | '\'' | '"' | '`' | '?' => return Ok(Escaped::Char(c)),
            'x' | 'X' => (2, 16),
            'u' if !bytes => (4, 16),
            'U' if !bytes => (8, 16),
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            _ => return Err(self.fail(start, "unable to unescape string")),
        };
        let end = (self.at + digits).min(self.chars.len());
        let code: String = self.chars[self.at..end].iter().collect();
        let value = u32::from_str_radix(&code, radix).ok().filter(|_| code.len() == digits);
        let value = value.ok_or_else(|| self.fail(start, "unable to unescape string"))?;
        self.at = end;
        if bytes {
            let byte = u8::try_from(value).map_err(|_| self.fail(start, "unable to unescape string"))?;
            return Ok(Escaped::Byte(byte));
        }
        char::from_u32(value).map(Escaped::Char).ok_or_else(|| self.fail(start, "invalid unicode code point"))
    }
}

enum Escaped {
    Char(char),
    Byte(u8),
}
