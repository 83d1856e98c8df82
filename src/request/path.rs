//! Paths, whatever their spelling. A path has two readings: *literal*, percent-decoded once and otherwise as
//! it was sent, and *resolved*, as a lenient upstream may see it. Policies look at both and take the stricter
//! result, so that `/a/../login`, `//login`, `/%6cogin` or `/x/..;/login` is no way round a policy on `/login`.

/// A request path in its two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    resolved: Vec<u8>,
    /// `None` when it is the same as `resolved`, as for nearly every request.
    literal: Option<Vec<u8>>,
}

impl Path {
    /// Both readings of `raw`, a path without its query.
    #[must_use]
    pub fn new(raw: &[u8]) -> Self {
        if is_plain(raw) {
            return Self { resolved: raw.to_vec(), literal: None };
        }
        let literal = percent_decode(raw, Plus::IsPlus);
        let resolved = resolve(&literal);
        let literal = Some(literal).filter(|literal| *literal != resolved);
        Self { resolved, literal }
    }

    /// The path that subjects are made of: decoded once, `\` as `/`, no empty segments, `.` and `..` resolved,
    /// `;parameters` of segments dropped; always begins with `/`.
    #[must_use]
    pub fn resolved(&self) -> &[u8] {
        &self.resolved
    }

    /// The decoded path as it was sent, when it differs from [`Path::resolved`].
    #[must_use]
    pub fn literal(&self) -> Option<&[u8]> {
        self.literal.as_deref()
    }

    /// The `index`-th segment of the resolved path, from 1; `None` past the end.
    #[must_use]
    pub fn segment(&self, index: usize) -> Option<&[u8]> {
        self.resolved.split(|&byte| byte == b'/').nth(index).filter(|segment| !segment.is_empty())
    }
}

/// Whether a path can be read in one way only, as nearly all can: nothing in it is to be decoded or resolved.
fn is_plain(raw: &[u8]) -> bool {
    let special = |byte: &u8| matches!(byte, b'%' | b'\\' | b';');
    let resolves = |pair: &[u8]| matches!(pair, [b'/', b'/' | b'.']);
    raw.starts_with(b"/") && !raw.iter().any(special) && !raw.windows(2).any(resolves)
}

/// Path and query of a request target. A fragment, which a client should not send, belongs to neither; the
/// scheme and authority of an absolute target are dropped.
#[must_use]
pub fn split(target: &[u8]) -> (&[u8], &[u8]) {
    let target = target.split(|&byte| byte == b'#').next().unwrap_or_default();
    let mut parts = target.splitn(2, |&byte| byte == b'?');
    let path = parts.next().unwrap_or_default();
    let query = parts.next().unwrap_or_default();
    let scheme = path.windows(3).position(|window| window == b"://").filter(|_| !path.starts_with(b"/"));
    let Some(after) = scheme.and_then(|at| path.get(at.saturating_add(3)..)) else { return (path, query) };
    let slash = after.iter().position(|&byte| byte == b'/').unwrap_or(after.len());
    (after.get(slash..).unwrap_or_default(), query)
}

/// What `+` means: a space in a query, itself in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plus {
    IsPlus,
    IsSpace,
}

/// `%41` becomes `A`; a `%` that begins no escape stays as it is. Once only: what an escape hides stays hidden.
pub(crate) fn percent_decode(text: &[u8], plus: Plus) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        rest = if escaped.is_some() { after.get(2..).unwrap_or_default() } else { after };
        out.push(match (escaped, byte) {
            (Some(byte), _) => byte,
            (None, b'+') if plus == Plus::IsSpace => b' ',
            (None, byte) => byte,
        });
    }
    out
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
        b'A'..=b'F' => Some(digit.wrapping_sub(b'A').wrapping_add(10)),
        _ => None,
    }
}

/// The path a lenient upstream may see in a decoded path.
fn resolve(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len().saturating_add(1));
    out.push(b'/');
    let mut segments = path.split(|&byte| byte == b'/' || byte == b'\\').peekable();
    while let Some(segment) = segments.next() {
        let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
        match name {
            b"" | b"." => {}
            b".." => {
                out.pop();
                let parent = out.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                out.truncate(parent.saturating_add(1));
                if out.is_empty() {
                    out.push(b'/');
                }
            }
            name => {
                out.extend_from_slice(name);
                if segments.peek().is_some() {
                    out.push(b'/');
                }
            }
        }
    }
    out
}
