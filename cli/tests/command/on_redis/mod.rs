// SPDX-License-Identifier: Apache-2.0
//! The commands that speak to Redis: run as an operator runs them, on a real Redis, judged by what they print, by their exit status,
//! and by what the filter's scripts say afterwards.

mod bans;
mod connections;
mod hot;
mod inspect;
mod overrides;
mod pages;
mod prompts;
mod regions;
mod reset;

pub use crate::command::{command, run};
use crate::support::TempFolder;
use crate::support::redis::{self, Redis};
use weir::config::Config;
use weir::limit::{Ask, Outcome};
use weir::script::{Form, Plan};

/// Policies of all kinds.
pub const CONFIG: &str = r#"
store: {key_prefix: edge}
policies:
- name: login
  match: {path: {exact: /login}}
  subject: [{header: {name: x-user}}]
  limits: [{name: tries, algorithm: sliding_log, limit: 2, window: 1h}]
  ban: {after: 3, window: 10h, duration: 2h}
- name: api
  match: {path: {prefix: /api}}
  subject: [{header: {name: x-user}}]
  limits:
  - {name: hour, algorithm: sliding_log, limit: 10, window: 1h}
  - {name: flying, algorithm: concurrency, limit: 2, ttl: 1h}
  overrides: true
- name: plans
  match: {path: {exact: /plans}}
  subject: [{header: {name: x-user}}]
  tiers:
    by: {header: {name: x-plan}}
    default: free
    limits:
      free: [{name: day, algorithm: sliding_log, limit: 5, window: 24h}]
      gold: [{name: bucket, algorithm: token_bucket, capacity: 20, refill: 1, interval: 1h, overdraft: 5}]
  overrides: true
- name: dear
  match: {path: {exact: /dear}}
  cost: {constant: 7}
  subject: [{literal: everybody}]
  limits: [{name: bucket, algorithm: leaky_bucket, rate: 1/h, burst: 5}]
"#;

/// A Redis, a configuration, and the command.
pub struct World {
    pub redis: Redis,
    pub folder: TempFolder,
    config: Config,
}

impl World {
    /// `None`, if there is no redis-server on this machine.
    pub fn start() -> Option<Self> {
        Self::on(Redis::start()?)
    }

    pub fn on(redis: Redis) -> Option<Self> {
        let folder = TempFolder::new("cli");
        let world = Self { config: config(CONFIG), redis, folder };
        std::fs::write(world.folder.path().join("weir.yaml"), CONFIG).expect("a file");
        Some(world)
    }

    /// The path of the configuration.
    pub fn file(&self) -> String {
        self.folder.path().join("weir.yaml").display().to_string()
    }

    /// Runs `weir` with these words, of which `FILE` stands for the configuration: exit status, standard output, standard error.
    pub fn run(&self, words: &[&str]) -> (i32, String, String) {
        run(command(&words.iter().map(|word| word.replace("FILE", &self.file())).collect::<Vec<_>>())
            .env("WEIR_REDIS", self.url()))
    }

    /// The same with words separated by blanks. It succeeds: what it prints.
    pub fn prints(&self, words: &str) -> String {
        let words: Vec<_> = words.split(' ').collect();
        let (status, out, failure) = self.run(&words);
        assert_eq!((status, failure.as_str()), (0, ""), "{words:?}: {out}");
        out
    }

    /// The same. It fails: the exit status, and what it says.
    pub fn fails(&self, words: &str) -> (i32, String) {
        let words: Vec<_> = words.split(' ').collect();
        let (status, out, failure) = self.run(&words);
        assert_eq!(out, "", "{words:?}");
        (status, failure)
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.redis.address())
    }

    /// The limits of a policy's tier.
    pub fn plan(&self, policy: &str, tier: usize) -> &Plan {
        let policy = self.config.policies.iter().find(|of| of.name == policy).expect("the policy");
        &policy.tiers.tiers[tier].plan
    }

    /// So many requests of a subject, as the filter would ask about them.
    pub fn requests(&self, policy: &str, tier: usize, tag: &str, requests: u32) -> Outcome {
        self.ask(self.plan(policy, tier), tag, requests)
    }

    /// So many requests of a subject of another configuration's policy: how many are granted.
    pub fn requests_of(&self, text: &str, policy: &str, tag: &str, requests: u32) -> u32 {
        let other = config(text);
        let policy = other.policies.iter().find(|of| of.name == policy).expect("the policy");
        self.ask(&policy.tiers.tiers[0].plan, tag, requests).granted
    }

    fn ask(&self, plan: &Plan, tag: &str, requests: u32) -> Outcome {
        let mut command = Vec::new();
        plan.check(tag.as_bytes(), Ask::new(requests, 1), None, Form::Eval, &mut command);
        let reply = self.redis.connect().pipeline(&command, 1).remove(0);
        let (reply, _) = weir::resp::decode(&reply).expect("RESP").expect("a reply");
        plan.outcome(&reply).expect("an answer")
    }

    /// One command to Redis.
    pub fn says(&self, words: &[&str]) -> String {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        String::from_utf8_lossy(&self.redis.connect().call(&words)).into_owned()
    }
}

pub fn config(text: &str) -> Config {
    let json = weir_cli::envoys_reading("weir.yaml", text).expect("YAML");
    Config::parse(json.to_string().as_bytes()).expect("a configuration")
}

/// Whether this machine has a Redis; says so if it has not.
pub fn world() -> Option<World> {
    let world = World::start();
    if world.is_none() {
        eprintln!("no redis-server here: not tested");
    }
    world
}

/// Whether there is one to start.
pub fn has_redis() -> bool {
    redis::binary().is_some()
}
