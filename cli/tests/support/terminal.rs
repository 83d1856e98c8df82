// SPDX-License-Identifier: Apache-2.0
//! The command in a terminal of its own.

use std::io::{Read as _, Write};
use std::sync::{Arc, Mutex};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::support::eventually;

/// A running command, and what its terminal shows.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    input: Box<dyn Write + Send>,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// Runs `weir` with these words on a terminal of so many rows and columns.
    pub fn run(words: &[&str], redis: &str, size: (u16, u16)) -> Self {
        Self::run_with(words, redis, size, &[])
    }

    /// The same, with more variables of the environment.
    pub fn run_with(
        words: &[&str],
        redis: &str,
        (rows, columns): (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let size = PtySize { rows, cols: columns, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_weir"));
        command.args(words);
        command.env("WEIR_REDIS", redis);
        for (name, value) in variables {
            command.env(name, value);
        }
        command.env("TERM", "xterm-256color");
        let child = pair.slave.spawn_command(command).expect("weir runs");
        drop(pair.slave);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (mut output, seen) = (pair.master.try_clone_reader().expect("its output"), Arc::clone(&screen));
        // It ends when the terminal closes.
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read) = output.read(&mut chunk)
                && read > 0
            {
                seen.lock().expect("the screen").process(&chunk[..read]);
            }
        });
        let input = pair.master.take_writer().expect("its input");
        Self { child, master: pair.master, input, screen }
    }

    /// The text on the screen, line by line.
    pub fn text(&self) -> String {
        self.screen.lock().expect("the screen").screen().contents()
    }

    /// True if it shows the screen that full-screen programs use.
    pub fn is_alternate(&self) -> bool {
        self.screen.lock().expect("the screen").screen().alternate_screen()
    }

    /// True if the cursor is hidden.
    pub fn hides_cursor(&self) -> bool {
        self.screen.lock().expect("the screen").screen().hide_cursor()
    }

    /// Waits until it shows this text.
    pub fn shows(&self, text: &str) {
        let what = format!("the terminal to show {text:?}");
        eventually(&what, || self.text().contains(text).then_some(()));
    }

    /// Types.
    pub fn types(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).and_then(|()| self.input.flush()).expect("it reads");
    }

    /// Changes the size.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().expect("the screen").screen_mut().set_size(rows, columns);
        self.master.resize(PtySize { rows, cols: columns, ..PtySize::default() }).expect("another size");
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.process_id().expect("a running process")
    }

    /// Waits until it ends: its exit status.
    pub fn ends(&mut self) -> u32 {
        let status = eventually("the command to end", || self.child.try_wait().expect("a status"));
        status.exit_code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
