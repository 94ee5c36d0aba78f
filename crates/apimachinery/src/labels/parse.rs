//! Reads the text form of a label selector, with the complaints that kube-apiserver has.

use std::collections::BTreeSet;

use super::{Operator, Requirement, SelectorError, told};
use crate::validation;

pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    Parser { tokens: tokens(text), at: 0 }.selector()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Self::Word(s) => s,
            Self::Symbol(s) => s,
            Self::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", "<", ">"];

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn tokens(mut text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches(is_space);
        if text.is_empty() {
            found.push(Token::End);
            return found;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
            found.push(Token::Symbol(symbol));
            text = &text[symbol.len()..];
        } else {
            let end = text.find(|c| is_symbol(c) || is_space(c)).unwrap_or(text.len());
            found.push(Token::Word(text[..end].to_owned()));
            text = &text[end..];
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    requirements.push(self.requirement().map_err(SelectorError::Requirement)?);
                    match self.next() {
                        Token::End => return Ok(requirements),
                        Token::Symbol(",") => {
                            let after = self.peek();
                            if !matches!(after, Token::Word(_) | Token::Symbol("!")) {
                                return Err(SelectorError::Syntax(format!(
                                    "found '{}', expected: identifier after ','",
                                    after.literal()
                                )));
                            }
                        }
                        other => {
                            return Err(SelectorError::Syntax(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.literal()
                            )));
                        }
                    }
                }
                Token::End => return Ok(requirements),
                other @ Token::Symbol(_) => {
                    return Err(SelectorError::Syntax(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.literal()
                    )));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.literal()));
        };
        let complaints = validation::qualified_name(&key);
        if !complaints.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", complaints.join("; ")));
        }
        let unary = matches!(self.peek(), Token::End | Token::Symbol(","));
        // `!key` must be followed by the end or a comma; anything else is reported by the caller.
        if negated || unary {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: Vec::new() });
        }
        let word = self.next();
        let operator = match word.literal() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            "=" | "==" => Operator::Equals,
            "!=" => Operator::NotEquals,
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?.into_iter().collect(),
            _ => vec![self.value()?],
        };
        told(operator.complaints(&key, &values)).map_or(Ok(Requirement { key, operator, values }), Err)
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => Ok(value),
            other => Err(format!("found '{}', expected: identifier", other.literal())),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.literal()));
        }
        let mut set = BTreeSet::new();
        match self.peek() {
            Token::Symbol(")") => {
                self.next();
                set.insert(String::new());
                return Ok(set);
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.literal())),
        }
        loop {
            match self.next() {
                Token::Word(value) => {
                    set.insert(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => {
                            return Err(format!("found '{}', expected: ',' or ')'", other.literal()));
                        }
                    }
                }
                Token::Symbol(",") => {
                    if set.is_empty() {
                        set.insert(String::new());
                    }
                    match self.peek() {
                        Token::Symbol(")") => {
                            set.insert(String::new());
                            break;
                        }
                        Token::Symbol(",") => {
                            set.insert(String::new());
                        }
                        _ => {}
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.literal())),
            }
        }
        self.next();
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::labels::Selector;

    #[rstest]
    #[case("a=b,", "found '', expected: identifier after ','")]
    #[case(",", "found ',', expected: !, identifier, or 'end of string'")]
    #[case("=b", "found '=', expected: !, identifier, or 'end of string'")]
    #[case("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt")]
    #[case("a in b", "unable to parse requirement: found 'b' expected: '('")]
    #[case("a in (b", "unable to parse requirement: found '', expected: ',' or ')'")]
    #[case("a=b c", "found 'c', expected: ',' or 'end of string'")]
    #[case("a=b=c", "found '=', expected: ',' or 'end of string'")]
    #[case("a=(", "unable to parse requirement: found '(', expected: identifier")]
    #[case("!", "unable to parse requirement: found '', expected: identifier")]
    #[case(
        "a>b",
        "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer"
    )]
    fn syntax_errors_say_what_was_expected(#[case] selector: &str, #[case] wanted: &str) {
        assert_eq!(Selector::parse(selector).unwrap_err().to_string(), wanted);
    }

    #[test]
    fn a_bad_key_or_value_is_refused_with_the_reason() {
        let told = |text| Selector::parse(text).unwrap_err().to_string();
        assert!(told("a/b/c=d").starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must"
        ));
        assert!(told("a=-b").starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be"
        ));
    }
}
