// SPDX-License-Identifier: Apache-2.0
//! A headless Chromium, driven by its own protocol over a pipe: <https://chromedevtools.github.io/devtools-protocol>.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

/// The time-out of one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page. It ends with the value.
pub struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    next: u64,
    /// The events since the last page was opened.
    pub events: Vec<Value>,
    profile: PathBuf,
}

impl Browser {
    /// Starts the browser of this machine; `None` if there is none.
    pub fn start() -> Option<Self> {
        let program = std::env::var("WEIR_BROWSER").ok().or_else(|| {
            let names = ["chromium-headless-shell", "chromium"];
            let runs = |name: &&str| {
                Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
            };
            names.into_iter().find(runs).map(str::to_owned)
        })?;
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let profile = std::env::temp_dir().join(format!("weir-browser-{}-{number}", std::process::id()));
        // The browser reads commands from descriptor 3, and writes to 4. In a container it may have no sandbox of its own.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut process = Command::new("sh")
            .args([
                "-c",
                script,
                &program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
            ])
            .args(["--disable-background-networking", "--disable-dev-shm-usage", "--no-first-run"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a browser");
        let (input, output) = (process.stdin.take().expect("input"), process.stdout.take().expect("output"));
        let (send, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                if send.send(serde_json::from_slice(&message).expect("JSON")).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Self { process, input, messages, session: None, next: 0, events: Vec::new(), profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method, and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let text = [message.to_string().as_bytes(), b"\0"].concat();
        self.input.write_all(&text).expect("the browser reads");
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect(method);
            if message["id"] == self.next {
                assert_eq!(message["error"], Value::Null, "{method}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// Makes the window so many pixels wide.
    pub fn resize(&mut self, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Opens a page in a window of so many pixels, light or dark, and waits until it is loaded.
    pub fn open(&mut self, url: &str, width: u32, scheme: &str) {
        self.resize(width);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media);
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.messages.recv_timeout(PATIENCE).expect("the page is loaded");
            self.events.push(event);
        }
    }

    /// The value of an expression of JavaScript in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert_eq!(result["exceptionDetails"], Value::Null, "{expression}");
        result["result"]["value"].clone()
    }

    /// The mistakes in the page's layout: see `layout.js`.
    pub fn misprints(&mut self) -> Vec<String> {
        let found = self.value(include_str!("layout.js"));
        found
            .as_array()
            .expect("a list")
            .iter()
            .map(|of| of.as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// If `WEIR_PICTURES` names a folder, puts a picture of the page into it.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("WEIR_PICTURES") else { return };
        let size = self.value("[innerWidth, Math.min(document.documentElement.scrollHeight, 2400)]");
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let shot = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true, "clip": clip}));
        let shot = BASE64_STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("base64");
        std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), shot).expect("written");
    }

    /// Drags a file over the page to a place, and drops it there.
    pub fn drop_file(&mut self, path: &str, (x, y): (u32, u32)) {
        let data = json!({"items": [], "files": [path], "dragOperationsMask": 1});
        for kind in ["dragEnter", "dragOver", "drop"] {
            self.call("Input.dispatchDragEvent", json!({"type": kind, "x": x, "y": y, "data": data}));
        }
    }

    /// Presses a key, which has this text if it writes any.
    pub fn press(&mut self, key: &str, text: &str) {
        let codes = [
            ("Tab", 9),
            ("Enter", 13),
            (" ", 32),
            ("End", 35),
            ("Home", 36),
            ("ArrowRight", 39),
            ("ArrowDown", 40),
        ];
        let code = codes.iter().find(|(name, _)| *name == key).map_or(0, |(_, code)| *code);
        let mut event =
            json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = "keyUp".into();
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let end = std::time::Instant::now() + PATIENCE;
        while self.value(expression) != Value::Bool(true) {
            assert!(std::time::Instant::now() < end, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The URLs that the page asked the network for.
    pub fn requests(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The errors of the page: messages on the console, exceptions.
    pub fn complaints(&self) -> Vec<&Value> {
        let is_complaint = |event: &&Value| {
            ["Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"]
                .iter()
                .any(|method| event["method"] == *method)
        };
        self.events.iter().filter(is_complaint).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
