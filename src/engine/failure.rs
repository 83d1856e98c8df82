//! What can go wrong with the store. To a request all of it is one event; to the operator each is a line of its own.

use std::fmt;

use super::MAX_WAITING;

/// Why a batch, or one command of it, got no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// The host could not send it: no such cluster, or its circuit breaker is open.
    NotSent,
    /// Too many requests wait already.
    Overloaded,
    /// No answer within the deadline.
    Timeout,
    /// The bridge or the store could not be reached.
    Unreachable,
    /// An answer came, but not from the bridge: its HTTP status.
    NotTheBridge(u16),
    /// The store answered this command with an error: its text.
    Error(String),
    /// The reply ended early, or was not what the script answers.
    BadReply,
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent => f.write_str(
                "a batch could not be sent: is `store.cluster` defined in Envoy, and its circuit breaker closed?",
            ),
            Self::Overloaded => write!(f, "more than {MAX_WAITING} requests wait already"),
            Self::Timeout => f.write_str("no answer within `store.deadline`"),
            Self::Unreachable => f.write_str("the bridge could not be reached"),
            Self::NotTheBridge(status) => {
                write!(f, "HTTP {status} from something that is not the bridge: does `store.cluster` lead to it?")
            }
            Self::Error(text) => write!(f, "error reply: {text}"),
            Self::BadReply => f.write_str("the reply ended early or is not what the script answers"),
        }
    }
}
