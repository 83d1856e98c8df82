// SPDX-License-Identifier: Apache-2.0
//! The page of `--html`, as text and in a browser.

use std::fs;

use serde_json::{Value, json};

use super::browser::Browser;
use super::{CONFIG, File, replay};

/// Two hours of requests: most from a few clients, with a name that a browser would obey, and a burst in the middle.
fn trace() -> String {
    let hostile = "</text><script>document.title='taken'</script><img src=x onerror=alert(1)>";
    let line = |n: u64| {
        let (at, client) = (n * 3_600, n * n % 5);
        let path = if n.is_multiple_of(3) { "/login" } else { "/" };
        let burst = if (900..1_000).contains(&n) { 900 * 3_600 } else { at };
        let key = if n.is_multiple_of(5) { hostile } else { "k" };
        format!(
            "{{\"t_ms\": {}, \"path\": \"{path}\", \"host\": \"h\", \"client\": \"192.0.2.{client}\", \
             \"duration_ms\": 9, \"headers\": {{\"x-key\": \"{key}\"}}}}\n",
            1_700_000_000_000 + burst
        )
    };
    (0..2_000).map(line).collect()
}

/// The page of one configuration, and that of two.
fn pages() -> [(&'static str, File); 2] {
    let first = CONFIG
        .replace(
            "\"name\": \"login\",",
            "\"name\": \"login\", \"ban\": {\"after\": 3, \"window\": \"10m\", \"duration\": \"5m\"},",
        )
        .replace(
            "\"name\": \"all\",",
            "\"name\": \"all\", \"deny\": [{\"client_address\": [\"192.0.2.0/32\"]}],",
        );
    let (config, trace) = (File::new("first.json", &first), File::new("<q>&quot;.jsonl", trace()));
    let other = first
        .replace("\"limit\": 2, \"window\"", "\"limit\": 4, \"window\"")
        .replace("burst\": 3", "burst\": 1");
    let other = File::new("second.json", other.replace("\"watched\"", "\"renamed\""));
    let (one, two) = (File::new("one.html", ""), File::new("two.html", ""));
    let (status, _, failure) = replay(&[config.path(), trace.path(), "--html", one.path()]);
    assert_eq!(status, 0, "{failure}");
    let (status, _, failure) =
        replay(&[config.path(), trace.path(), "--against", other.path(), "--html", two.path()]);
    assert_eq!(status, 1, "{failure}");
    [("one", one), ("two", two)]
}

#[test]
fn the_page_is_one_file() {
    for (name, page) in pages() {
        let text = fs::read_to_string(page.path()).expect("the page");
        assert!(text.len() < 2_000_000, "{name}: {}", text.len());
        for said in [
            "requests in 5m; peak 1",
            "banned: rejected by a ban",
            "denied unasked: without asking Redis",
            "Subjects whose bans rejected most",
            "demand 2,000, at most 1",
        ] {
            assert!(text.contains(said), "{name}: {said}");
        }
        for from_elsewhere in
            ["<script", " src=", " href=", "url(", "@import", "<img", "<link", "<iframe", "<q"]
        {
            assert!(!text.contains(from_elsewhere), "{name}: {from_elsewhere}");
        }
        let links: Vec<_> = text.match_indices("://").map(|(at, _)| &text[at - 5..at + 21]).collect();
        let names = links.iter().filter(|link| !link.starts_with("\"http://www.w3.org/2000/")).count();
        assert_eq!(names, 0, "{name}: {links:?}");
    }
}

/// Contrast as WCAG 2 has it.
pub const CONTRAST: &str = "
const light = colour => {
  const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [a, b] = [light(one), light(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
const page = [document.body, document.documentElement].map(each => getComputedStyle(each).backgroundColor)
  .find(colour => !colour.endsWith(', 0)')) ?? 'rgb(255, 255, 255)';
const seen = each => each.getClientRects().length > 0;
";

#[test]
fn a_browser_shows_it_in_light_and_dark_and_on_a_phone() {
    let Some(mut browser) = Browser::start() else { return crate::support::not_tested("no chromium here") };
    for (name, page) in pages() {
        let url = format!("file://{}", page.path());
        let mut backgrounds = Vec::new();
        let sizes = [1_280, 768, 390].map(|width| [("light", width), ("dark", width)]);
        for (scheme, width) in sizes.into_iter().flatten() {
            let row = format!("{name}, {scheme}, {width} px");
            browser.open(&url, width, scheme);
            assert_eq!(browser.requests(), [url.as_str()], "{row}: what it loads");
            assert_eq!(browser.complaints(), Vec::<&Value>::new(), "{row}");
            let mut ask = |what: &str| browser.value(&format!("(() => {{ {CONTRAST} return {what}; }})()"));
            assert_eq!(ask("document.scripts.length + document.images.length"), 0, "{row}");
            assert_eq!(ask("document.title.startsWith('Replay of ')"), true, "{row}");
            backgrounds.push(ask("page").as_str().expect("a colour").to_owned());
            // All requests, and three policies; of two configurations each, where the third has another name.
            let charts = if name == "one" { 4 } else { 8 };
            assert_eq!(
                ask("[...document.querySelectorAll('svg')].filter(seen).length"),
                charts,
                "{row}: charts"
            );
            let small = ask(
                "[...document.querySelectorAll('svg text')].filter(seen).map(text => parseFloat(getComputedStyle(text).fontSize) \
                 * text.ownerSVGElement.getBoundingClientRect().width / text.ownerSVGElement.viewBox.baseVal.width) \
                 .reduce((least, size) => Math.min(least, size))",
            );
            assert!(small.as_f64().expect("a size") >= 11.0, "{row}: letters of {small} px");
            let faint = ask(
                "[...document.querySelectorAll('h1, h2, h3, p, li, td, th, figcaption, code')].filter(seen) \
                 .map(each => contrast(getComputedStyle(each).color, page)) \
                 .concat([...document.querySelectorAll('svg text')].filter(seen).map(each => contrast(getComputedStyle(each).fill, page))) \
                 .reduce((least, each) => Math.min(least, each))",
            );
            assert!(faint.as_f64().expect("a contrast") >= 4.5, "{row}: letters of contrast {faint}");
            let faint = ask(
                "[...document.querySelectorAll('svg rect')].filter(seen).map(each => getComputedStyle(each).fill) \
                 .concat([...document.querySelectorAll('.bar')].map(each => getComputedStyle(each).backgroundColor)).map(of => contrast(of, page)) \
                 .reduce((least, each) => Math.min(least, each))",
            );
            assert!(faint.as_f64().expect("a contrast") >= 3.0, "{row}: bars of contrast {faint}");
            for (what, wanted) in [
                // The column that the page is opened for.
                (
                    "[...document.querySelectorAll('[data-label=rejected]')].length > 0 && [...document.querySelectorAll('[data-label=rejected]')].every(each => innerWidth > 720 || getComputedStyle(each, '::before').content.includes('rejected'))",
                    json!(true),
                ),
                (
                    "[...document.querySelectorAll('[data-label=rejected]')].filter(each => each.getBoundingClientRect().right > innerWidth).length",
                    json!(0),
                ),
                (
                    "[...document.querySelectorAll('td.number, svg text, .policies td')].map(each => each.textContent).filter(of => /[0-9]{4}/.test(of))",
                    json!([]),
                ),
                (
                    "new Set([...document.querySelectorAll('body *')].filter(seen).map(each => getComputedStyle(each).fontFamily)).size",
                    json!(1),
                ),
                (
                    "[...document.querySelectorAll('figure')].every(each => each.firstElementChild.matches('figcaption'))",
                    json!(true),
                ),
                (
                    "[...document.querySelectorAll('.warning, p.quiet')].map(each => each.textContent).filter(of => !/^[A-Z].*[.]$/.test(of))",
                    json!([]),
                ),
            ] {
                assert_eq!(ask(what), wanted, "{row}: {what}");
            }
            // Which file denies is in words; the bars have the colour of no outcome.
            let compared = ask(
                "[...document.querySelectorAll('h3')].map(each => each.textContent).filter(of => /^Denied by .*(first|second).json only$/.test(of)).length \
                 * document.querySelectorAll('.bar.changed').length",
            );
            assert_eq!(compared.as_u64() > Some(0), name == "two", "{row}: {compared}");
            let outcomes = ask(
                "[...document.querySelectorAll('.legend i')].map(each => getComputedStyle(each).backgroundColor).filter(of => \
                 [...document.querySelectorAll('.bar.changed')].some(bar => getComputedStyle(bar).backgroundColor === of))",
            );
            assert_eq!(outcomes, json!([]), "{row}: a file has the colour of an outcome");
            assert_eq!(browser.misprints(), Vec::<String>::new(), "{row}");
            browser.picture(&format!("replay-{name}-{width}-{scheme}"));
        }
        backgrounds.dedup();
        assert_eq!(backgrounds.len(), 6, "{name}: light and dark differ, {backgrounds:?}");
    }
}
