//! Prints the CustomResourceDefinition of `SidecarJob` as YAML.

use std::io::{self, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let yaml = crds::definition::to_yaml()?;
    io::stdout().write_all(yaml.as_bytes())?;
    Ok(())
}
