// SPDX-License-Identifier: Apache-2.0
//! `normalize`: values that a user store takes for one become one. `Ann`, ` ann` and `ann` are one account in most stores, so without this
//! a client tries each spelling of a banned account.
//!
//! Where stores differ, the wider reading counts: two accounts that only some stores tell apart share a limit, and no spelling has a limit of
//! its own. So `ß` and `ss` are one, as in full case folding (Unicode 3.13), and `ı` and `i`, whose capitals are the same.

use std::borrow::Cow;

/// The steps that a value goes through; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Normal {
    /// Spaces at both ends go.
    pub trim: bool,
    /// Capital and small letters become the same.
    pub lowercase: bool,
    /// All addresses of one mailbox become the same; the two steps above come first.
    pub email: bool,
}

/// The domains of one provider that ignores dots in the names of its mailboxes.
const WITHOUT_DOTS: [&str; 2] = ["gmail.com", "googlemail.com"];

impl Normal {
    /// True if it leaves each value as it is.
    #[must_use]
    pub const fn is_none(self) -> bool {
        !self.trim && !self.lowercase && !self.email
    }

    /// The steps on texts that are part of an address.
    #[must_use]
    pub const fn without_email(self) -> Self {
        Self { trim: self.trim || self.email, lowercase: self.lowercase || self.email, email: false }
    }

    /// A number that no other steps have.
    #[must_use]
    pub fn number(self) -> u16 {
        [self.trim, self.lowercase, self.email]
            .into_iter()
            .fold(0, |number, step| number * 2 + u16::from(step))
    }

    /// The value after these steps; `None` if it is not UTF-8: servers differ in which letters such bytes are.
    #[must_use]
    pub fn apply(self, value: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
        if self.is_none() {
            return Some(value);
        }
        let mut text = str::from_utf8(&value).ok()?;
        if self.trim || self.email {
            text = text.trim_matches(is_space);
        }
        let mut text = Cow::Borrowed(text);
        if self.lowercase || self.email {
            text = Cow::Owned(fold(&text));
        }
        if self.email
            && let Some(mailbox) = mailbox(&text)
        {
            text = Cow::Owned(mailbox);
        }
        Some(Cow::Owned(text.into_owned().into_bytes()))
    }
}

/// The text in small letters. Letters that only some stores take for others become these.
pub(super) fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            folded.push(letter.to_ascii_lowercase());
            continue;
        }
        match WIDER.iter().find(|(wide, _)| *wide == letter) {
            Some((_, letters)) => folded.push_str(letters),
            None => folded.extend(letter.to_lowercase()),
        }
    }
    folded
}

/// Letters whose small letter is not all: what full case folding, or a comparison of capitals, makes of them. `İ` becomes `i` and a
/// combining dot.
const WIDER: [(char, &str); 39] = [
    ('ß', "ss"),
    ('ẞ', "ss"),
    ('İ', "i"),
    ('\u{307}', ""),
    ('ı', "i"),
    ('ſ', "s"),
    ('ẛ', "\u{1e61}"),
    ('ς', "σ"),
    ('µ', "μ"),
    ('ϐ', "β"),
    ('ϑ', "θ"),
    ('ϕ', "φ"),
    ('ϖ', "π"),
    ('ϰ', "κ"),
    ('ϱ', "ρ"),
    ('ϵ', "ε"),
    ('ᲀ', "в"),
    ('ᲁ', "д"),
    ('ᲂ', "о"),
    ('ᲃ', "с"),
    ('ᲄ', "т"),
    ('ᲅ', "т"),
    ('ᲆ', "ъ"),
    ('ᲇ', "ѣ"),
    ('ᲈ', "ꙋ"),
    ('ŉ', "ʼn"),
    ('ǰ', "j\u{30c}"),
    ('ẖ', "h\u{331}"),
    ('ẗ', "t\u{308}"),
    ('ẘ', "w\u{30a}"),
    ('ẙ', "y\u{30a}"),
    ('ẚ', "aʾ"),
    ('ﬀ', "ff"),
    ('ﬁ', "fi"),
    ('ﬂ', "fl"),
    ('ﬃ', "ffi"),
    ('ﬄ', "ffl"),
    ('ﬅ', "st"),
    ('ﬆ', "st"),
];

/// Characters that some server removes from the ends of a value: PHP a zero character, JavaScript a byte order mark, Laravel what is
/// invisible.
fn is_space(character: char) -> bool {
    character.is_whitespace()
        || character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
                | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d159}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// The mailbox of an address, if the text looks like one: without what follows a `+` in its name.
fn mailbox(text: &str) -> Option<String> {
    let (name, domain) = text.rsplit_once('@')?;
    let domain = domain.trim_end_matches('.');
    let plain = name.split_once('+').map_or(name, |(before, _)| before);
    if plain.is_empty() || name.starts_with('"') {
        return None;
    }
    Some(match WITHOUT_DOTS.contains(&domain) {
        true => [&plain.replace('.', ""), "@gmail.com"].concat(),
        false => [plain, "@", domain].concat(),
    })
}
