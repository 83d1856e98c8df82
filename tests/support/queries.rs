// SPDX-License-Identifier: Apache-2.0
//! The queries of the dashboard and of the rules, and the metrics that they name.

/// One rule of a file of rules.
#[derive(Debug, Default)]
pub struct Rule {
    pub record: Option<String>,
    pub alert: Option<String>,
    pub expr: String,
    pub runbook: Option<String>,
}

impl Rule {
    pub fn name(&self) -> &str {
        self.alert.as_deref().or(self.record.as_deref()).expect("a name")
    }
}

/// The rules of a file: `expr` is on one line, or folded (`>-`).
pub fn rules(text: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut folded = false;
    for line in text.lines() {
        let item = line.trim_start();
        let deep = line.len() - item.len() > 4;
        if folded && deep {
            let rule = rules.last_mut().expect("a rule");
            rule.expr = format!("{} {item}", rule.expr).trim().to_owned();
            continue;
        }
        folded = false;
        let field = |name: &str| {
            item.trim_start_matches("- ").strip_prefix(name).map(|value| value.trim().to_owned())
        };
        if let Some(record) = field("record:") {
            rules.push(Rule { record: Some(record), ..Rule::default() });
        } else if let Some(alert) = field("alert:") {
            rules.push(Rule { alert: Some(alert), ..Rule::default() });
        } else if let Some(expr) = field("expr:") {
            folded = expr == ">-";
            rules.last_mut().expect("a rule").expr = if folded { String::new() } else { expr };
        } else if let Some(runbook) = field("runbook_url:") {
            rules.last_mut().expect("a rule").runbook = Some(runbook);
        }
    }
    assert!(rules.iter().all(|rule| !rule.expr.is_empty()), "{rules:?}");
    rules
}

/// The queries of a dashboard, each with the title of its panel.
pub fn dashboard(text: &str) -> Vec<(String, String)> {
    let dashboard: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((title.to_owned(), target["expr"].as_str().expect("a query").to_owned()));
        }
    }
    queries
}

/// A metric, and the labels that a query matches, each with its value.
pub type Selector = (String, Vec<(String, String)>);

/// The metrics of weir that a query names.
pub fn selectors(query: &str) -> Vec<Selector> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(at) = ["weir", "envoy_"].into_iter().filter_map(|name| rest.find(name)).min() {
        let begins = !rest[..at].ends_with(is_name);
        let name: String = rest[at..].chars().take_while(|c| is_name(*c)).collect();
        rest = &rest[at + name.len()..];
        if !begins {
            continue;
        }
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
        let matchers = inside.split(", ").filter(|matcher| !matcher.is_empty()).map(|matcher| {
            let (label, value) = matcher.split_once('=').expect("a matcher");
            (label.trim_end_matches('!').to_owned(), value.trim_matches(['~', '"']).to_owned())
        });
        found.push((name, matchers.collect()));
    }
    found
}
