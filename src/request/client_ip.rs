// SPDX-License-Identifier: Apache-2.0
//! The client's address, and networks. The client writes the left end of `X-Forwarded-For`, so that end is not trusted: the
//! chain is read from the right, from the connection, as far as the operator trusts it.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A CIDR block. IPv6 that stands for IPv4 (mapped, or of NAT64) is IPv4, in blocks as in addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads `192.0.2.0/24`, `2001:db8::/32`, or a single address.
    ///
    /// # Errors
    /// Text that is neither; a prefix longer than the address; bits set beyond the prefix, in which case the
    /// network that was probably meant is returned.
    pub fn parse(text: &str) -> Result<Self, Option<Self>> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| None)?;
        let width = width(written);
        let prefix = match prefix {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| None)?
            }
            Some(_) => return Err(None),
            None => width,
        };
        if prefix > width {
            return Err(None);
        }
        let address = canonical(written);
        let prefix =
            if address.is_ipv4() && written.is_ipv6() { prefix.checked_sub(96).ok_or(None)? } else { prefix };
        // All of NAT64 would be all of IPv4, which a list of networks of IPv6 does not mean.
        if prefix == 0 && address != written.to_canonical() {
            return Err(None);
        }
        let network = Self { address: mask(address, prefix), prefix };
        if network.address == address { Ok(network) } else { Err(Some(network)) }
    }

    /// The network of `prefix` bits around `address`; a prefix longer than the address is the address.
    #[must_use]
    pub fn around(address: IpAddr, prefix: u8) -> Self {
        let prefix = prefix.min(width(address));
        Self { address: mask(address, prefix), prefix }
    }

    /// True if it is a network of IPv4.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The number of bits that its addresses have in common.
    #[must_use]
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The beginning of the [`Bits`] of its addresses.
    #[must_use]
    pub fn bits(&self) -> Vec<u8> {
        let bits = Bits::of(self.address);
        bits.as_bytes().get(..1_usize.saturating_add(usize::from(self.prefix))).unwrap_or_default().to_vec()
    }

    /// True if `address`, which is canonical, is in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && mask(address, self.prefix) == self.address
    }
}

/// `192.0.2.1` for a single address, `2001:db8::/64` for a network.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == width(self.address) {
            return write!(f, "{}", self.address);
        }
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// An address as text: one byte for its family, and one for each bit. So a network is a prefix of its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Bits {
    bytes: [u8; 129],
    length: usize,
}

impl Bits {
    /// The bits of a canonical address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        let mut bits = Self { bytes: [0; 129], length: 0 };
        bits.push(width(address));
        match address {
            IpAddr::V4(v4) => v4.octets().into_iter().for_each(|octet| bits.push_bits(octet)),
            IpAddr::V6(v6) => v6.octets().into_iter().for_each(|octet| bits.push_bits(octet)),
        }
        bits
    }

    fn push_bits(&mut self, octet: u8) {
        (0..8).rev().for_each(|bit| self.push(octet >> bit & 1));
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length = self.length.saturating_add(1);
        }
    }

    /// As bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    let host_bits = u32::from(width(address).saturating_sub(prefix));
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

/// The part of the chain of proxies in front of Envoy that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    header: String,
    proxies: Proxies,
}

/// The proxies in front of Envoy that are trusted to append the true address of their client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proxies {
    /// This many, counted from the connection; 0 trusts the connection only.
    Hops(usize),
    /// The proxies whose address is in one of these networks.
    Networks(Vec<Network>),
}

/// The most hops of a chain that are read, from the right.
pub const MAX_HOPS: usize = 32;

/// True if the networks together contain every address of IPv4, or every address of IPv6. With such proxies the left end of a chain, which
/// the client writes, would be trusted.
#[must_use]
pub fn cover_everything(networks: &[Network]) -> bool {
    let covers = |ipv4: bool| {
        let family = || networks.iter().filter(move |network| network.address.is_ipv4() == ipv4);
        // Of two networks one holds the other, or they share no address. So the sizes of the outermost add up.
        let outermost = family().enumerate().filter(|(index, network)| {
            !family().enumerate().any(|(other, outer)| {
                let wider =
                    outer.prefix < network.prefix || (outer.prefix == network.prefix && other < *index);
                wider && outer.contains(network.address)
            })
        });
        let mut addresses = Some(0_u128);
        for (_, network) in outermost {
            let bits = u32::from(width(network.address).saturating_sub(network.prefix));
            addresses = addresses.zip(1_u128.checked_shl(bits)).and_then(|(sum, size)| sum.checked_add(size));
        }
        let all = if ipv4 { 1_u128.checked_shl(32) } else { None };
        // The number of all IPv6 addresses does not fit: the sum overflows to `None`.
        addresses == all
    };
    covers(true) || covers(false)
}

impl Default for Trust {
    fn default() -> Self {
        Self { header: String::from("x-forwarded-for"), proxies: Proxies::Hops(0) }
    }
}

impl Trust {
    /// Trust `proxies` to append the address they spoke to, to `header` (a name in lower case).
    #[must_use]
    pub const fn new(header: String, proxies: Proxies) -> Self {
        Self { header, proxies }
    }

    /// The header with the chain, in lower case.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }

    /// The proxies that are trusted.
    #[must_use]
    pub const fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// True if the connection's address is the client's, so that no header need be read.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        match &self.proxies {
            Proxies::Hops(hops) => *hops == 0,
            Proxies::Networks(networks) => networks.is_empty(),
        }
    }

    /// The client behind `connection`, given the header's value. Reads from the right, at most [`MAX_HOPS`]. A hop that
    /// is no address, or that no host can have as its address, ends the walk at the address before it, which a trusted proxy
    /// wrote. A chain shorter than the configured hops did not pass through them all, so the connection is the client.
    #[must_use]
    pub fn client(&self, connection: IpAddr, chain: &[u8]) -> IpAddr {
        let mut entries = chain.rsplit(|&byte| byte == b',').map(<[u8]>::trim_ascii).peekable();
        // With `use_remote_address` Envoy has appended the connection's address: that is the same hop.
        entries.next_if(|entry| self::connection(entry) == Some(connection));
        let mut hops = entries.map(hop);
        match &self.proxies {
            Proxies::Hops(trusted) => {
                let mut client = connection;
                for _ in 0..*trusted {
                    match hops.next() {
                        Some(Some(address)) => client = address,
                        Some(None) => return client,
                        None => return connection,
                    }
                }
                client
            }
            Proxies::Networks(networks) => {
                let trusted = |address| networks.iter().any(|network| network.contains(address));
                let mut client = connection;
                for hop in hops.take(MAX_HOPS) {
                    match hop {
                        Some(address) if trusted(client) => client = address,
                        _ => return client,
                    }
                }
                client
            }
        }
    }
}

/// One entry of the chain: an address, perhaps with brackets or a port; `None` when no client can have it.
fn hop(entry: &[u8]) -> Option<IpAddr> {
    connection(entry).filter(|address| is_of_a_host(*address))
}

/// True if a host can have this address: not if it is unspecified (all of `0.0.0.0/8`), multicast or broadcast.
#[must_use]
pub const fn is_of_a_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !(matches!(v4.octets(), [0, ..]) || v4.is_multicast() || v4.is_broadcast()),
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_multicast()),
    }
}

/// The address of IPv4 that an address of IPv6 stands for: one that is mapped (`::ffff:192.0.2.1`), or of the well-known prefix of NAT64
/// (`64:ff9b::192.0.2.1`, RFC 6052), by which servers without IPv4 see its clients. Any other address is itself.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.to_bits() >> 32 == 0x0064_ff9b << 64 => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        address => address.to_canonical(),
    }
}

/// The address in `192.0.2.1:443`, `[2001:db8::1]:443`, or either without its port. A zone (`%eth0`) is dropped.
#[must_use]
pub fn connection(text: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(canonical(address));
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Some(canonical(socket.ip()));
    }
    let inner = text.strip_prefix('[').and_then(|text| text.split(']').next()).unwrap_or(text);
    let inner = inner.split('%').next().unwrap_or(inner);
    inner.parse::<Ipv6Addr>().ok().map(|address| canonical(address.into()))
}
