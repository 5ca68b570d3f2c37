//! The commands that `README.md` shows: each is run as it stands there, so none can rot.
//!
//! A command is a line of a fenced `sh` block that begins with `cargo `.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::Workspace;

/// Runs every command of the README that `done` does not contain, in a directory made for it.
pub(crate) fn run(workspace: &Workspace, done: &[String]) -> Result<()> {
    let text = fs::read_to_string(workspace.root.join("README.md")).context("read README.md")?;
    let commands = commands(&text);
    for required in ["cargo test", "cargo run --release -- demo"] {
        ensure!(commands.iter().any(|c| c == required), "README.md does not show `{required}`");
    }
    for command in commands {
        if done.contains(&command) {
            println!("$ {command}   (done above)");
        } else {
            let directory = workspace.target_directory().join("readme");
            run_in(workspace, &directory, &command)?;
        }
    }
    Ok(())
}

/// Runs `cargo …` in an empty directory; the manifest is named, so that files made land in the directory.
fn run_in(workspace: &Workspace, directory: &Path, command: &str) -> Result<()> {
    println!("$ {command}   (in an empty directory)");
    if directory.exists() {
        fs::remove_dir_all(directory).context("empty the directory of README commands")?;
    }
    fs::create_dir_all(directory).context("make a directory for README commands")?;
    let mut words = command.split_whitespace().skip(1);
    let subcommand = words.next().context("a command of cargo")?;
    let mut cargo = workspace.cargo();
    cargo.arg(subcommand).arg("--manifest-path").arg(workspace.root.join("Cargo.toml")).args(words);
    let status = cargo.current_dir(directory).status().context("start cargo")?;
    ensure!(status.success(), "`{command}` failed: {status}");
    fs::remove_dir_all(directory).context("remove the directory of README commands")
}

/// The cargo commands in the `sh` blocks of a Markdown text, without comments.
fn commands(text: &str) -> Vec<String> {
    let mut is_shell = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            is_shell = !is_shell && language == "sh";
        } else if is_shell && line.starts_with("cargo ") {
            let command = line.split_once(" #").map_or(line, |(command, _)| command);
            commands.push(command.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cargo_lines_of_shell_blocks_are_commands() {
        let text = "```sh\ncargo a -- b   # why\nls\n```\ncargo prose\n```rust\ncargo code\n```\n```sh\ncargo c\n```\n";
        assert_eq!(commands(text), ["cargo a -- b", "cargo c"]);
    }
}
