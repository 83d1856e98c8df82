// SPDX-License-Identifier: Apache-2.0
//! Amazon's event streams, as Bedrock writes them: messages with their headers and true checksums.

/// A message with the headers that Bedrock gives an event of this name.
pub fn event(name: &str, payload: &[u8]) -> Vec<u8> {
    let mut headers = Vec::new();
    for (header, value) in
        [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")]
    {
        headers.push(u8::try_from(header.len()).expect("a short name"));
        headers.extend(header.bytes());
        // A string.
        headers.push(7);
        headers.extend(u16::try_from(value.len()).expect("a short value").to_be_bytes());
        headers.extend(value.bytes());
    }
    message(&headers, payload)
}

/// A message with these headers.
pub fn message(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let lengths = [16 + headers.len() + payload.len(), headers.len()];
    let mut message = lengths.map(|length| u32::try_from(length).expect("a length").to_be_bytes()).concat();
    message.extend(checksum(&message).to_be_bytes());
    message.extend([headers, payload].concat());
    message.extend(checksum(&message).to_be_bytes());
    message
}

/// CRC-32, as gzip has it.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8)
            .fold(sum ^ u32::from(*byte), |sum: u32, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}
