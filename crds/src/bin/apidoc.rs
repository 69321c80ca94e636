//! Prints the API reference of `SidecarJob` as Markdown.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(crds::reference::markdown().as_bytes())
}
