//! The native command `weir`; see [`weir::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::main()
}
