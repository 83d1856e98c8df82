// SPDX-License-Identifier: Apache-2.0
//! This side of the module's connections to its own listeners. It sends nothing over them.

#[cfg(not(test))]
mod real {
    use std::io::{self, ErrorKind, Read};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};

    /// The name of an abstract socket.
    pub struct Address(SocketAddr);

    impl Address {
        /// `None` if there can be no such address.
        pub fn of(name: &str) -> Option<Self> {
            SocketAddr::from_abstract_name(name).ok().map(Self)
        }
    }

    pub struct Socket(UnixStream);

    impl Socket {
        pub fn connect(Address(address): &Address) -> io::Result<Self> {
            let socket = UnixStream::connect_addr(address)?;
            socket.set_nonblocking(true)?;
            Ok(Self(socket))
        }

        /// True if Envoy has not closed the connection.
        pub fn is_open(&mut self) -> bool {
            let idle = [ErrorKind::WouldBlock, ErrorKind::Interrupted];
            self.0.read(&mut [0; 16]).is_err_and(|error| idle.contains(&error.kind()))
        }
    }
}

#[cfg(test)]
pub use crate::tests::sockets::{Address, Socket};
#[cfg(not(test))]
pub use real::{Address, Socket};
