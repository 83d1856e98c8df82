// SPDX-License-Identifier: Apache-2.0
//! The directives of nginx's limits, and how a block inherits them from the one around it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::super::notes::{Note, Notes};
use super::super::test::Test;
use super::answers::{bare_status, of_all, of_block, redirects};
use super::locations::{Limited, PROXIES, handler, limited};
use super::others::has_limits;
use super::policies::{name_of, unique};
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
    /// The name of the counters that all of its policies share, which no other zone has.
    pub counters: String,
    /// False if its parameters are wrong, or of a template: a note says so.
    pub is_read: bool,
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
    /// The directives of other blocks that say the same.
    pub others: Vec<&'a Directive>,
    pub body: Option<Body<'a>>,
    /// The `error_page`, or the `return` there, whose body a rejection has, unless it is in `body`. Blocks with the same rule may have
    /// different ones.
    pub pages: Vec<&'a Directive>,
    /// The directives that give requests another path before this limit counts them.
    pub moved: Vec<&'a Directive>,
}

impl Rule<'_> {
    /// True if both limit in the same way, wherever they are written.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.zone, self.excess, self.status, self.body, self.dry_run)
            == (other.zone, other.excess, other.status, other.body, other.dry_run)
    }
}

/// A limit of a block: its directive, and the name of its zone.
type Limit<'a> = (&'a Directive, &'a str, Excess);

/// The number of times that nginx sends a request on.
const MAX_SENT: usize = 10;

/// Statuses with which nginx itself answers, for which `error_page` may send a request elsewhere.
const OWN_ERRORS: [&str; 8] = ["401", "403", "404", "405", "500", "502", "503", "504"];

/// The file of a folder without a directive `index`.
const INDEX: &str = "index.html";

const LEADS_NOWHERE: &str =
    "weir cannot tell to which location its last place leads, so limits there do not apply";

const WRITE_POLICY: &str = "Write a policy for the paths that come to it";

const LIMITS_THERE: &str =
    "nginx applies the limits there to requests that it sends there from other locations, and weir does not";

/// The settings that are in force in a block.
#[derive(Clone, Debug, Default)]
pub struct Level<'a> {
    requests: Vec<Limit<'a>>,
    connections: Vec<Limit<'a>>,
    request_status: Option<u64>,
    connection_status: Option<u64>,
    requests_dry: Option<bool>,
    connections_dry: Option<bool>,
    error_pages: Vec<&'a Directive>,
    /// Those for rejections by `requests`, and by `connections`, if these are of another place.
    request_pages: Option<Vec<&'a Directive>>,
    connection_pages: Option<Vec<&'a Directive>>,
    /// Directives that send requests to another location.
    sends: Vec<&'a Directive>,
    default_type: Option<&'a str>,
    /// The directive by which `error_page` is also for statuses of the upstream.
    intercepts: Option<&'a str>,
    /// The server around it.
    server: Option<Rc<Server<'a>>>,
    /// Clients cannot come here.
    pub internal: bool,
    /// nginx answers here before it limits.
    pub answers: bool,
    /// The requests that nginx answers at the place to which it sends those of here, with the limits that have counted before.
    pub gone: Vec<(Test, Self)>,
    /// The directives that give requests another path before these limits.
    moved: Vec<&'a Directive>,
}

/// A server, to which a request comes again by `try_files` and `error_page`.
#[derive(Debug)]
struct Server<'a> {
    level: Level<'a>,
    block: &'a [Directive],
    /// The places that were looked up: a file may have hundreds of locations that lead to one.
    places: RefCell<HashMap<String, Option<Vec<&'a [Directive]>>>>,
}

impl<'a> Server<'a> {
    /// The blocks that handle a place, a path or a name, from the outermost one; `None` if it is not known.
    fn blocks_of(&self, place: &str) -> Option<Vec<&'a [Directive]>> {
        let mut places = self.places.borrow_mut();
        places.entry(place.to_owned()).or_insert_with(|| blocks_of(self.block, path_of(place))).clone()
    }
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
        if level.internal {
            return level.answered_by(404, notes).unwrap_or_else(Self::answering);
        }
        if let Some(answer) = of_all(block) {
            let other = bare_status(answer).and_then(|status| level.answered_by(status, notes));
            return other.unwrap_or(Self { answers: true, ..level });
        }
        let server = level.server.as_ref().map(|server| server.block).unwrap_or_default();
        level.moved = server.iter().chain(block).flat_map(rewrites).collect();
        if let Some(files) = block.iter().find(|directive| directive.name == "try_files") {
            level = level.without_files(files, 0, false, notes);
        }
        level.note_sent(notes);
        level
    }

    /// Returns the settings where `try_files` sends requests on, after they were sent so often. `is_page`: they came from an `error_page`.
    fn without_files(mut self, files: &'a Directive, depth: usize, is_page: bool, notes: &mut Notes) -> Self {
        let place = files.arguments.last().map(String::as_str).unwrap_or_default();
        if !place.starts_with('=') && self.leads_nowhere(place) {
            notes.add(Note::new(files, LEADS_NOWHERE, WRITE_POLICY));
        }
        let target = self.target(place, depth, is_page, notes);
        let Some(target) = target.filter(|target| !target.answers) else { return self };
        // The first location that limits a request is the one that counts.
        let (takes_requests, takes_connections) = self.takes(&target);
        if takes_requests || takes_connections {
            let why = "weir sees no files, so the limits of its last place apply to all requests here, as if no file existed";
            notes.add(Note::new(files, why, "Add the paths of files to `exempt` if there are many"));
        }
        let differs = |own: &[Limit<'_>], other: &[Limit<'_>]| {
            !own.is_empty() && other.iter().any(|(_, zone, _)| own.iter().all(|(_, own, _)| own != zone))
        };
        if differs(&self.requests, &target.requests) || differs(&self.connections, &target.connections) {
            let why = "nginx applies the limits of its last place to requests for which all keys of the limits here are empty, and weir does not";
            notes.add(Note::new(files, why, "If keys may be empty, write a policy for these requests"));
        }
        if takes_requests || takes_connections {
            self.moved.extend(&target.moved);
            self.moved.extend(place.starts_with('/').then_some(files));
            let own = Self { gone: Vec::new(), ..self.clone() };
            self.gone
                .extend(target.gone.iter().map(|(test, there)| (test.clone(), own.clone().taking(there))));
        }
        self.taking(&target)
    }

    /// Returns the settings with the limits of another place, where there are none of the kind here.
    fn taking(mut self, other: &Self) -> Self {
        let pages = |own: &Option<Vec<_>>| own.clone().or_else(|| Some(other.error_pages.clone()));
        let (takes_requests, takes_connections) = self.takes(other);
        if takes_requests {
            self.requests.clone_from(&other.requests);
            self.request_status = other.request_status;
            self.requests_dry = other.requests_dry;
            self.request_pages = pages(&other.request_pages);
        }
        if takes_connections {
            self.connections.clone_from(&other.connections);
            self.connection_status = other.connection_status;
            self.connections_dry = other.connections_dry;
            self.connection_pages = pages(&other.connection_pages);
        }
        self
    }

    /// Returns whether requests that come from here to another place have its `limit_req`, and its `limit_conn`.
    const fn takes(&self, target: &Self) -> (bool, bool) {
        (
            self.requests.is_empty() && !target.requests.is_empty(),
            self.connections.is_empty() && !target.connections.is_empty(),
        )
    }

    /// True if weir cannot tell to which location of its server this place leads, and one of them limits.
    fn leads_nowhere(&self, place: &str) -> bool {
        let leads_nowhere =
            |server: &Rc<Server<'_>>| has_limits(server.block) && server.blocks_of(place).is_none();
        self.server.as_ref().is_some_and(leads_nowhere)
    }

    /// Notes the places to which nginx may send requests of a block, and whose limits weir does not apply to them.
    fn note_sent(&self, notes: &mut Notes) {
        for from in self.sends.iter().chain(&self.error_pages) {
            let is_of_upstream = |code: &str| code.parse::<u16>().is_ok_and(|code| code >= 300);
            let is_own = |code: &String| {
                OWN_ERRORS.contains(&code.as_str()) || self.intercepts.is_some() && is_of_upstream(code)
            };
            let sends = match from.name.as_str() {
                "index" => false,
                "error_page" => from.arguments.iter().any(is_own),
                _ => true,
            };
            let is_page = from.name == "error_page";
            if sends && from.arguments.last().is_some_and(|place| self.are_limited_at(place, is_page)) {
                notes.add(Note::new(from, LIMITS_THERE, "Write a policy for the paths of these requests"));
            }
            // Of the client's path, or of one that begins with it.
            let place = from.arguments.last().filter(|_| is_page).map(String::as_str).unwrap_or_default();
            if place.starts_with(['/', '$']) && place.contains('$') && self.leads_nowhere(place) {
                notes.add(Note::new(from, LEADS_NOWHERE, WRITE_POLICY));
            }
        }
    }

    /// True if requests that come from here to a place have limits there.
    fn are_limited_at(&self, place: &str, is_page: bool) -> bool {
        let target = self.target(place, 0, is_page, &mut Notes::default());
        target.is_some_and(|target| !target.answers && self.takes(&target) != (false, false))
    }

    /// Notes the files of folders in this server whose limits weir does not apply to requests for the folder.
    pub fn note_indexes(&self, notes: &mut Notes) {
        let Some(server) = &self.server else { return };
        let all = self.sends.iter().copied().chain(server.block).flat_map(indexes);
        let mut files: Vec<&str> = all.flat_map(|index| &index.arguments).map(String::as_str).collect();
        files.push(INDEX);
        for Limited { test, folder, directive } in limited(server.block) {
            let is_here = |file: &&str| !test.matches(&folder) && test.matches(&in_folder(&folder, file));
            // To find the location of a folder takes long in a large file, so it is the last question.
            let level = files.iter().any(is_here).then(|| self.with_files(&folder)).flatten();
            let Some(level) = level else { continue };
            let leads = |file: &&str| is_here(file) && level.are_limited_at(&in_folder(&folder, file), false);
            let mut indexes = level.sends.iter().filter(|directive| directive.name == "index").peekable();
            if indexes.peek().is_none() && leads(&INDEX) {
                let why = "nginx applies its limits to requests for folders, whose file is index.html unless an `index` says otherwise, and weir does not";
                notes.add(Note::new(directive, why, "Write a policy for the paths of these folders"));
            }
            for index in indexes.filter(|index| index.arguments.iter().any(|file| leads(&file.as_str()))) {
                notes.add(Note::new(index, LIMITS_THERE, "Write a policy for the paths of these requests"));
            }
        }
    }

    /// The settings for requests for a folder, if nginx looks there for a file.
    fn with_files(&self, folder: &str) -> Option<Self> {
        let server = self.server.as_ref()?;
        let blocks = server.blocks_of(folder)?;
        let is_other = |directive: &Directive| match directive.name.as_str() {
            "return" => true,
            "try_files" => !directive.arguments.iter().any(|place| place.ends_with('/')),
            name => PROXIES.contains(&name),
        };
        let has_files = !blocks.last().copied().unwrap_or(server.block).iter().any(is_other);
        let level = has_files.then(|| self.target(folder, 0, false, &mut Notes::default()));
        level.flatten().filter(|level| !level.answers)
    }

    /// Returns the settings in a server, to which its locations lead back.
    pub fn inside_server(&self, block: &'a [Directive], notes: &mut Notes) -> Self {
        let level = self.inside(block, notes);
        let server = Rc::new(Server { level: level.clone(), block, places: RefCell::default() });
        Self { server: Some(server), ..level }
    }

    /// Returns the settings of the location that has the requests which are answered here with this status; `None` if there is none.
    pub fn answered_by(&self, status: u64, notes: &mut Notes) -> Option<Self> {
        // At 444, nginx closes the connection.
        let from = error_page(&self.error_pages, status).filter(|_| status != 444)?;
        let page = from.arguments.last()?;
        let mut target = self.target(page, 0, true, notes)?;
        // A request for a page with a path passes by the answers of the server again.
        if let Some(server) = self.server.as_ref().filter(|_| page.starts_with('/')) {
            target.gone.extend(answered_at(server.block, page, 0, true, &|_| true));
            target.moved.push(from);
        }
        // nginx looks for a page once.
        Some(Self { error_pages: Vec::new(), request_pages: None, connection_pages: None, ..target })
    }

    /// Returns the settings at the place to which nginx sends a request, after it was sent so often. `is_page`: it is for an `error_page`.
    fn target(&self, place: &str, depth: usize, is_page: bool, notes: &mut Notes) -> Option<Self> {
        let server = self.server.as_ref()?;
        let mut level = server.level.clone();
        let blocks = server.blocks_of(place)?;
        for block in blocks.iter().copied() {
            level = level.inside(block, notes);
            level.answers = of_all(block).is_some();
        }
        let last = blocks.last().copied().unwrap_or_default();
        level.gone = answered_at(last, place, depth, is_page, &|_| true);
        level.moved = last.iter().flat_map(rewrites).collect();
        level.server.clone_from(&self.server);
        // nginx looks for a page once.
        let status = of_all(last).and_then(bare_status).filter(|_| !is_page);
        if let Some(mut page) = status.and_then(|status| level.answered_by(status, notes)) {
            // Other answers here may lead to the same page.
            let to = |status: Option<u64>| {
                status.and_then(|status| error_page(&level.error_pages, status)).map(core::ptr::from_ref)
            };
            page.gone.extend(answered_at(last, place, depth, is_page, &|other| to(other) != to(status)));
            page.moved.extend(level.moved);
            return Some(page);
        }
        let files = last.iter().find(|next| next.name == "try_files");
        if let Some(files) = files.filter(|_| depth < MAX_SENT && !level.answers) {
            level = level.without_files(files, depth.saturating_add(1), is_page, notes);
        }
        Some(Self { server: self.server.clone(), internal: false, ..level })
    }

    /// The status of a rejection, and its page among these: a body that weir can send, too, and the directive of any other page, or of
    /// a status that weir cannot send.
    fn rejection(
        &self,
        status: u64,
        pages: &[&'a Directive],
    ) -> (u64, Option<Body<'a>>, Option<&'a Directive>) {
        let Some(page) = error_page(pages, status) else { return (status, None, None) };
        let changed = page.arguments.iter().find_map(|argument| argument.strip_prefix('='));
        let place = page.arguments.last().map(String::as_str).unwrap_or_default();
        let blocks = self.server.as_ref().and_then(|server| server.blocks_of(place)).unwrap_or_default();
        let answer =
            blocks.last().and_then(|block| block.iter().find(|directive| directive.name == "return"));
        // Without a body, `return` has its own status in any case.
        let bare = answer.and_then(bare_status);
        let text = answer.and_then(|answer| answer.argument(0).parse().ok());
        let found = match changed {
            _ if bare.is_some() => bare,
            Some("") => text,
            Some(code) => code.parse().ok(),
            None => None,
        };
        let body = self.sent(&blocks);
        match found.filter(|found| !(400..600).contains(found)) {
            Some(_) if body.is_some() => (status, body, Some(page)),
            Some(_) => (status, body, answer.or(Some(page))),
            None => (found.unwrap_or(status), body, answer.or(Some(page)).filter(|_| body.is_none())),
        }
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
                name if name.ends_with("_intercept_errors") => match flag {
                    Some(true) => level.intercepts = Some(name),
                    // That of another kind of upstream stays.
                    _ => level.intercepts = level.intercepts.filter(|on| *on != name),
                },
                "index" | "auth_request" | "mirror" => {
                    level.sends.retain(|other| other.name != directive.name || block.contains(other));
                    level.sends.push(directive);
                }
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
        let rules = |limits: &[Limit<'a>], status: Option<u64>, dry: Option<bool>, pages: &Option<Vec<_>>| {
            if limits.is_empty() {
                return Vec::new();
            }
            let pages = pages.as_ref().unwrap_or(&self.error_pages);
            let (status, body, page) = self.rejection(status.unwrap_or(503), pages);
            let rule = |(directive, zone, excess): &Limit<'a>| {
                let (dry_run, pages) = (dry.unwrap_or(false), page.into_iter().collect());
                let (others, moved) = (Vec::new(), self.moved.clone());
                Rule { zone, excess: *excess, status, dry_run, directive, others, body, pages, moved }
            };
            limits.iter().map(rule).collect::<Vec<_>>()
        };
        [
            rules(&self.requests, self.request_status, self.requests_dry, &self.request_pages),
            rules(&self.connections, self.connection_status, self.connections_dry, &self.connection_pages),
        ]
        .concat()
    }
}

/// The requests that a block answers when nginx sends them to this place, after it sent them so often, as far as this is known.
/// With a path, a page has the method GET unless it is HEAD. `is_wanted` chooses answers by their status.
fn answered_at<'a>(
    block: &[Directive],
    place: &str,
    depth: usize,
    is_page: bool,
    is_wanted: &dyn Fn(Option<u64>) -> bool,
) -> Vec<(Test, Level<'a>)> {
    let path = path_of(place);
    let known = |test: Test| match (place.starts_with('@'), depth) {
        (true, 0) => Some(test),
        // It had another path and perhaps another method before.
        (true, _) => test.at("", true).filter(|other| *other == test),
        (false, 0) => test.at(path, is_page),
        (false, _) => test.at(path, true).filter(|other| test.at(path, false).as_ref() == Some(other)),
    };
    let answers = of_block(block).into_iter().filter(|answer| is_wanted(answer.status));
    let requests = answers.filter_map(|answer| known(answer.requests));
    requests.filter(|test| !test.is_never()).map(|test| (test, Level::answering())).collect()
}

/// The directives `index` in this one.
fn indexes(directive: &Directive) -> Vec<&Directive> {
    match directive.name.as_str() {
        "index" => vec![directive],
        _ => directive.inner().iter().flat_map(indexes).collect(),
    }
}

/// The path of the file of an `index`.
fn in_folder(folder: &str, file: &str) -> String {
    if file.starts_with('/') { file.to_owned() } else { format!("{folder}{file}") }
}

/// The directives `rewrite` here and in an `if` that give a request another path.
fn rewrites(directive: &Directive) -> Vec<&Directive> {
    match directive.name.as_str() {
        "rewrite" if !redirects(directive) => vec![directive],
        "if" => directive.inner().iter().flat_map(rewrites).collect(),
        _ => Vec::new(),
    }
}

/// The one of these `error_page` that is for a status.
fn error_page<'a>(pages: &[&'a Directive], status: u64) -> Option<&'a Directive> {
    let has = |page: &&&Directive| {
        let codes = page.arguments.iter().map_while(|code| code.parse::<u64>().ok());
        codes.into_iter().any(|code| code == status)
    };
    pages.iter().find(has).copied()
}

/// The `default_type` that a block has of its own.
fn default_type(block: &[Directive]) -> Option<&str> {
    block.iter().rfind(|directive| directive.name == "default_type").map(|directive| directive.argument(0))
}

/// The path of a place, without its parameters.
fn path_of(place: &str) -> &str {
    let path = place.split('?').next().unwrap_or_default();
    path.split_once("$is_args").map_or(path, |(path, _)| path)
}

fn blocks_of<'a>(server: &'a [Directive], place: &str) -> Option<Vec<&'a [Directive]>> {
    if place.starts_with('@') {
        let is_it = |directive: &&Directive| directive.name == "location" && directive.argument(0) == place;
        return server.iter().find(is_it).map(|location| vec![location.inner()]);
    }
    let is_known = place.starts_with('/') && !place.contains('$');
    is_known.then(|| handler(server, place))
}

/// `limit_req zone=name [burst=n] [nodelay | delay=n]`
fn request<'a>(directive: &'a Directive, notes: &mut Notes) -> Option<Limit<'a>> {
    let number = |name: &str| directive.setting(name).map(|value| value.parse::<u64>());
    let (zone, burst, delay) = (directive.setting("zone"), number("burst"), number("delay"));
    let (Some(zone), Ok(burst), Ok(delay)) = (zone, burst.transpose(), delay.transpose()) else {
        notes.add(unread(directive));
        return None;
    };
    note_unknown(directive, 0, &["nodelay", "zone=", "burst=", "delay="], notes);
    let burst = burst.unwrap_or(0);
    let no_delay = directive.arguments.iter().any(|argument| argument == "nodelay");
    let at_once = if no_delay { burst } else { delay.unwrap_or(0).min(burst) };
    Some((directive, zone, Excess::Burst { at_once, delayed: burst.saturating_sub(at_once) }))
}

/// The note about a limit or a zone whose parameters are wrong, or are variables of a template.
fn unread(directive: &Directive) -> Note {
    // The key of a zone is a variable in any case.
    let settings = directive.arguments.iter().skip(usize::from(directive.name.ends_with("_zone")));
    if settings.into_iter().any(|setting| setting.contains('$')) {
        let why =
            "it has a variable of a template to which nginx and weir give no value, so it is not imported";
        return Note::new(directive, why, "Import what the template makes");
    }
    Note::new(directive, "is not what nginx documents", "Write the policy by hand")
}

/// True if the parameters of `limit_req` or `limit_conn` are read. If not, a note says so.
pub fn is_read(directive: &Directive) -> bool {
    let ignored = &mut Notes::default();
    match directive.name.as_str() {
        "limit_req" => request(directive, ignored).is_some(),
        _ => connection(directive, ignored).is_some(),
    }
}

/// Notes the first of the arguments from this one on which begins like none of those that nginx's own module has.
fn note_unknown(directive: &Directive, from: usize, known: &[&str], notes: &mut Notes) {
    let is_known = |argument: &str| {
        known.iter().any(|known| argument == *known || known.ends_with('=') && argument.starts_with(known))
    };
    if let Some(other) = directive.arguments.iter().skip(from).find(|argument| !is_known(argument)) {
        let why = format!("{other:?} is no parameter of nginx's own module, and is ignored");
        notes.add(Note::new(directive, why, "Compare the policy with what your module does"));
    }
}

/// `limit_conn zone number`
fn connection<'a>(directive: &'a Directive, notes: &mut Notes) -> Option<Limit<'a>> {
    match directive.argument(1).parse::<u64>() {
        Ok(limit) if limit > 0 => Some((directive, directive.argument(0), Excess::Connections(limit))),
        _ => {
            notes.add(unread(directive));
            None
        }
    }
}

/// The zones of the block `http`.
pub fn zones<'a>(http: &'a [Directive], notes: &mut Notes) -> Vec<Zone<'a>> {
    let (mut zones, mut taken) = (Vec::new(), Vec::new());
    for directive in http {
        let is_rate = match directive.name.as_str() {
            "limit_req_zone" => true,
            "limit_conn_zone" => false,
            _ => continue,
        };
        let name = directive.setting("zone").and_then(|zone| zone.split(':').next());
        // As nginx reads it, also without a unit.
        let rate = directive.setting("rate").and_then(|rate| {
            let minute = rate.strip_suffix("r/m").map(|count| (count, 60));
            let (count, seconds) = minute.unwrap_or((rate.strip_suffix("r/s").unwrap_or(rate), 1));
            Some((count.parse::<u64>().ok().filter(|count| *count > 0)?, seconds))
        });
        match name {
            Some(name) => {
                let is_read = rate.is_some() == is_rate;
                if is_read {
                    let known: &[&str] = if is_rate { &["zone=", "rate=", "sync"] } else { &["zone="] };
                    note_unknown(directive, 1, known, notes);
                } else {
                    notes.add(unread(directive));
                }
                let counters = unique(name_of(name), &taken);
                taken.push(counters.clone());
                zones.push(Zone { name, key: directive.argument(0), rate, counters, is_read, directive });
            }
            None => notes.add(unread(directive)),
        }
    }
    zones
}
