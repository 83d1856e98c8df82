// SPDX-License-Identifier: Apache-2.0
//! The native command `weir`; see [`weir::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::main()
}
