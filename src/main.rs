//! The program: everything is in the library, so that tests can reach it.

/// Not the library's: test programs have threads.
#[global_allocator]
static HEAP: agentbox::sys::Heap = agentbox::sys::Heap::new();

fn main() -> std::process::ExitCode {
    agentbox::cli::main()
}
