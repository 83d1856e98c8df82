// SPDX-License-Identifier: Apache-2.0
//! Commands that use Redis, and their questions before they change it. Their output is in `transcripts/redis/`.

mod connections;
mod credentials;
mod prompts;
mod states;

pub use crate::command::{command, run};
use crate::support::TempFolder;
use crate::support::redis::{self, Redis};
use weir::config::Config;
use weir::limit::Ask;
use weir::policy::Check;
use weir::script::Form;

/// Policies of all kinds.
pub const CONFIG: &str = include_str!("weir.yaml");

/// A Redis, a configuration, and the command.
pub struct World {
    pub redis: Redis,
    pub folder: TempFolder,
}

impl World {
    /// `None`, if there is no redis-server on this machine.
    pub fn start() -> Option<Self> {
        Redis::start().map(Self::on)
    }

    pub fn on(redis: Redis) -> Self {
        let folder = TempFolder::new("cli");
        let world = Self { redis, folder };
        std::fs::write(world.folder.path().join("weir.yaml"), CONFIG).expect("a file");
        world
    }

    /// The path of the configuration.
    pub fn file(&self) -> String {
        self.folder.path().join("weir.yaml").display().to_string()
    }

    /// Runs `weir` with these words, with `FILE` replaced by the configuration: exit status, standard output, standard error.
    pub fn run(&self, words: &[&str]) -> (i32, String, String) {
        run(command(&words.iter().map(|word| word.replace("FILE", &self.file())).collect::<Vec<_>>())
            .env("WEIR_REDIS", self.url()))
    }

    /// The same with words separated by blanks. It fails: the exit status, and what it says.
    pub fn fails(&self, words: &str) -> (i32, String) {
        let words: Vec<_> = words.split(' ').collect();
        let (status, out, failure) = self.run(&words);
        assert_eq!(out, "", "{words:?}");
        (status, failure)
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.redis.address())
    }

    /// Sends this number of requests of a subject of the first policy, as the filter would ask about them.
    pub fn requests(&self, tag: &str, requests: u32) {
        let json = weir_cli::envoys_reading("weir.yaml", CONFIG).expect("YAML");
        let config = Config::parse(json.to_string().as_bytes()).expect("a configuration");
        let (check, mut command) = (Check::one(0, tag), Vec::new());
        let plan = config.plan(&check).expect("a plan");
        plan.check(&check.tag, Ask::new(requests, 1), None, Form::Eval, &mut command);
        self.redis.connect().pipeline(&command, 1);
    }

    /// One command to Redis.
    pub fn says(&self, words: &[&str]) -> String {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        String::from_utf8_lossy(&self.redis.connect().call(&words)).into_owned()
    }
}

/// The world, if this machine has a Redis; says so if it has not.
pub fn world() -> Option<World> {
    let world = World::start();
    if world.is_none() {
        crate::support::not_tested("no redis-server here");
    }
    world
}

/// True if there is one to start.
pub fn has_redis() -> bool {
    redis::binary().is_some()
}
