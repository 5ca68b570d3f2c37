//! `kvilt-bench`: Kvilt measured by itself. Others stand beside it in `kvilt-bench-compare`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    kvilt_bench::cli::run_with(&kvilt_bench::contestants::contestants())
}
