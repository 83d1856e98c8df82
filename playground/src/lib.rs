// SPDX-License-Identifier: Apache-2.0
//! The bindings of the playground: [`weir_cli::lab`] for JavaScript. Exceptions carry the messages of the errors.

use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;
use weir_cli::lab;

type Answer = Result<String, JsError>;

fn said(error: String) -> JsError {
    JsError::new(&error)
}

/// Returns what `weir check --format json` prints.
#[wasm_bindgen]
pub fn check(name: &str, text: &str) -> Answer {
    lab::check((name, text)).map_err(said)
}

/// Returns what `weir replay --html` writes of a trace; compared with another configuration if `other` is one.
#[wasm_bindgen]
pub fn replay(name: &str, text: &str, other: Option<String>, trace: &str, log: &str) -> Answer {
    let other = other.as_deref().map(|text| ("compared.yaml", text));
    lab::replay((name, text), other, (trace, log)).map_err(said)
}

/// A configuration under which requests are decided one by one.
#[wasm_bindgen]
pub struct Lab(lab::Lab);

#[wasm_bindgen]
impl Lab {
    /// Nothing is counted.
    #[wasm_bindgen(constructor)]
    pub fn new(name: &str, text: &str) -> Result<Self, JsError> {
        lab::Lab::new((name, text)).map(Self).map_err(said)
    }

    /// Returns what `weir replay --json` prints of a request, a line of JSON.
    pub fn decide(&mut self, line: &str) -> Answer {
        self.0.decide(line).map_err(said)
    }

    /// Returns what `weir explain` prints of a request that is not counted; or its JSON.
    pub fn explain(&mut self, line: &str, json: bool) -> Answer {
        self.0.explain(line, json).map_err(said)
    }

    /// Returns what `weir replay` prints of the requests until now.
    pub fn report(&self) -> Answer {
        self.0.report().map_err(said)
    }
}
