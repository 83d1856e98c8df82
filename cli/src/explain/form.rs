// SPDX-License-Identifier: Apache-2.0
//! `curl -F`: a form of several parts, as curl writes it (`multipart/form-data`).

use std::fs;

/// curl draws its last characters anew for each request.
pub const BOUNDARY: &str = "------------------------weirdoesnotdrawthese00";

/// The body of a form of these parts, as `-F` (and not `--form-string`) has them.
pub fn body<'a>(parts: impl Iterator<Item = (&'a str, bool)>) -> Result<String, String> {
    let mut body = String::new();
    for (text, is_read) in parts {
        let wrong = |why: &str| format!("-F {text:?}: {why}");
        let (name, value) = text.split_once('=').ok_or_else(|| wrong("allowed is NAME=CONTENT"))?;
        let part = if is_read { Part::read(value) } else { Ok(Part::of(value)) };
        body.push_str(&part.map_err(|why| wrong(&why))?.written(name));
    }
    Ok(format!("{body}--{BOUNDARY}--\r\n"))
}

#[derive(Default)]
struct Part {
    content: String,
    /// The name of the file, if the part is one.
    file: Option<String>,
    kind: Option<String>,
}

impl Part {
    fn of(content: &str) -> Self {
        Self { content: content.to_owned(), ..Self::default() }
    }

    /// `TEXT`, `@FILE` or `<FILE`, and `;type=` and `;filename=`.
    fn read(text: &str) -> Result<Self, String> {
        if text.starts_with('(') || text.starts_with(')') {
            return Err(String::from("weir reads no parts inside of parts"));
        }
        let (sign, rest) = match text.strip_prefix(['@', '<']) {
            Some(rest) => (text.chars().next(), rest),
            None => (None, text),
        };
        let (first, mut rest) = word(rest);
        let mut part = match sign {
            None => Self::of(&first),
            Some(_) if first == "-" => return Err(String::from("weir reads no standard input for it")),
            Some(sign) => {
                let content = fs::read(&first).map_err(|error| format!("{first}: {error}"))?;
                let content = String::from_utf8(content)
                    .map_err(|_| format!("{first}: weir takes only files of UTF-8 text"))?;
                let is_file = sign == '@';
                let kind = is_file.then(|| kind_of(&first).to_owned());
                let name = first.rsplit('/').next().unwrap_or_default().to_owned();
                Self { content, file: is_file.then_some(name), kind }
            }
        };
        while let Some(next) = rest.strip_prefix(';') {
            let (key, value) = next.split_once('=').unwrap_or((next, ""));
            let (value, after) = if key.trim() == "type" { kind(value) } else { word(value) };
            match key.trim() {
                "type" => part.kind = Some(value),
                "filename" => part.file = Some(value),
                other => return Err(format!("after `;`, weir reads type= and filename=, not {other:?}")),
            }
            rest = after;
        }
        Ok(part)
    }

    fn written(&self, name: &str) -> String {
        let escaped = |text: &str| text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
        let mut text = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{}\"", escaped(name));
        if let Some(file) = &self.file {
            text.push_str(&format!("; filename=\"{}\"", escaped(file)));
        }
        if let Some(kind) = &self.kind {
            text.push_str(&format!("\r\nContent-Type: {kind}"));
        }
        format!("{text}\r\n\r\n{}\r\n", self.content)
    }
}

/// The text up to the next `;`, or what is between quotes, and the rest.
fn word(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        return (word.trim_end().to_owned(), rest);
    };
    let (mut word, mut letters) = (String::new(), quoted.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                let rest = quoted.get(at.saturating_add(1)..).unwrap_or_default();
                return (word, rest.trim_start());
            }
            '\\' => match letters.next() {
                Some((_, escaped @ ('"' | '\\'))) => word.push(escaped),
                Some((_, other)) => word.extend(['\\', other]),
                None => word.push('\\'),
            },
            _ => word.push(letter),
        }
    }
    // A quote that does not end is a letter.
    let end = text.find(';').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word.to_owned(), rest)
}

/// A media type with its parameters, which are behind `;` too.
fn kind(text: &str) -> (String, &str) {
    let is_own = |rest: &str| {
        ["filename=", "headers=", "encoder="].iter().any(|own| rest.trim_start().starts_with(own))
    };
    let ends = text.match_indices(';').map(|(at, _)| at);
    let end = ends
        .into_iter()
        .find(|at| text.get(at.saturating_add(1)..).is_some_and(is_own))
        .unwrap_or(text.len());
    let (kind, rest) = text.split_at(end);
    (kind.trim().to_owned(), rest)
}

/// The type that curl guesses of a file's name.
fn kind_of(name: &str) -> &'static str {
    let kinds = [
        (".gif", "image/gif"),
        (".jpg", "image/jpeg"),
        (".jpeg", "image/jpeg"),
        (".png", "image/png"),
        (".svg", "image/svg+xml"),
        (".txt", "text/plain"),
        (".htm", "text/html"),
        (".html", "text/html"),
        (".pdf", "application/pdf"),
        (".xml", "application/xml"),
    ];
    let name = name.to_ascii_lowercase();
    kinds.iter().find(|(end, _)| name.ends_with(end)).map_or("application/octet-stream", |(_, kind)| kind)
}
