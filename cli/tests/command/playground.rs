// SPDX-License-Identifier: Apache-2.0
//! The playground says what the command says: its functions, and its page in a browser.

use std::fs;

use serde_json::{Value, json};
use weir_cli::lab::{self, Lab};

use crate::command::{File, weir};
use crate::replay::browser::Browser;
use crate::replay::page::CONTRAST;
use crate::support::redis::Redis;

/// The recipes, each with its name.
fn recipes() -> Vec<(String, String)> {
    let folder = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples")).expect("examples");
    let paths = folder.map(|entry| entry.expect("a file").path());
    let of = paths.filter(|path| path.extension().is_some_and(|of| of == "yaml"));
    let mut all: Vec<_> = of
        .map(|path| {
            let name = path.file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
            (name, fs::read_to_string(path).expect("a recipe"))
        })
        .collect();
    let page = include_str!("../../../docs/recipes.md").split("<!-- preset: ").skip(1);
    all.extend(page.filter_map(|rest| {
        let (name, rest) = rest.split_once(" -->\n```yaml weir\n")?;
        Some((name.to_owned(), rest.split_once("\n```\n")?.0.to_owned()))
    }));
    all.sort();
    all
}

/// Requests of all kinds that the recipes are for.
fn requests() -> Vec<String> {
    let paths =
        ["/", "/login", "/v1/chat/completions", "/mcp", "/acme/reports", "/search", "/orders", "/graphql"];
    let line = |n: usize| {
        json!({
            "t_ms": 1_700_000_000_000_u64 + 40 * n as u64, "method": if n.is_multiple_of(4) { "GET" } else { "POST" },
            "path": paths[n % paths.len()], "host": "h", "client": format!("203.0.113.{}", n % 2), "duration_ms": 500,
            "headers": {"authorization": "Bearer k", "x-customer": "c", "x-team": "t", "x-user": "u", "x-plan": "free",
                "x-session-id": "s", "mcp-session-id": "m", "content-type": "application/json"},
            "body": {"user": "ann", "model": "gpt-5", "method": "tools/call", "params": {"name": "web_search"}},
        })
        .to_string()
    };
    (0..120).map(line).collect()
}

fn now() -> u64 {
    u64::try_from(std::time::UNIX_EPOCH.elapsed().expect("a time").as_millis()).expect("a time")
}

/// Without how long the windows of the header `ratelimit` still are, which the command learns a moment later.
fn without_times(text: &str) -> String {
    let parts: Vec<_> =
        text.split(";t=").map(|part| part.trim_start_matches(|of: char| of.is_ascii_digit())).collect();
    parts.join(";t=")
}

#[test]
fn its_functions_say_what_the_command_says() {
    let redis = Redis::start();
    let requests = requests();
    let mut denied = 0;
    for (name, text) in recipes() {
        let (config, trace) = (File::new("c.yaml", &text), File::new("t.jsonl", requests.join("\n") + "\n"));
        let of = (config.path(), text.as_str());
        let (_, printed, _) = weir(&["check", "--format", "json", config.path()]);
        assert_eq!(lab::check(of).expect("findings"), printed, "{name}");

        let mut lab = Lab::new(of).expect("a configuration");
        let (_, printed, _) = weir(&["replay", "--json", config.path(), trace.path()]);
        let mut decisions = String::new();
        for line in &requests {
            decisions.push_str(&(lab.decide(line).expect("a decision") + "\n"));
        }
        assert_eq!(decisions, printed, "{name}");
        denied += decisions.matches("\"allowed\":false").count();
        let (_, printed, _) = weir(&["replay", config.path(), trace.path()]);
        assert_eq!(lab.report().expect("a report"), printed, "{name}");

        let (page, other) = (File::new("p.html", ""), File::new("compared.yaml", &text));
        let both = ["--against", other.path(), "--html", page.path()];
        weir(&[&["replay", config.path(), trace.path()][..], &both].concat());
        let shown = |path: &str| path.rsplit('/').next().expect("a name").to_owned();
        let log = requests.join("\n") + "\n";
        let [first, second, third] = [config.path(), other.path(), trace.path()].map(shown);
        let html = lab::replay((&first, &text), Some((&second, &text)), (&third, &log)).expect("a page");
        assert_eq!(html, fs::read_to_string(page.path()).expect("the page"), "{name}");

        // A Redis that has counted nothing of it.
        let Some(redis) = &redis else { continue };
        let url = format!("redis://{}", redis.address());
        for line in requests.iter().take(7) {
            let of: Value = serde_json::from_str(line).expect("JSON");
            let word = |name: &str| of[name].as_str().unwrap_or_default().to_owned();
            let mut flags =
                vec![String::from("explain"), config.path().to_owned(), String::from("--redis"), url.clone()];
            for name in ["method", "path", "host", "client"] {
                flags.extend([format!("--{name}"), word(name)]);
            }
            flags.extend([String::from("--body"), of["body"].to_string()]);
            for (name, value) in of["headers"].as_object().expect("headers") {
                flags.extend([String::from("-H"), format!("{name}: {}", value.as_str().unwrap_or_default())]);
            }
            let flags: Vec<_> = flags.iter().map(String::as_str).collect();
            let (_, printed, failure) = weir(&flags);
            let mut of = of.clone();
            of["t_ms"] = now().into();
            let mut lab = Lab::new((config.path(), &text)).expect("a configuration");
            let said = lab.explain(&of.to_string(), false).expect("words");
            assert_eq!(without_times(&said), without_times(&printed), "{name}: {failure}");
        }
    }
    assert!(denied > 100, "{denied}");
    let wrong = File::new("w.yaml", "policies: [{name: p, limits: [{name: l, algorithm: x}]}]");
    let text = fs::read_to_string(wrong.path()).expect("it");
    let (_, _, said) = weir(&["replay", wrong.path(), wrong.path()]);
    let error = Lab::new((wrong.path(), &text)).err().expect("an error");
    assert_eq!(format!("weir: {error}\n"), said);
}

/// The built page; `None` where `scripts/playground` has not built it.
fn page() -> Option<String> {
    let path = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/playground.html")).ok()?;
    Some(format!("file://{}", path.display()))
}

/// A browser with the page in it; `None`, with a word about it, where one of them is missing.
fn opened(width: u32, scheme: &str) -> Option<(Browser, String)> {
    let Some(url) = page() else {
        crate::support::not_tested("no target/playground.html here");
        return None;
    };
    let Some(mut browser) = Browser::start() else {
        crate::support::not_tested("no chromium here");
        return None;
    };
    browser.open(&url, width, scheme);
    browser.until(READY);
    Some((browser, url))
}

const READY: &str = "document.documentElement.dataset.ready !== undefined";

/// Presses Tab until this has the focus.
fn tab_to(browser: &mut Browser, selector: &str) {
    for _ in 0..80 {
        if browser.value(&format!("document.activeElement.matches({selector:?})")) == true {
            return;
        }
        browser.press("Tab", "");
    }
    panic!("Tab does not reach {selector}");
}

#[test]
fn a_browser_shows_it_in_light_and_dark_and_on_a_phone() {
    let Some((mut browser, url)) = opened(1_280, "light") else { return };
    // Time of this machine's processor, because other tests run beside it.
    browser.call("Performance.enable", json!({"timeDomain": "threadTicks"}));
    browser.open(&url, 1_280, "light");
    browser.until(READY);
    let metrics = browser.call("Performance.getMetrics", json!({}))["metrics"].clone();
    let took = metrics.as_array().expect("metrics").iter().find(|of| of["name"] == "TaskDuration");
    let took = took.and_then(|of| of["value"].as_f64()).expect("seconds");
    eprintln!("ready after {took:.2} s of the processor");
    assert!(took < 1.0, "ready after {took} s");
    let sizes = [1_280, 1_100, 768, 390].map(|width| [("light", width), ("dark", width)]);
    for (scheme, width) in sizes.into_iter().flatten() {
        let row = format!("{scheme}, {width} px");
        browser.open(&url, width, scheme);
        browser.until(READY);
        browser.value("document.getElementById('compare').click()");
        assert_eq!(browser.requests(), [url.as_str()], "{row}: what it loads");
        assert_eq!(browser.complaints(), Vec::<&Value>::new(), "{row}");
        let mut ask = |what: &str| browser.value(&format!("(() => {{ {CONTRAST} return {what}; }})()"));
        assert!(ask("document.querySelectorAll('svg').length").as_u64() >= Some(8), "{row}: charts");
        let faint = ask(
            "[...document.querySelectorAll('h1, h2, h3, p, td, th, figcaption, label, pre.response, button, a, .marks, .marks span')].filter(seen) \
             .map(each => contrast(getComputedStyle(each).color, page)) \
             .concat([...document.querySelectorAll('svg text, svg rect')].map(each => contrast(getComputedStyle(each).fill, page)) \
             .map(of => of * 1.5)).reduce((least, each) => Math.min(least, each))",
        );
        assert!(faint.as_f64() >= Some(4.5), "{row}: contrast {faint}");
        let unnamed = ask(
            "[...document.querySelectorAll('input, select, textarea')].filter(seen).filter(each => !each.labels.length) \
             .map(each => each.outerHTML)",
        );
        assert_eq!(unnamed, json!([]), "{row}: fields without a label");
        let place = "(id => document.querySelector(`[aria-labelledby=${id}]`).getBoundingClientRect())";
        let (beside, below) = (
            format!(
                "{place}('h-result').left >= {place}('h-config').right && {place}('h-result').top <= {place}('h-config').top"
            ),
            format!("{place}('h-result').top >= {place}('h-traffic').bottom"),
        );
        for (what, wanted) in [
            (beside.as_str(), json!(width >= 1_100)),
            (below.as_str(), json!(width < 1_100)),
            ("document.getElementById('home').href.endsWith('README.md')", json!(true)),
            // The field above the colours shows its caret only.
            (
                "[...document.querySelectorAll('.stack')].every(each => each.querySelector('.marks').textContent === each.querySelector('textarea').value + '\\n\\n')",
                json!(true),
            ),
            (
                "[...document.querySelectorAll('.stack textarea')].map(each => getComputedStyle(each).color)",
                json!(["rgba(0, 0, 0, 0)", "rgba(0, 0, 0, 0)"]),
            ),
            (
                "['comment', 'key', 'number'].filter(of => !document.querySelector(`.marks .${of}`))",
                json!([]),
            ),
            (
                "new Set(['.marks', '.comment', '.key', '.number'].map(of => getComputedStyle(document.querySelector(of)).color)).size",
                json!(4),
            ),
            (
                "[...document.querySelectorAll('p:not(.legend), .findings button, pre.response, figcaption')].filter(seen).map(each => each.innerText) \
              .filter(of => !/^(← )?[A-Z0-9]/.test(of) && !/^(weir|compared).yaml|^each-/.test(of))",
                json!([]),
            ),
            (
                "[...document.querySelectorAll('figure')].every(each => each.firstElementChild.matches('figcaption'))",
                json!(true),
            ),
            ("document.getElementById('summary').textContent.match(/[0-9]{4}/)", Value::Null),
        ] {
            assert_eq!(ask(what), wanted, "{row}: {what}");
        }
        assert_eq!(browser.misprints(), Vec::<String>::new(), "{row}");
        browser.picture(&format!("playground-{width}-{scheme}"));
    }
}

/// With the keyboard alone: each recipe, and what it says is what the command says of the same requests.
#[test]
fn each_recipe_is_as_the_command_says() {
    let Some((mut browser, _)) = opened(1_280, "light") else { return };
    tab_to(&mut browser, "#preset");
    browser.press("Home", "");
    let names = browser.value("[...document.getElementById('preset').options].map(of => of.value)");
    let recipes = recipes();
    assert_eq!(names, json!(recipes.iter().map(|(name, _)| name).collect::<Vec<_>>()));
    browser.value("URL.createObjectURL = blob => { window.saved = blob; return 'data:,'; }; null");
    browser.until("document.getElementById('text-0').value.includes('session-requests')");
    for (name, _) in &recipes {
        assert_eq!(browser.value("document.getElementById('preset').value"), *name);
        browser
            .value("HTMLAnchorElement.prototype.click = () => {}; document.getElementById('trace').click()");
        let trace = browser.value("saved.text()");
        let trace = File::new("trace.jsonl", trace.as_str().expect("a trace"));
        let config = browser.value("document.getElementById('text-0').value");
        let config = File::new("weir.yaml", config.as_str().expect("a configuration"));
        let (status, printed, failure) = weir(&["replay", config.path(), trace.path()]);
        assert_eq!(status, 0, "{name}: {failure}");
        assert_eq!(browser.value("document.querySelector('pre.report').textContent"), printed, "{name}");
        let summary = browser.value("document.getElementById('summary').textContent");
        let summary = summary.as_str().expect("a summary");
        assert!(["denied", "held", "shadow"].iter().any(|of| summary.contains(of)), "{name}: {summary}");
        // The legend has what happened, and no more.
        let happened = summary.replace("would be denied (shadow)", "shadow");
        let kinds: Vec<_> =
            ["admitted", "held", "denied", "shadow"].into_iter().filter(|of| happened.contains(of)).collect();
        let legend = browser.value(
            "[...document.querySelectorAll('.legend span')].filter(each => each.checkVisibility()).map(each => each.firstElementChild.className)",
        );
        assert_eq!(legend, json!(kinds), "{name}: {summary}");
        assert_eq!(
            browser.value("document.querySelectorAll('.wrong, .findings .error').length"),
            0,
            "{name}"
        );
        let is_active = browser.value("document.activeElement.id === 'preset'");
        assert_eq!(is_active, true, "{name}: the focus stays");
        browser.value("window.before = document.getElementById('text-0').value; null");
        browser.press("ArrowDown", "");
        if recipes.last().is_some_and(|(last, _)| last != name) {
            browser.until("document.getElementById('text-0').value !== before");
        }
    }
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}

#[test]
fn a_keyboard_is_enough() {
    let Some((mut browser, url)) = opened(1_280, "light") else { return };
    // Each field is reached in the order of the page, and none holds the focus.
    let fields = "'select, input:not([type=file]), textarea, button, summary, pre[tabindex]'";
    browser.value(&format!(
        "window.wanted = [...document.querySelectorAll({fields})].filter(each => each.checkVisibility()); null"
    ));
    let count = browser.value("wanted.length").as_u64().expect("a count");
    let mut found = 0;
    for _ in 0..count * 2 {
        browser.press("Tab", "");
        if browser.value(&format!("document.activeElement === wanted[{found}]")) == true {
            found += 1;
        }
    }
    let missed = browser.value(&format!("wanted[{found}]?.outerHTML ?? 'none'"));
    assert_eq!(found, count, "the first that Tab does not reach in its turn: {missed}");

    // A mistake has a line of its own, which leads to it.
    browser.open("about:blank", 1_280, "light");
    browser.open(&url, 1_280, "light");
    browser.until(READY);
    tab_to(&mut browser, "#text-0");
    browser.press("Home", "");
    browser.call("Input.insertText", json!({"text": "x: 1\n"}));
    browser.until("document.querySelectorAll('.findings .error').length === 1 && document.querySelector('.marks u.error') !== null");
    let times = "document.body.innerText.split('unknown field').length - 1";
    assert_eq!(browser.value(times), 1, "the error is said once");
    assert_eq!(
        browser
            .value("document.getElementById('results').innerText + document.getElementById('choice').hidden"),
        "true"
    );
    let summary = browser.value("document.getElementById('summary').textContent");
    assert_eq!(summary, "The configuration has an error, which is listed below its editor.");
    tab_to(&mut browser, ".findings .error");
    browser.press("Enter", "\r");
    assert_eq!(browser.value("document.activeElement.id"), "text-0");
    assert_eq!(browser.value("getSelection().toString()"), "x");
    browser.call("Input.insertText", json!({"text": "#"}));
    browser.until("document.querySelectorAll('.findings .error').length === 0");

    // Another response, with its reason.
    tab_to(&mut browser, "#request");
    let response = "document.querySelector('pre.response').textContent";
    assert!(browser.value(response).as_str().is_some_and(|of| of.starts_with("HTTP status 429")), "denied");
    browser.press("Home", "");
    browser.until("document.querySelector('pre.response').textContent.startsWith('The upstream')");

    // A second configuration, and a link to all of it.
    let back = "document.activeElement.blur(); document.getElementById('preset').focus(); null";
    browser.value(back);
    tab_to(&mut browser, "#compare");
    browser.press(" ", " ");
    browser.until("document.querySelectorAll('#results > div').length === 2");
    tab_to(&mut browser, "#share");
    browser.press("Enter", "\r");
    browser.until("document.getElementById('link').value.includes('#')");
    let state = "JSON.stringify([...document.querySelectorAll('textarea, #traffic input, .report')].map(each => each.value ?? each.textContent))";
    let (link, before) = (browser.value("document.getElementById('link').value"), browser.value(state));
    browser.open("about:blank", 1_280, "light");
    browser.open(link.as_str().expect("a link"), 1_280, "light");
    browser.until(READY);
    assert_eq!(browser.value(state), before);
    let recipe = "document.getElementById('preset').selectedOptions[0].textContent";
    assert_eq!(browser.value(recipe), "own");
    // Each recipe can be chosen again, also the one that was there before.
    tab_to(&mut browser, "#preset");
    browser.press("ArrowDown", "");
    browser.until("document.getElementById('own') === null");
    assert_eq!(browser.value(recipe), "agents");
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}

/// The command's page about a log, under the configuration in the playground.
fn written(browser: &mut Browser, log: &File) -> String {
    let (config, page) = (browser.value("document.getElementById('text-0').value"), File::new("p.html", ""));
    let config = File::new("weir.yaml", config.as_str().expect("a configuration"));
    let (_, _, said) = weir(&["replay", config.path(), log.path(), "--html", page.path()]);
    let written = fs::read_to_string(page.path()).expect(&said);
    let name = config.path().rsplit('/').next().expect("a name");
    written.replace(name, "weir.yaml")
}

/// Chosen with the dialogue, and dropped: beside the fields, and on the text of the configuration, which must not take it in.
#[test]
fn a_log_is_replayed_as_the_command_does() {
    let Some((mut browser, _)) = opened(1_280, "light") else { return };
    let line = "203.0.113.7 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n";
    let shown = "document.querySelector('iframe')?.srcdoc ?? ''";
    let configuration = browser.value("document.getElementById('text-0').value");
    for (number, place) in [None, Some("#drop"), Some("#text-0")].into_iter().enumerate() {
        let log = File::new("access.log", line.repeat(60 + number));
        match place {
            None => {
                let root = browser.call("DOM.getDocument", json!({}))["root"]["nodeId"].clone();
                let input = browser.call("DOM.querySelector", json!({"nodeId": root, "selector": "#log"}));
                browser
                    .call("DOM.setFileInputFiles", json!({"nodeId": input["nodeId"], "files": [log.path()]}));
            }
            Some(selector) => {
                let at = browser.value(&format!(
                    "(() => {{ const each = document.querySelector({selector:?}); each.scrollIntoView({{ block: 'center' }}); \
                     const of = each.getBoundingClientRect(); return [Math.round(of.left + 20), Math.round(of.top + 10)]; }})()"
                ));
                let at = |place: usize| u32::try_from(at[place].as_u64().expect("pixels")).expect("pixels");
                browser.drop_file(log.path(), (at(0), at(1)));
            }
        }
        browser.until("document.querySelector('iframe') !== null");
        assert_eq!(browser.value(shown), written(&mut browser, &log), "{place:?}");
        let rest = "[...document.querySelectorAll('#results, #choice, #traffic, svg')].filter(of => of.checkVisibility()).length";
        assert_eq!(browser.value(rest), 0, "{place:?}: what is shown of the described traffic");
        assert_eq!(browser.value("document.body.classList.contains('dropping')"), false, "{place:?}");
        assert_eq!(browser.value("document.getElementById('text-0').value"), configuration, "{place:?}");
        browser.value("document.getElementById('forget').click()");
        let left =
            "document.querySelectorAll('iframe').length + Number(document.getElementById('results').hidden)";
        assert_eq!(browser.value(left), 0, "{place:?}");
        assert_ne!(browser.value(rest), 0, "{place:?}: the described traffic is there again");
    }
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}
