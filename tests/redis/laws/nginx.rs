// SPDX-License-Identifier: Apache-2.0
//! The benchmark compares weir with nginx and Lua, and says that both tell clients the same. Here the Lua of the benchmark
//! runs in Redis, which is a Lua 5.1 as nginx's is, in place of nginx; time and the bucket are given to it.

use crate::redis::Redis;
use weir::config::Config;
use weir::decision::{CheckAnswer, Decision};
use weir::limit::{Ask, Subject};
use weir::policy::{self, Check};
use weir::resp::{self, Reply};
use weir::response::{Verdict, verdict};
use weir::time::Micros;

/// The environment of the file. ARGV: capacity, refill, and the microsecond of each request. The answer: a line for each.
const NGINX: &str = r#"
local now, kept, headers, status
local redis_at = { call = function(command, _, value)
  if command == 'TIME' then return { math.floor(now / 1000000), now % 1000000 } end
  if command == 'GET' then return kept or false end
  kept = value
end }
local socket = { settimeout = function() end, setkeepalive = function() end, connect = function() return true end }
function socket.send(self, data)
  self.source = data:match('^%*6\r\n%$4\r\nEVAL\r\n%$%d+\r\n(.*)\r\n%$1\r\n1\r\n%$7\r\nnginx:u')
  return true
end
function socket.receive(self)
  if not self.source then return '-NOSCRIPT' end
  local run = assert(loadstring('local redis, KEYS, ARGV = ...\n' .. self.source))
  return (':%d'):format(run(redis_at, { 'nginx:u' }, { ARGV[1], ARGV[2] }))
end
local ngx = {
  sha1_bin = function() return ('x'):rep(20) end,
  socket = { tcp = function() return socket end },
  var = { http_x_user = 'u' },
  log = function(_, ...) error(table.concat({ ... })) end,
  exit = function(code) status = code end,
}
local limiter = (function()
"#;

const REQUESTS: &str = r#"
end)()
local told = {}
for index = 3, #ARGV do
  now, headers, status = tonumber(ARGV[index]), {}, 200
  ngx.header = headers
  limiter.check(6379, tonumber(ARGV[1]), tonumber(ARGV[2]))
  told[#told + 1] = ('%d %s %s %s'):format(
    status, headers['RateLimit-Policy'], headers['RateLimit'], tostring(headers['Retry-After'])
  )
end
return told
"#;

fn nginx_tells(redis: &Redis, capacity: u64, refill: u64, times: &[u64]) -> Vec<String> {
    let script = [NGINX, include_str!("../../../benches/edge/token_bucket.lua"), REQUESTS].concat();
    let numbers =
        [capacity, refill].into_iter().chain(times.iter().copied()).map(|number| number.to_string());
    let words: Vec<String> = ["EVAL".into(), script, "0".into()].into_iter().chain(numbers).collect();
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    let reply = redis.connect().call(&words);
    let Some((Reply::Array(Some(lines)), _)) = resp::decode(&reply).expect("RESP") else {
        panic!("{}", reply.escape_ascii())
    };
    let line = |line: &Reply<'_>| match line {
        Reply::Bulk(Some(text)) => String::from_utf8(text.to_vec()).expect("UTF-8"),
        other => panic!("{other:?}"),
    };
    lines.iter().map(line).collect()
}

fn weir_tells(capacity: u64, refill: u64, times: &[u64]) -> Vec<String> {
    let config = format!(
        r#"{{"policies": [{{"name": "p", "limits": [{{"name": "tokens", "algorithm": "token_bucket",
            "capacity": {capacity}, "refill": {refill}, "interval": "1s"}}]}}]}}"#
    );
    let config = Config::parse(config.as_bytes()).expect("a configuration");
    let check = Check::one(0, b"{p|u}");
    let plan = config.plan(&check).expect("a plan");
    let (limits, ask) = (plan.limits(), Ask::new(1, 1));
    let mut subject = Subject::default();
    let tell = |time: &u64| {
        let outcome = subject.check(limits, None, Micros(*time), ask);
        let answer = CheckAnswer::Store(Decision::new(&outcome, limits, 0, ask));
        let (status, headers) =
            match verdict(&policy::answers(&config.policies, [(&check, &answer)].into_iter())) {
                Verdict::Admit(admission) => (200, admission.headers),
                Verdict::Reject(rejection) => (rejection.status, rejection.headers),
            };
        let header = |name: &str| {
            let found = headers.iter().find(|header| header.name == name);
            found.map_or("nil", |header| header.value.as_str())
        };
        format!("{status} {} {} {}", header("ratelimit-policy"), header("ratelimit"), header("retry-after"))
    };
    times.iter().map(tell).collect()
}

#[test]
fn nginx_in_the_benchmark_tells_clients_the_same_as_weir() {
    let Some(redis) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    const START: u64 = 1_700_000_000_000_000;
    for (capacity, refill) in [(1_000_000, 1_000_000), (1, 1), (5, 1), (10, 4), (3, 5), (100, 2)] {
        // Bursts that empty it, pauses in which less than one, one, or many come back.
        let pauses = [0, 0, 0, 0, 0, 0, 0, 130_000, 999_999, 1, 0, 1_000_000, 2_500_001, 0, 0, 70_000_000, 0];
        let times: Vec<u64> = pauses
            .iter()
            .scan(START, |at, pause| {
                *at += pause;
                Some(*at)
            })
            .collect();
        let (nginx, weir) =
            (nginx_tells(&redis, capacity, refill, &times), weir_tells(capacity, refill, &times));
        assert_eq!(nginx, weir, "{capacity} tokens, {refill} a second");
    }
}
