// SPDX-License-Identifier: Apache-2.0
//! The documentation as a site, in a browser: each page at three widths, light and dark.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::json;

use crate::docs::anchors;
use crate::replay::browser::Browser;
use crate::replay::page::CONTRAST;
use crate::support::root;

const WIDTHS: [u32; 3] = [1_280, 768, 390];

/// A page with pictures to keep.
const SHOWN: [&str; 8] = [
    "index",
    "docs/start",
    "docs/recipes",
    "docs/configuration",
    "docs/command",
    "docs/concepts",
    "docs/metrics",
    "docs/bench/index",
];

/// The files with this extension in a folder and its folders, sorted.
fn all_files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(all_files(&path, extension));
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Builds the site; `None`, with a word about it, where something for it is missing.
fn built() -> Option<&'static Path> {
    let missing =
        [(".tools/bin/mdbook", "scripts/setup site"), ("target/playground.html", "scripts/playground")];
    for (path, command) in missing {
        if !root().join(path).exists() {
            crate::support::not_tested(&format!("no {path} here, which {command} makes"));
            return None;
        }
    }
    // Once for all tests.
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let output = Command::new(root().join("scripts/site")).output().expect("scripts/site runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    Some(root())
}

#[test]
fn each_page_is_well_laid_out() {
    let Some(mut browser) = Browser::start() else { return crate::support::not_tested("no chromium here") };
    let Some(root) = built() else { return };
    let site = root.join("target/site");
    let mut wrong = Vec::new();
    let mut pages = all_files(&site, "html");
    pages.retain(|page| {
        !["toc.html", "404.html"].iter().any(|name| page.ends_with(name))
            && !page.starts_with(site.join("playground"))
    });
    assert!(pages.len() > 50, "{} pages", pages.len());
    for page in &pages {
        let name = page.strip_prefix(&site).expect("below").with_extension("").display().to_string();
        let is_shown = SHOWN.contains(&name.as_str());
        // A page is laid out as it is loaded: on a phone, without the side bar. The scheme changes colours only.
        let rows = WIDTHS.map(|width| (width, "light")).into_iter().chain([(WIDTHS[2], "dark")]);
        for (width, scheme) in rows.chain(is_shown.then_some((WIDTHS[0], "dark"))) {
            browser.open(&format!("file://{}", page.display()), width, scheme);
            let row = format!("{name}, {scheme}, {width} px");
            wrong.extend(browser.misprints().iter().map(|of| format!("{row}: {of}")));
            if is_shown {
                browser.picture(&format!("{}-{width}-{scheme}", name.replace('/', "-")));
            }
            let faint = browser.value(&format!(
                "(() => {{ {CONTRAST} return [...document.querySelectorAll('main h1, main h2, main p, main td, main li, main a, main code')].filter(seen) \
                 .map(each => contrast(getComputedStyle(each).color, page)).reduce((least, each) => Math.min(least, each), 21) }})()"
            ));
            if faint.as_f64() < Some(4.5) {
                wrong.push(format!("{row}: letters of contrast {faint}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}

/// The reference is one file, and the site makes a page of each part. What led to a place of the one page leads to a link to this place.
#[test]
fn the_reference_is_a_page_for_each_part() {
    let Some(root) = built() else { return };
    let docs = root.join("target/site/docs");
    let read = |path: &Path| fs::read_to_string(path).expect("a page");
    let first = read(&docs.join("configuration.html"));
    let (mut led, mut wrong) = (0, Vec::new());
    for anchor in anchors(&read(&root.join("docs/configuration.md"))) {
        let link = first.split_once(&format!("<a id=\"{anchor}\"></a><a href=\"")).map(|(_, link)| link);
        let target = link.and_then(|link| link.split('"').next()?.split_once('#'));
        let is_there = |(page, there): (&str, &str)| {
            there == anchor && read(&docs.join(page)).contains(&format!("id=\"{anchor}\""))
        };
        led += usize::from(target.is_some_and(is_there));
        // A heading of the first page itself.
        if !target.map_or_else(|| first.contains(&format!("id=\"{anchor}\"")), is_there) {
            wrong.push(anchor);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(led > 300, "{led} anchors");
    let parts = all_files(&docs, "html").into_iter().filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("configuration"))
    });
    let parts: Vec<_> = parts.collect();
    assert!((8..=14).contains(&parts.len()), "{} pages", parts.len());
    let Some(mut browser) = Browser::start() else { return crate::support::not_tested("no chromium here") };
    for part in parts {
        browser.open(&format!("file://{}", part.display()), 390, "light");
        let height = browser.value("document.documentElement.scrollHeight").as_u64().expect("a height");
        assert!(height < 20_000, "{}: {height} px high on a phone", part.display());
    }
}

/// Of each table of the runbook, what to do is on the screen of a phone, with the name of its column.
#[test]
fn what_to_do_is_on_the_screen() {
    let Some(mut browser) = Browser::start() else { return crate::support::not_tested("no chromium here") };
    let Some(root) = built() else { return };
    let pages = all_files(&root.join("target/site/docs/runbook"), "html");
    let mut cells = 0;
    for page in pages.iter().chain([&root.join("target/site/docs/troubleshooting.html")]) {
        browser.open(&format!("file://{}", page.display()), 390, "light");
        let beyond = browser.value(
            "[...document.querySelectorAll('main td:nth-child(3)')].filter(each => each.getBoundingClientRect().right > 390 \
             || !/what to do|fix/.test(getComputedStyle(each, '::before').content)).map(each => each.textContent)",
        );
        assert_eq!(beyond, json!([]), "{}", page.display());
        cells += browser
            .value("document.querySelectorAll('main td:nth-child(3)').length")
            .as_u64()
            .expect("a count");
    }
    assert!(cells > 40, "{cells} cells");
}

/// The playground of the site leads back to the site.
#[test]
fn the_playground_leads_back() {
    let Some(mut browser) = Browser::start() else { return crate::support::not_tested("no chromium here") };
    let Some(root) = built() else { return };
    let site = root.join("target/site");
    browser.open(&format!("file://{}/playground/page/index.html", site.display()), 390, "light");
    browser.until("document.documentElement.dataset.ready !== undefined");
    let home = browser.value("document.getElementById('home').href");
    assert_eq!(home, format!("file://{}/index.html", site.display()));
}

/// The pages of the runbook are folded away until one of them is open.
#[test]
fn the_side_bar_folds() {
    let Some(mut browser) = Browser::start() else { return crate::support::not_tested("no chromium here") };
    let Some(root) = built() else { return };
    for (page, shown) in [("docs/start.html", false), ("docs/runbook/WeirDenies.html", true)] {
        browser.open(&format!("file://{}/target/site/{page}", root.display()), 1_280, "light");
        browser.until("document.querySelectorAll('.chapter a').length > 30");
        let alerts = "[...document.querySelectorAll('.chapter a')].filter(of => of.href.includes('runbook/Weir')).filter(of => of.checkVisibility()).length";
        let count = browser.value(alerts).as_u64().expect("a count");
        assert_eq!(count > 10, shown, "{page}: {count} alerts");
    }
}

/// The pictures of the pages, each by itself: a browser shows no inside of a picture that is in a page.
#[test]
fn no_label_of_a_picture_is_cut() {
    let Some(mut browser) = Browser::start() else { return crate::support::not_tested("no chromium here") };
    let pictures = all_files(&root().join("docs"), "svg");
    assert!(pictures.len() > 12, "{} pictures", pictures.len());
    let mut wrong = Vec::new();
    for picture in &pictures {
        let text = fs::read_to_string(picture).expect("a picture");
        let name = picture.strip_prefix(root()).expect("below").display().to_string();
        let page = std::env::temp_dir().join(format!("weir-picture-{}.html", std::process::id()));
        fs::write(&page, format!("<!doctype html><meta charset=utf-8><body>{text}")).expect("a page");
        for scheme in ["light", "dark"] {
            browser.open(&format!("file://{}", page.display()), 1_280, scheme);
            wrong.extend(browser.misprints().iter().map(|of| format!("{name}, {scheme}: {of}")));
            // On a phone of 390 px, a picture is 350 px wide.
            let letters = browser.value(
                "[...document.querySelectorAll('svg text')].map(each => parseFloat(getComputedStyle(each).fontSize)) \
                 .reduce((least, each) => Math.min(least, each)) * Math.min(1, 350 / document.querySelector('svg').viewBox.baseVal.width)",
            );
            if letters.as_f64() < Some(10.0) {
                wrong.push(format!("{name}, {scheme}: letters of {letters} px on a phone"));
            }
            browser.picture(&format!("{}-{scheme}", name.replace('/', "-")));
        }
        let _ = fs::remove_file(page);
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// It finds what it is there to find.
#[test]
fn misprints_are_found() {
    let Some(mut browser) = Browser::start() else { return crate::support::not_tested("no chromium here") };
    let page = std::env::temp_dir().join(format!("weir-misprints-{}.html", std::process::id()));
    for (body, found) in [
        ("<p>short</p>", 0),
        (
            "<pre>a long line of code that is wider than the window, because nothing breaks it and nothing scrolls</pre>",
            1,
        ),
        (
            "<pre style='overflow:auto'>a long line of code that is wider than the window, because nothing breaks it and nothing scrolls</pre>",
            0,
        ),
        (
            "<p style='overflow:hidden;white-space:nowrap;width:99px'>a text that is cut off in its middle</p>",
            1,
        ),
        (
            "<table style='table-layout:fixed;width:60px'><tr><td><code>broken between two words</code></table>",
            1,
        ),
        // A wide table scrolls, but what a reader looks for is beyond the edge.
        (
            "<div style='overflow:auto'><table><tr><td style='min-width:400px'>symptom<td>give it a faster CPU</table></div>",
            1,
        ),
        (
            "<div style='overflow:auto'><table><tr><td style='min-width:400px'>symptom<td>1234 µs</table></div>",
            0,
        ),
        ("<div style='overflow:auto'><img width=600 height=50></div>", 1),
        (
            "<pre style='overflow:auto'><span class=hljs-comment># a comment of a recipe that nothing wraps, so that it goes on behind the edge</span></pre>",
            1,
        ),
        ("<svg width=50 height=20><text x=0 y=15>as long as no chart</text></svg>", 1),
        ("<svg width=90 height=20><text x=0 y=15>one</text><text x=5 y=15>two</text></svg>", 1),
    ] {
        fs::write(&page, format!("<!doctype html><meta name=viewport content='width=device-width'>{body}"))
            .expect("a page");
        browser.open(&format!("file://{}", page.display()), 390, "light");
        let said = browser.misprints();
        assert_eq!(said.len(), found, "{body}: {said:?}");
    }
    let _ = fs::remove_file(page);
}
