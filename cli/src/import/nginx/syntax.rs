// SPDX-License-Identifier: Apache-2.0
//! nginx's configuration language: directives, their arguments and blocks. Words are read as nginx reads them; blocks of Lua are kept
//! as text.
//!
//! Bounded: a file of at most 16 MiB, blocks nested at most [`MAX_DEPTH`] deep.

use crate::document::MAX_TEXT;

pub const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    pub name: String,
    /// Its arguments, without quotes and escapes.
    pub arguments: Vec<String>,
    /// The directives in its braces, if it has any.
    pub block: Option<Block>,
    pub file: usize,
    /// Its line, from 1.
    pub line: usize,
    /// It is an `if` on a variable to which the file itself gives a value.
    pub is_on_own: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    Directives(Vec<Directive>),
    /// Lua, which is not read.
    Lua(String),
}

impl Directive {
    /// A directive without a block.
    pub const fn new(name: String, arguments: Vec<String>, (file, line): (usize, usize)) -> Self {
        Self { name, arguments, block: None, file, line, is_on_own: false }
    }

    pub fn inner(&self) -> &[Self] {
        if let Some(Block::Directives(inner)) = &self.block { inner } else { &[] }
    }

    pub fn argument(&self, number: usize) -> &str {
        self.arguments.get(number).map(String::as_str).unwrap_or_default()
    }

    /// Gives it and what is in it the lines that `to` says.
    pub fn moved(&mut self, to: &dyn Fn(usize) -> usize) {
        self.line = to(self.line);
        if let Some(Block::Directives(inner)) = &mut self.block {
            inner.iter_mut().for_each(|inner| inner.moved(to));
        }
    }

    /// The value of its argument `name=value`.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A line, and what is wrong there.
pub type Wrong = (usize, String);

fn wrong<T>(line: usize, said: &str) -> Result<T, Wrong> {
    Err((line, said.to_owned()))
}

/// Reads the text of the file of this number.
///
/// # Errors
/// The mistake in it. It repeats nothing of the text, because any file may be included.
pub fn parse(text: &str, file: usize) -> Result<Vec<Directive>, Wrong> {
    if text.len() > MAX_TEXT {
        return Err((1, format!("the file is larger than {MAX_TEXT} bytes")));
    }
    let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    // The open directives, each with the directives in its block so far.
    let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut directives = Vec::new();
    loop {
        let (words, line, end) = reader.statement()?;
        let mut words = words.into_iter();
        let first = words.next();
        let here = reader.line;
        match (end, first) {
            (End::File, None) => break,
            (End::File, Some(_)) => {
                return wrong(line, "found the end of the file in a directive, allowed: `;` or a block");
            }
            (End::Close, None) => {
                let Some((mut directive, outer)) = open.pop() else {
                    return wrong(here, "found `}` where no block is open");
                };
                directive.block = Some(Block::Directives(std::mem::replace(&mut directives, outer)));
                directives.push(directive);
            }
            (End::Close, Some(_)) => return wrong(here, "found `}` in a directive, allowed: `;`"),
            (End::Semicolon, None) => return wrong(here, "found `;` without a directive"),
            (End::Open, None) => return wrong(here, "found `{` without a directive"),
            (End::Semicolon, Some(name)) => {
                directives.push(Directive::new(name, words.collect(), (file, line)));
            }
            (End::Open, Some(name)) => {
                let mut directive = Directive::new(name, words.collect(), (file, line));
                if directive.name.ends_with("_by_lua_block") {
                    directive.block = Some(Block::Lua(reader.lua()?));
                    directives.push(directive);
                } else if open.len() >= MAX_DEPTH {
                    return Err((line, format!("blocks are nested more than {MAX_DEPTH} deep")));
                } else {
                    open.push((directive, std::mem::take(&mut directives)));
                }
            }
        }
    }
    match open.last() {
        Some((directive, _)) => {
            wrong(directive.line, "found the end of the file in the block that begins here, allowed: `}`")
        }
        None => Ok(directives),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Semicolon,
    Open,
    Close,
    File,
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = self.rest.get(next.len_utf8()..).unwrap_or_default();
        if next == '\n' {
            self.line = self.line.saturating_add(1);
        }
        Some(next)
    }

    /// The words up to what ends a statement, and the line of the first one.
    fn statement(&mut self) -> Result<(Vec<String>, usize, End), Wrong> {
        let (mut words, mut line) = (Vec::new(), self.line);
        let end = loop {
            match self.peek() {
                None => break End::File,
                Some(space) if is_space(space) => {
                    self.next();
                    continue;
                }
                Some('#') => {
                    while self.next().is_some_and(|next| next != '\n') {}
                    continue;
                }
                Some(';') => break End::Semicolon,
                Some('{') => break End::Open,
                Some('}') => break End::Close,
                Some(_) => {}
            }
            if words.is_empty() {
                line = self.line;
            }
            words.push(self.word()?);
        };
        self.next();
        Ok((words, line, end))
    }

    fn word(&mut self) -> Result<String, Wrong> {
        let (line, mut word) = (self.line, String::new());
        let quote = self.peek().filter(|first| ['"', '\''].contains(first));
        if quote.is_some() {
            self.next();
        }
        let mut after_dollar = false;
        loop {
            let Some(next) = self.peek() else {
                return match quote {
                    Some(quote) => Err((line, format!("found a text without its closing {quote}"))),
                    None => Ok(word),
                };
            };
            match next {
                _ if Some(next) == quote => {
                    self.next();
                    return match self.peek() {
                        None | Some(';' | '{' | ')') => Ok(word),
                        Some(space) if is_space(space) => Ok(word),
                        Some(_) => {
                            wrong(self.line, "found more after the end of a quoted text, allowed: a space")
                        }
                    };
                }
                '\\' => {
                    self.next();
                    match self.next() {
                        None => word.push('\\'),
                        Some(escaped @ ('"' | '\'' | '\\')) => word.push(escaped),
                        Some('t') => word.push('\t'),
                        Some('r') => word.push('\r'),
                        Some('n') => word.push('\n'),
                        // A regular expression keeps its `\.`.
                        Some(other) => word.extend(['\\', other]),
                    }
                    after_dollar = false;
                    continue;
                }
                // `${name}` is part of a word.
                '{' if after_dollar => {}
                ';' | '{' if quote.is_none() => return Ok(word),
                space if quote.is_none() && is_space(space) => return Ok(word),
                _ => {}
            }
            after_dollar = next == '$';
            word.push(next);
            self.next();
        }
    }

    /// A block of Lua, up to the brace that closes it. Braces in its strings and comments do not count.
    fn lua(&mut self) -> Result<String, Wrong> {
        let (line, start, mut depth) = (self.line, self.rest, 0_usize);
        loop {
            let here = self.rest;
            let Some(next) = self.next() else {
                return wrong(line, "found the end of the file in a block of Lua, allowed: `}`");
            };
            match next {
                '{' => depth = depth.saturating_add(1),
                '}' if depth == 0 => {
                    return Ok(start.strip_suffix(here).unwrap_or_default().to_owned());
                }
                '}' => depth = depth.saturating_sub(1),
                '-' if self.rest.starts_with('-') => {
                    self.next();
                    if !self.long_bracket() {
                        while self.peek().is_some_and(|next| next != '\n') {
                            self.next();
                        }
                    }
                }
                '[' => {
                    self.rest = here;
                    if !self.long_bracket() {
                        self.next();
                    }
                }
                quote @ ('"' | '\'') => loop {
                    match self.next() {
                        None | Some('\n') => break,
                        Some('\\') => {
                            self.next();
                        }
                        Some(next) if next == quote => break,
                        Some(_) => {}
                    }
                },
                _ => {}
            }
        }
    }

    /// Passes over `[[…]]` or `[=[…]=]`, if it is there.
    fn long_bracket(&mut self) -> bool {
        let Some(inner) = self.rest.strip_prefix('[') else { return false };
        let level = inner.bytes().take_while(|byte| *byte == b'=').count();
        if !inner.get(level..).is_some_and(|rest| rest.starts_with('[')) {
            return false;
        }
        let close = format!("]{}]", "=".repeat(level));
        // Up to its end, or else the end of the file, which is an error of the block.
        let length = self.rest.find(&close).map_or(self.rest.len(), |at| at.saturating_add(close.len()));
        let passed = self.rest.get(..length).unwrap_or_default();
        self.line = self.line.saturating_add(passed.matches('\n').count());
        self.rest = self.rest.get(length..).unwrap_or_default();
        true
    }
}

const fn is_space(next: char) -> bool {
    matches!(next, ' ' | '\t' | '\r' | '\n')
}

/// The directives as text that nginx reads as the same directives.
#[cfg(test)]
fn write(directives: &[Directive]) -> String {
    let mut out = String::new();
    for directive in directives {
        out.push_str(&quoted(&directive.name));
        for argument in &directive.arguments {
            out.push(' ');
            out.push_str(&quoted(argument));
        }
        match &directive.block {
            None => out.push_str(";\n"),
            Some(Block::Lua(lua)) => {
                out.push_str(" {");
                out.push_str(lua);
                out.push_str("}\n");
            }
            Some(Block::Directives(inner)) => {
                out.push_str(" {\n");
                out.push_str(&write(inner));
                out.push_str("}\n");
            }
        }
    }
    out
}

#[cfg(test)]
fn quoted(word: &str) -> String {
    let is_plain = |next: char| next.is_ascii_alphanumeric() || "_-./$:=*^~@%,".contains(next);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut out = String::from("\"");
    let mut rest = word.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '"' => out.push_str("\\\""),
            // A backslash that keeps itself: before what is no escape.
            '\\' => match rest.peek() {
                Some('"' | '\'' | '\\' | 't' | 'r' | 'n') | None => out.push_str("\\\\"),
                Some(_) => {
                    out.push('\\');
                    out.extend(rest.next());
                }
            },
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_read_as_nginx_reads_them() {
        let rows: [(&str, &str, &[&str]); 9] = [
            ("plain words", "a b  c;", &["a", "b", "c"]),
            ("over lines, with a comment", "a # x; {\n b;", &["a", "b"]),
            ("quotes", "a \"b c\" 'd;\"e';", &["a", "b c", "d;\"e"]),
            ("escapes", r#"a "b\"c" d\te \.php$;"#, &["a", "b\"c", "d\te", "\\.php$"]),
            ("a variable in braces", "a ${b}c;", &["a", "${b}c"]),
            ("a hash inside of a word", "a b#c;", &["a", "b#c"]),
            ("quotes inside of a word", "a b\"c;", &["a", "b\"c"]),
            ("an empty text", "a \"\";", &["a", ""]),
            ("a regular expression with braces, in quotes", "a \"^/x{2}$\";", &["a", "^/x{2}$"]),
        ];
        for (row, text, words) in rows {
            let read = parse(text, 0).unwrap();
            let [only] = read.as_slice() else { panic!("{row}: {read:?}") };
            let found: Vec<_> = core::iter::once(&only.name).chain(&only.arguments).collect();
            assert_eq!(found, words, "{row}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let rows = [
            ("a {\nb;", (1, "the block that begins here")),
            ("a;\n}", (2, "no block is open")),
            ("a;\nb", (2, "in a directive")),
            ("a {\n b\n}", (3, "in a directive")),
            ("\n;", (2, "without a directive")),
            ("\n{", (2, "without a directive")),
            ("a \"b", (1, "without its closing")),
            ("a \"b\"c;", (1, "after the end of a quoted text")),
            ("a_by_lua_block {\n", (1, "a block of Lua")),
        ];
        for (text, (line, says)) in rows {
            let (at, said) = parse(text, 0).unwrap_err();
            assert!(at == line && said.contains(says), "{text:?}: {at}: {said}");
            assert!(!said.contains("\"b"), "{text:?}: nothing of the text is repeated: {said}");
        }
        let deep = "a {".repeat(MAX_DEPTH + 1);
        assert!(parse(&deep, 0).unwrap_err().1.contains("nested"));
    }

    #[test]
    fn lua_is_passed_over() {
        let lua = " local t = {\"}\", '}', [[ } ]], [=[ ]] } ]=]} -- }\n --[[ } ]] ";
        let text = format!("content_by_lua_block {{{lua}}}\nnext;");
        let read = parse(&text, 0).unwrap();
        assert_eq!(read[0].block, Some(Block::Lua(lua.into())));
        assert_eq!((read[1].name.as_str(), read[1].line), ("next", 3));
    }

    fn directives() -> impl Strategy<Value = Vec<Directive>> {
        let word = || prop_oneof!["[a-z_]{1,8}", "[ -~\\n\\t]{1,8}", "\\PC{1,4}"];
        let of =
            |name: String, arguments, block| Directive { block, ..Directive::new(name, arguments, (0, 0)) };
        let leaf = (word(), prop::collection::vec(word(), 0..4))
            .prop_map(move |(name, arguments)| of(name, arguments, None));
        let one = leaf.prop_recursive(4, 32, 4, move |inner| {
            (word(), prop::collection::vec(word(), 0..3), prop::collection::vec(inner, 0..4))
                .prop_map(move |(name, arguments, inner)| of(name, arguments, Some(Block::Directives(inner))))
        });
        prop::collection::vec(one, 0..5)
    }

    fn without_lines(directives: &mut [Directive]) {
        for directive in directives {
            directive.line = 0;
            if let Some(Block::Directives(inner)) = &mut directive.block {
                without_lines(inner);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(directives in directives()) {
            let mut read = parse(&write(&directives), 0).unwrap();
            without_lines(&mut read);
            prop_assert_eq!(read, directives);
        }

        #[test]
        fn no_text_ends_the_reader_otherwise_than_with_a_message(text in "[a-c{};#\"'\\\\\\[\\]=\\-$ \n]{0,60}", lua in any::<bool>()) {
            let text = if lua { format!("x_by_lua_block {{{text}") } else { text };
            let lines = text.matches('\n').count() + 1;
            if let Err((line, _)) = parse(&text, 0) {
                prop_assert!((1..=lines).contains(&line));
            }
        }
    }
}
