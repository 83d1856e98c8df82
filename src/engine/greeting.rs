// SPDX-License-Identifier: Apache-2.0
//! The first command on a connection that speaks RESP. It logs in, and its reply shows that the connection leads to the store.
//!
//! ```
//! use weir::engine::{greeting, refusal};
//!
//! assert_eq!(greeting(Some(b"weir:secret\n")), b"*3\r\n$4\r\nAUTH\r\n$4\r\nweir\r\n$6\r\nsecret\r\n");
//! assert_eq!(refusal(b"+OK\r\n"), None);
//! assert_eq!(refusal(b"-WRONGPASS invalid username-password pair\r\n").map(|failure| failure.kind()), Some("wrongpass"));
//! ```

use super::StoreFailure;
use crate::bridge;
use crate::resp;

/// The command, with one reply. The credentials are those of [`bridge::login`]. Without any it is `TIME`, which the user of Redis may use
/// for weir's scripts anyway: Redis keeps a record of each command that it refuses.
#[must_use]
pub fn greeting(credentials: Option<&[u8]>) -> Vec<u8> {
    credentials.map_or_else(
        || {
            let mut command = Vec::new();
            resp::array_header(&mut command, 1);
            resp::bulk(&mut command, b"TIME");
            command
        },
        bridge::login,
    )
}

/// Returns the reason for which no batch can be answered on this connection, if the reply to the greeting says so. Other errors do no harm:
/// Redis has no password where one is sent, or it reads its data and will have done so soon.
#[must_use]
pub fn refusal(reply: &[u8]) -> Option<StoreFailure> {
    let text = String::from_utf8_lossy(reply.strip_prefix(b"-")?);
    Some(StoreFailure::Error(text.trim_end().to_owned())).filter(StoreFailure::is_connection_scoped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_logs_in_or_asks_for_the_time() {
        assert_eq!(greeting(None), b"*1\r\n$4\r\nTIME\r\n");
        assert_eq!(greeting(Some(b"secret")), b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n");
    }

    #[test]
    fn a_connection_is_refused_when_redis_refuses_the_login() {
        let cases: [(&[u8], Option<&str>); 8] = [
            (b"+OK\r\n", None),
            (b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n", None),
            (b"-WRONGPASS invalid username-password pair or user is disabled.\r\n", Some("wrongpass")),
            (b"-NOAUTH Authentication required.\r\n", Some("noauth")),
            (b"-ERR AUTH <password> called without any password configured for the default user.\r\n", None),
            (b"-ERR Client sent AUTH, but no password is set\r\n", None),
            (b"-NOPERM User weir has no permissions to run the 'time' command\r\n", None),
            (b"-LOADING Redis is loading the dataset in memory\r\n", None),
        ];
        for (reply, kind) in cases {
            let refused = refusal(reply);
            assert_eq!(refused.as_ref().map(StoreFailure::kind), kind, "{}", String::from_utf8_lossy(reply));
        }
    }
}
