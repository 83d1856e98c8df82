// SPDX-License-Identifier: Apache-2.0
//! The native command `weir`; see [`weir_cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_cli::main()
}
