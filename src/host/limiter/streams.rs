// SPDX-License-Identifier: Apache-2.0
//! Streams to the bridge as Envoy has them: what [`crate::engine::Streams`] opens, sends on and cancels.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;

use crate::engine::{Token, Transport};

/// Streams to this cluster. They belong to the context that is effective when they are opened: the root's.
pub(super) struct HostStreams {
    pub cluster: String,
}

impl Transport for HostStreams {
    fn open(&self) -> Option<Token> {
        hostcalls::open_grpc_stream(&service(&self.cluster), "weir", "bridge", Vec::new()).ok()
    }

    fn message(&self, stream: Token, commands: &[u8]) -> bool {
        hostcalls::send_grpc_stream_message(stream, Some(commands), false).is_ok()
    }

    fn cancel(&self, stream: Token) {
        // It fails when Envoy has removed the stream already.
        let _ = hostcalls::cancel_grpc_stream(stream);
    }

    fn header(&self, name: &str) -> Option<Vec<u8>> {
        hostcalls::get_map_value_bytes(MapType::GrpcReceiveInitialMetadata, name).ok().flatten()
    }
}

/// The host expects a protobuf here, `envoy.config.core.v3.GrpcService`; only its `envoy_grpc.cluster_name` is set. Its
/// lengths are varints, and the SDK takes text, which varints of one byte are. A longer name is passed as it is: the host
/// takes text that is no protobuf for the name of a cluster.
fn service(cluster: &str) -> String {
    let byte = |length: usize| u8::try_from(length).ok().filter(u8::is_ascii).map(char::from);
    match (byte(cluster.len() + 2), byte(cluster.len())) {
        (Some(outer), Some(inner)) => format!("\n{outer}\n{inner}{cluster}"),
        _ => String::from(cluster),
    }
}
