// SPDX-License-Identifier: Apache-2.0
//! Certificates for tests, made anew for each of them, and a Redis that shows them.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::redis::Redis;

/// A certificate for `name` (`redis.crt`), one of a client (`client.crt`), their keys, and the authority that signed both.
pub fn certificates(name: &str, folder: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Envoy finds an authority by its name.
    let own = folder.file_name().expect("a name").display().to_string();
    authority.distinguished_name.push(DnType::CommonName, own);
    let authority =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("a CA");
    fs::write(folder.join("ca.crt"), authority.pem()).expect("a file");
    for (owner, name) in [("redis", name), ("client", "client")] {
        let key = KeyPair::generate().expect("a key");
        let certificate =
            CertificateParams::new([name.to_owned()]).expect("a name").signed_by(&key, &authority);
        let certificate = certificate.expect("a certificate").pem();
        fs::write(folder.join(format!("{owner}.crt")), certificate).expect("a file");
        fs::write(folder.join(format!("{owner}.key")), key.serialize_pem()).expect("a file");
    }
}

impl Redis {
    /// Starts a server that speaks TLS only, with [`certificates`] for `name` in this folder, and with more arguments.
    pub fn start_tls(name: &str, folder: &Path, more: &[&str]) -> Option<Self> {
        certificates(name, folder);
        let [certificate, key, authority] =
            ["redis.crt", "redis.key", "ca.crt"].map(|file| folder.join(file).display().to_string());
        let port = ["--port", "0", "--tls-port", "{port}"];
        let files =
            ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &authority];
        Self::start_with(&[&port[..], &files, more].concat())
    }
}
