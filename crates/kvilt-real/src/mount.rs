//! `Mount`: a file system made for a test, mounted while this lives.
//!
//! Everything is mounted in a mount namespace of this process's own ([`in_own_namespace`]), and loop devices
//! detach by themselves when nothing is mounted from them any more. So nothing is left over, however the
//! process ends.

use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::tools;

/// Set in the environment of a process that has its own mount namespace.
const MARK: &str = "KVILT_REAL_NAMESPACE";

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
}

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Where its root is.
    pub(crate) place: PathBuf,
}

impl Kind {
    /// Its name, as `mkfs` and `mount` know it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
        }
    }

    /// Makes a file system of this kind in a new file. XFS refuses anything below 300 MB; the file has holes.
    pub(crate) fn make(self, image: &Path, bytes: u64) -> Result<()> {
        let file = std::fs::File::create(image).context("make the image")?;
        file.set_len(bytes).context("size the image")?;
        let image = image.to_str().context("the image's path is text")?;
        match self {
            Kind::Ext4 => tools::run("mkfs.ext4", &["-q", "-F", "-m", "0", image])?,
            Kind::Xfs => tools::run("mkfs.xfs", &["-q", "-f", image])?,
        };
        Ok(())
    }

    /// Why file systems of this kind cannot be made and cut off here; none if they can.
    pub(crate) fn obstacle(self) -> Option<String> {
        obstacle().or_else(|| {
            let programs = [format!("mkfs.{}", self.name()), "xfs_io".to_string()];
            let missing = programs.iter().find(|program| tools::find(program).is_none())?;
            Some(format!("there is no {missing}"))
        })
    }
}

/// Why nothing can be mounted here; none if it can.
pub(crate) fn obstacle() -> Option<String> {
    if !tools::is_root() {
        return Some("only root may mount".to_string());
    }
    if tools::find("unshare").is_none() {
        return Some("there is no unshare".to_string());
    }
    // What a container allows only the attempt can tell.
    tools::run("unshare", &["--mount", "true"]).err().map(|error| format!("{error:#}"))
}

/// Runs this program again, with the same arguments, in a mount namespace of its own; returns in there.
pub(crate) fn in_own_namespace() -> Result<()> {
    if std::env::var_os(MARK).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(tools::find("unshare").context("there is no unshare")?);
    command.args(["--mount", "--propagation", "private"]).arg(program).args(std::env::args_os().skip(1));
    // It takes this process's place, so a signal to this one reaches it.
    Err(command.env(MARK, "1").exec()).context("start in a mount namespace")
}

impl Mount {
    /// Mounts the file system in `image` at `place`, an existing directory.
    pub(crate) fn image(image: &Path, place: &Path) -> Result<Mount> {
        Mount::run(&["-o", "loop"], image, place)
    }

    /// Mounts a file system in memory, of so many bytes.
    pub(crate) fn memory(bytes: u64, place: &Path) -> Result<Mount> {
        Mount::run(&["-t", "tmpfs", "-o", &format!("size={bytes}")], Path::new("kvilt-real"), place)
    }

    fn run(options: &[&str], source: &Path, place: &Path) -> Result<Mount> {
        if std::env::var_os(MARK).is_none() {
            bail!("mounts are made in a namespace of their own");
        }
        let (Some(source), Some(at)) = (source.to_str(), place.to_str()) else { bail!("paths are text") };
        tools::run("mount", &[options, &[source, at]].concat())?;
        Ok(Mount { place: place.to_path_buf() })
    }

    /// Makes it read-only, as the kernel does after an error.
    pub(crate) fn read_only(&self) -> Result<()> {
        let place = self.place.to_str().context("the place is text")?;
        tools::run("mount", &["-o", "remount,ro", place]).map(drop)
    }

    /// Cuts the power: whatever is not on the disk is lost, and nothing more gets there. With `with_journal`
    /// the journal is written out first, so names and lengths may be there whose bytes are not.
    pub(crate) fn cut(&self, with_journal: bool) -> Result<()> {
        let command = if with_journal { "shutdown -f" } else { "shutdown" };
        let place = self.place.to_str().context("the place is text")?;
        tools::run("xfs_io", &["-x", "-c", command, place]).map(drop)
    }

    /// Unmounts it; fails if somebody still uses it.
    pub(crate) fn unmount(self) -> Result<()> {
        let place = self.place.clone();
        std::mem::forget(self);
        let place = place.to_str().context("the place is text")?;
        tools::run("umount", &[place]).map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(place) = self.place.to_str() {
            // On the way out of a failure; what is still used goes with the namespace.
            let _ = tools::run("umount", &["--lazy", place]);
        }
    }
}
