//! The program: everything is in the library, so that tests can reach it.

fn main() -> std::process::ExitCode {
    agentbox::cli::main()
}
