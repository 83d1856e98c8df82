// SPDX-License-Identifier: Apache-2.0
//! The directives of nginx's limits, and how a block inherits them from the one around it.

use std::rc::Rc;

use super::super::notes::{Note, Notes};
use super::answers::bare_status;
use super::locations::handler;
use super::syntax::Directive;

/// The directives that are read here.
pub const DIRECTIVES: [&str; 8] = [
    "limit_req",
    "limit_conn",
    "limit_req_zone",
    "limit_conn_zone",
    "limit_req_status",
    "limit_conn_status",
    "limit_req_dry_run",
    "limit_conn_dry_run",
];

/// A zone that `limit_req_zone` or `limit_conn_zone` defines.
#[derive(Clone, Debug)]
pub struct Zone<'a> {
    pub name: &'a str,
    pub key: &'a str,
    /// Requests in so many seconds; `None` counts connections.
    pub rate: Option<(u64, u64)>,
    pub directive: &'a Directive,
}

/// The treatment of requests beyond the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// This number of requests beyond the rate pass at once, and this number more wait for their turn.
    Burst { at_once: u64, delayed: u64 },
    /// At most this number are in flight.
    Connections(u64),
}

/// The body of a rejection, with its `format`.
pub type Body<'a> = (&'static str, &'a str);

/// A limit as a location has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    pub zone: &'a str,
    pub excess: Excess,
    pub status: u64,
    pub dry_run: bool,
    pub directive: &'a Directive,
    pub body: Option<Body<'a>>,
    /// The `error_page`, or the `return` there, whose body a rejection has, unless it is in `body`. Blocks with the same rule may have
    /// different ones.
    pub pages: Vec<&'a Directive>,
}

impl Rule<'_> {
    /// True if both limit in the same way, wherever they are written.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.zone, self.excess, self.status, self.body, self.dry_run)
            == (other.zone, other.excess, other.status, other.body, other.dry_run)
    }
}

/// The settings that are in force in a block.
#[derive(Clone, Debug, Default)]
pub struct Level<'a> {
    requests: Vec<(&'a Directive, &'a str, Excess)>,
    connections: Vec<(&'a Directive, &'a str, Excess)>,
    request_status: Option<u64>,
    connection_status: Option<u64>,
    requests_dry: Option<bool>,
    connections_dry: Option<bool>,
    error_pages: Vec<&'a Directive>,
    default_type: Option<&'a str>,
    /// The server around it.
    server: Option<Rc<Server<'a>>>,
    /// Clients cannot come here.
    internal: bool,
    /// nginx answers here before it limits.
    pub answers: bool,
}

/// A server, to which a request comes again by `try_files` and `error_page`.
#[derive(Debug)]
struct Server<'a> {
    level: Level<'a>,
    block: &'a [Directive],
}

impl<'a> Level<'a> {
    /// The settings for requests that nginx answers before it limits.
    pub fn answering() -> Self {
        Self { answers: true, ..Self::default() }
    }

    /// Returns the settings for a block's own requests, where `self` is in force: `return` answers them, and `try_files` sends on those
    /// without a file.
    pub fn own(self, block: &'a [Directive], notes: &mut Notes) -> Self {
        let mut level = self;
        if let Some(answer) = block.iter().find(|directive| directive.name == "return") {
            let other = bare_status(answer).and_then(|status| level.answered_by(status, notes));
            return other.unwrap_or(Self { answers: true, ..level });
        }
        let Some(files) = block.iter().find(|directive| directive.name == "try_files") else { return level };
        let target = files.arguments.last().and_then(|place| level.target(place, notes));
        let Some(target) = target.filter(|target| !target.answers) else { return level };
        // The first location that limits a request is the one that counts.
        let takes_requests = level.requests.is_empty() && !target.requests.is_empty();
        let takes_connections = level.connections.is_empty() && !target.connections.is_empty();
        if takes_requests || takes_connections {
            let why = "weir sees no files, so the limits of its last place apply to all requests here, as if no file existed";
            notes.add(Note::new(files, why, "Add the paths of files to `exempt` if there are many"));
        }
        if takes_requests {
            level.requests = target.requests;
            level.request_status = target.request_status;
            level.requests_dry = target.requests_dry;
        }
        if takes_connections {
            level.connections = target.connections;
            level.connection_status = target.connection_status;
            level.connections_dry = target.connections_dry;
        }
        level
    }

    /// Returns the settings in a server, to which its locations lead back.
    pub fn inside_server(&self, block: &'a [Directive], notes: &mut Notes) -> Self {
        let level = self.inside(block, notes);
        let server = Rc::new(Server { level: level.clone(), block });
        Self { server: Some(server), ..level }
    }

    /// Returns the settings of the named location that has the requests which are answered here with this status; `None` if there is none.
    pub fn answered_by(&self, status: u64, notes: &mut Notes) -> Option<Self> {
        let page = self.error_page(status)?.arguments.last().filter(|page| page.starts_with('@'))?;
        // Unless `recursive_error_pages` says so, nginx looks for a page once.
        Some(Self { error_pages: Vec::new(), ..self.target(page, notes)? })
    }

    /// Returns the settings at the place to which nginx sends a request.
    fn target(&self, place: &str, notes: &mut Notes) -> Option<Self> {
        let server = self.server.as_ref()?;
        let path = place.split('?').next().unwrap_or_default();
        let mut level = server.level.clone();
        for block in blocks_of(server.block, path)? {
            level = level.inside(block, notes);
            level.answers = block.iter().any(|directive| directive.name == "return");
        }
        Some(Self { server: self.server.clone(), internal: false, ..level })
    }

    fn error_page(&self, status: u64) -> Option<&'a Directive> {
        let has = |page: &&&Directive| {
            let codes = page.arguments.iter().map_while(|code| code.parse::<u64>().ok());
            codes.into_iter().any(|code| code == status)
        };
        self.error_pages.iter().find(has).copied()
    }

    /// The status of a rejection, and the page that it has: a text that weir can send, too, or another.
    fn rejection(&self, status: u64) -> (u64, Option<Body<'a>>, Option<&'a Directive>) {
        let Some(page) = self.error_page(status) else { return (status, None, None) };
        let changed = page.arguments.iter().find_map(|argument| argument.strip_prefix('='));
        let place = page.arguments.last().map(String::as_str).unwrap_or_default();
        let blocks =
            self.server.as_ref().and_then(|server| blocks_of(server.block, place)).unwrap_or_default();
        let answer =
            blocks.last().and_then(|block| block.iter().find(|directive| directive.name == "return"));
        // Without a text, `return` has its own status in any case.
        let bare = answer.and_then(bare_status);
        let text = answer.and_then(|answer| answer.argument(0).parse().ok());
        let found = match changed {
            _ if bare.is_some() => bare,
            Some("") => text,
            Some(code) => code.parse().ok(),
            None => None,
        };
        let status = found.filter(|found| (400..600).contains(found)).unwrap_or(status);
        let body = self.sent(&blocks);
        (status, body, if body.is_some() { None } else { answer.or(Some(page)) })
    }

    /// The text that the last of these blocks sends, with the `format` that has its type; `None` if it does more, or the text has variables.
    fn sent(&self, blocks: &[&'a [Directive]]) -> Option<Body<'a>> {
        let block = *blocks.last()?;
        let is_known =
            |directive: &Directive| ["return", "default_type", "internal"].contains(&directive.name.as_str());
        let answer = block.iter().find(|directive| directive.name == "return")?;
        let is_redirect = answer.argument(0).starts_with('3');
        let text = answer.arguments.get(1).map(String::as_str)?;
        if !block.iter().all(is_known) || is_redirect || text.contains('$') {
            return None;
        }
        let server = self.server.as_ref().and_then(|server| server.level.default_type);
        match blocks.iter().rev().find_map(|block| default_type(block)).or(server) {
            Some("application/json") => {
                let is_json = serde_json::from_str::<serde_json::Value>(text).is_ok();
                is_json.then_some(("json", text))
            }
            None | Some("text/plain") => Some(("text", text)),
            Some(_) => None,
        }
    }

    /// Returns the settings in a block with these directives inside of this one. `limit_req` and `limit_conn` are inherited if the block
    /// has none of its own, and the rest one by one.
    pub fn inside(&self, block: &'a [Directive], notes: &mut Notes) -> Self {
        let mut level = Self { answers: false, ..self.clone() };
        let (mut requests, mut connections, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for directive in block {
            let number = || directive.argument(0).parse::<u64>().ok();
            let flag = Some(directive.argument(0) == "on");
            match directive.name.as_str() {
                "limit_req" => requests.extend(request(directive, notes)),
                "limit_conn" => connections.extend(connection(directive, notes)),
                "limit_req_status" => level.request_status = number(),
                "limit_conn_status" => level.connection_status = number(),
                "limit_req_dry_run" => level.requests_dry = flag,
                "limit_conn_dry_run" => level.connections_dry = flag,
                "error_page" => pages.push(directive),
                "default_type" => level.default_type = Some(directive.argument(0)),
                "internal" => level.internal = true,
                _ => {}
            }
        }
        for (own, inherited) in [(requests, &mut level.requests), (connections, &mut level.connections)] {
            if !own.is_empty() {
                *inherited = own;
            }
        }
        if !pages.is_empty() {
            level.error_pages = pages;
        }
        level
    }

    /// The limits of a request that is handled here.
    pub fn rules(&self) -> Vec<Rule<'a>> {
        if self.answers || self.internal {
            return Vec::new();
        }
        let rule = |(directive, zone, excess): &(&'a Directive, &'a str, Excess),
                    status: Option<u64>,
                    dry: Option<bool>| {
            let (status, body, page) = self.rejection(status.unwrap_or(503));
            let (dry_run, pages) = (dry.unwrap_or(false), page.into_iter().collect());
            Rule { zone, excess: *excess, status, dry_run, directive, body, pages }
        };
        let requests = self.requests.iter().map(|limit| rule(limit, self.request_status, self.requests_dry));
        let connections =
            self.connections.iter().map(|limit| rule(limit, self.connection_status, self.connections_dry));
        requests.chain(connections).collect()
    }
}

/// The `default_type` that a block has of its own.
fn default_type(block: &[Directive]) -> Option<&str> {
    block.iter().rfind(|directive| directive.name == "default_type").map(|directive| directive.argument(0))
}

/// The blocks that handle a place of a server, a path or a name, from the outermost one; `None` if it is not known.
fn blocks_of<'a>(server: &'a [Directive], place: &str) -> Option<Vec<&'a [Directive]>> {
    if place.starts_with('@') {
        let is_it = |directive: &&Directive| directive.name == "location" && directive.argument(0) == place;
        return server.iter().find(is_it).map(|location| vec![location.inner()]);
    }
    let is_known = place.starts_with('/') && !place.contains('$');
    is_known.then(|| handler(server, place))
}

/// `limit_req zone=name [burst=n] [nodelay | delay=n]`
fn request<'a>(directive: &'a Directive, notes: &mut Notes) -> Option<(&'a Directive, &'a str, Excess)> {
    let number = |name: &str| directive.setting(name).map(|value| value.parse::<u64>());
    let (zone, burst, delay) = (directive.setting("zone"), number("burst"), number("delay"));
    let (Some(zone), Ok(burst), Ok(delay)) = (zone, burst.transpose(), delay.transpose()) else {
        notes.add(Note::new(directive, "is not what nginx documents", "Write the policy by hand"));
        return None;
    };
    let known = |argument: &&String| {
        argument.as_str() == "nodelay"
            || argument.split_once('=').is_some_and(|(name, _)| ["zone", "burst", "delay"].contains(&name))
    };
    if let Some(other) = directive.arguments.iter().find(|argument| !known(argument)) {
        let why = format!("{other:?} is no parameter of nginx's own module, and is ignored");
        notes.add(Note::new(directive, why, "Compare the policy with what your module does"));
    }
    let burst = burst.unwrap_or(0);
    let no_delay = directive.arguments.iter().any(|argument| argument == "nodelay");
    let at_once = if no_delay { burst } else { delay.unwrap_or(0).min(burst) };
    Some((directive, zone, Excess::Burst { at_once, delayed: burst.saturating_sub(at_once) }))
}

/// `limit_conn zone number`
fn connection<'a>(directive: &'a Directive, notes: &mut Notes) -> Option<(&'a Directive, &'a str, Excess)> {
    match directive.argument(1).parse::<u64>() {
        Ok(limit) if limit > 0 => Some((directive, directive.argument(0), Excess::Connections(limit))),
        _ => {
            notes.add(Note::new(directive, "is not what nginx documents", "Write the policy by hand"));
            None
        }
    }
}

/// The zones of the block `http`.
pub fn zones<'a>(http: &'a [Directive], notes: &mut Notes) -> Vec<Zone<'a>> {
    let mut zones = Vec::new();
    for directive in http {
        let is_rate = match directive.name.as_str() {
            "limit_req_zone" => true,
            "limit_conn_zone" => false,
            _ => continue,
        };
        let name = directive.setting("zone").and_then(|zone| zone.split(':').next());
        let rate = directive.setting("rate").and_then(|rate| {
            let (count, unit) = rate.split_once("r/")?;
            let seconds = match unit {
                "s" => 1,
                "m" => 60,
                _ => return None,
            };
            Some((count.parse::<u64>().ok().filter(|count| *count > 0)?, seconds))
        });
        match name {
            Some(name) if rate.is_some() == is_rate => {
                zones.push(Zone { name, key: directive.argument(0), rate, directive });
            }
            _ => notes.add(Note::new(directive, "is not what nginx documents", "Write the policy by hand")),
        }
    }
    zones
}
