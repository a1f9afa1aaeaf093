//! The program: what `commands` does with the words of its command line.

fn main() {
    dapo::commands::main(std::env::args_os())
}
