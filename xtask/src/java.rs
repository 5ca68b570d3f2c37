//! `cargo xtask java`: the native library for Java, built for release and laid into the jar, and the tests of
//! `java/` by Maven.
//!
//! The build has a target directory of its own, `java` below the other, so that it may run beside anything.
//! Each JDK of `JAVA_HOMES` (paths separated by colons) runs the tests; if that is not set, the oldest and
//! the newest one that is installed from 17 on, or else the one that Maven finds.

use std::{
    env::consts,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::Workspace;

/// What the classes are compiled for, so no older JDK can do that.
const VERSION_MIN: u32 = 17;

/// Where Linux distributions install JDKs.
const INSTALLED: &str = "/usr/lib/jvm";

const WHAT_TO_INSTALL: &str = "Java's tests need a JDK of 17 or newer and Maven: \
     apt-get install openjdk-17-jdk-headless maven (default-jdk-headless where there is no \
     openjdk-17), or your system's packages of the same";

/// Maven's words for tests with brokers and instances of Kafka Streams, as processes of their own.
const CLUSTER: &[&str] = &[
    "-Pcluster",
    "verify",
    "-pl",
    "kvilt-java,kvilt-kafka-streams,kvilt-kafka-streams-cluster",
    "-Dsurefire.failIfNoSpecifiedTests=false",
];

/// Behind those, in the check of everything: processes are killed. Pages of classes were made before.
const CHECKED: &[&str] = &["-Dtest=ClusterTest,EarlyWritesTest", "-Dmaven.javadoc.skip=true"];

/// Behind those: processes are killed and files damaged, an application is moved from RocksDB's stores, or a
/// disk is full.
const KILLED: &[&str] = &["-Dtest=ClusterTest,DamageTest,EarlyWritesTest"];
const MOVED: &[&str] = &["-Dtest=UpgradeTest"];
const FULL: &[&str] = &["-Dtest=FullDiskTest"];

const OPTIONS: &str = "--jar, --cluster, --upgrade, --full-disk, --flink and --example [--serve]";

/// Maven's words for the application in `examples/streams`, which has a broker of its own.
const EXAMPLE: &[&str] = &[
    "-q",
    "-Pexample",
    "package",
    "-DskipTests",
    "-pl",
    "kvilt-java,kvilt-kafka-streams,../examples/streams",
];

/// Maven's words for the cluster of Flink whose processes are killed.
const FLINK: &[&str] = &[
    "-Pflink",
    "verify",
    "-pl",
    "kvilt-java,kvilt-flink,kvilt-flink-cluster",
    "-Dtest=ClusterTest",
    "-Dsurefire.failIfNoSpecifiedTests=false",
];

/// Builds the jars, runs the tests that `words` want, and tells where the jars are. Without words the seed of
/// random operations is the commit's: what was checked here is what another machine checks.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let goal = match words {
        [] => vec!["verify"],
        ["--jar"] => vec!["package", "-DskipTests"],
        ["--cluster"] => [CLUSTER, KILLED].concat(),
        ["--upgrade"] => [CLUSTER, MOVED].concat(),
        ["--full-disk"] => [CLUSTER, FULL].concat(),
        ["--flink"] => FLINK.to_vec(),
        ["--example"] | ["--example", "--serve"] => EXAMPLE.to_vec(),
        _ => bail!("`java` has no options but {OPTIONS}, one of them at most"),
    };
    ensure!(is_there(), "{WHAT_TO_INSTALL}");
    library(workspace, words.is_empty())?;
    if words.first() == Some(&"--example") {
        return example(workspace, homes()?.pop().flatten().as_deref(), words.len() > 1);
    }
    let directory = workspace.root.join("java");
    let mut homes = homes()?;
    if !words.is_empty() {
        homes.truncate(1);
    }
    let seed = workspace.commit_number().filter(|_| words.is_empty()).map(|n| format!("-Dkvilt.seed={n}"));
    let goal: Vec<&str> = goal.into_iter().chain(seed.as_deref()).collect();
    for home in &homes {
        maven(&directory, &goal, home.as_deref())?;
    }
    if words.is_empty() {
        let newest = homes.pop().flatten();
        maven(&directory, &[CLUSTER, CHECKED].concat(), newest.as_deref())?;
        example(workspace, newest.as_deref(), false)?;
    }
    if let [] | ["--jar"] = words {
        println!(
            "the jars: java/kvilt-java/target/kvilt-java-*.jar, and those of kvilt-kafka-streams and kvilt-flink likewise"
        );
    }
    Ok(())
}

/// Runs Maven on `java/` with this JDK, or the one that Maven finds.
fn maven(directory: &Path, goal: &[&str], home: Option<&Path>) -> Result<()> {
    let named = home.map_or("the JDK that Maven finds".into(), Path::to_string_lossy);
    println!("$ mvn -B -ntp {} ({named})", goal.join(" "));
    quietly(command(directory, home).args(goal))
}

/// Maven, to be run in a directory with this JDK, or the one that it finds.
fn command(directory: &Path, home: Option<&Path>) -> Command {
    let mut maven = Command::new("mvn");
    maven.current_dir(directory).args(["-B", "-ntp"]);
    if let Some(home) = home {
        maven.env("JAVA_HOME", home);
    }
    maven
}

/// Runs the example, whose lines are the program's; it fails if an answer is wrong.
fn example(workspace: &Workspace, home: Option<&Path>, is_serving: bool) -> Result<()> {
    let mut maven = command(&workspace.root.join("java"), home);
    maven.args(EXAMPLE);
    if is_serving {
        maven.arg("-Dexample.arguments=--serve");
    }
    println!("$ mvn -B -ntp {}", EXAMPLE.join(" "));
    let status = maven.status().context("start mvn")?;
    ensure!(status.success(), "the example: mvn: {status}");
    Ok(())
}

/// For the check of everything: where there is no Java and none could be installed, says so and skips.
pub(crate) fn run_if_there(workspace: &Workspace) -> Result<()> {
    if is_there() {
        return run(workspace, &[]);
    }
    println!("java: skipped: {WHAT_TO_INSTALL}");
    Ok(())
}

/// Whether there are Maven and a JDK that is new enough.
fn is_there() -> bool {
    let said = |program: &str| {
        let output = Command::new(program).arg("-version").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let is_on_path = || {
        let version = said("javac").and_then(|line| first_number(line.strip_prefix("javac ")?));
        version.is_some_and(|version| version >= VERSION_MIN)
    };
    said("mvn").is_some() && (homes().map_or(true, |homes| homes != [None]) || is_on_path())
}

/// Builds the library, with its own tests if wanted, and copies it to where the jar is made.
fn library(workspace: &Workspace, is_tested: bool) -> Result<()> {
    let target = workspace.target_directory().join("java");
    let cargo = |arguments: &[&str]| -> Result<()> {
        println!("$ cargo {}", arguments.join(" "));
        let mut command = workspace.cargo();
        let status =
            command.args(arguments).env("CARGO_TARGET_DIR", &target).status().context("start cargo")?;
        ensure!(status.success(), "cargo {}: {status}", arguments.join(" "));
        Ok(())
    };
    // A jar is carried about, and four fifths of the library would be symbols.
    let strip = ["--config", "profile.release.strip=\"symbols\""];
    if is_tested {
        cargo(&["test", "--release", "--quiet", "--package", "kvilt-jni", strip[0], strip[1]])?;
    }
    cargo(&["build", "--release", "--package", "kvilt-jni", strip[0], strip[1]])?;
    let name = format!("{}kvilt_jni{}", consts::DLL_PREFIX, consts::DLL_SUFFIX);
    let folder = workspace.root.join("java/native").join(format!("{}-{}", consts::OS, consts::ARCH));
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let library = target.join("release").join(&name);
    fs::copy(&library, folder.join(&name)).with_context(|| format!("copy {}", library.display()))?;
    Ok(())
}

/// The JDKs to test with; none stands for the one that Maven finds.
fn homes() -> Result<Vec<Option<PathBuf>>> {
    if let Some(chosen) = std::env::var_os("JAVA_HOMES") {
        let homes: Vec<PathBuf> = std::env::split_paths(&chosen).collect();
        for home in &homes {
            ensure!(home.join("bin/javac").is_file(), "JAVA_HOMES: {} has no bin/javac", home.display());
        }
        return Ok(homes.into_iter().map(Some).collect());
    }
    let mut installed = Vec::new();
    for entry in fs::read_dir(INSTALLED).into_iter().flatten().flatten() {
        let home = entry.path();
        // Names of the same one are links.
        let is_one = !home.is_symlink() && home.join("bin/javac").is_file();
        let release = fs::read_to_string(home.join("release")).unwrap_or_default();
        if let Some(version) = version(&release).filter(|version| is_one && *version >= VERSION_MIN) {
            installed.push((version, home));
        }
    }
    installed.sort();
    let newest = installed.pop();
    let oldest = installed.into_iter().next();
    let homes: Vec<_> = oldest.into_iter().chain(newest).map(|(_, home)| Some(home)).collect();
    Ok(if homes.is_empty() { vec![None] } else { homes })
}

/// The version in the file `release` of a JDK, such as 17 of `JAVA_VERSION="17.0.15"`.
fn version(release: &str) -> Option<u32> {
    first_number(release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?)
}

fn first_number(version: &str) -> Option<u32> {
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Limits how many of Maven's errors are shown again behind all that it said, in lines.
const ERRORS_MAX: usize = 30;

/// Runs Maven, showing what tests ran and what went wrong; if it fails, all that it said, and at the end its
/// first errors once more.
fn quietly(maven: &mut Command) -> Result<()> {
    let mut child = maven.stdout(Stdio::piped()).spawn().context("start mvn")?;
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().context("it is piped")?).lines() {
        let line = line.context("read what Maven tells")?;
        if ["Tests run:", "WARN", "measured:"].iter().any(|word| line.contains(word)) {
            println!("{line}");
        }
        said.push(line);
    }
    let status = child.wait().context("wait for mvn")?;
    if !status.success() {
        println!("{}", said.join("\n"));
        let errors: Vec<&String> = said.iter().filter(|line| line.contains("[ERROR]")).collect();
        errors.iter().take(ERRORS_MAX).for_each(|line| println!("{line}"));
        bail!("mvn: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_jdk_is_read_from_its_release() {
        assert_eq!(version("IMPLEMENTOR=\"Debian\"\nJAVA_VERSION=\"17.0.15\"\n"), Some(17));
        assert_eq!(version("JAVA_VERSION=\"25\"\n"), Some(25));
        assert_eq!(version("JAVA_VERSION=\"26-ea\"\n"), Some(26));
        assert_eq!(version("JAVA_VERSION=\"1.8.0_402\"\n"), Some(1));
        assert_eq!(version(""), None);
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert!(run(&Workspace::here(), &["--fast"]).is_err());
        assert!(run(&Workspace::here(), &["--serve"]).is_err());
    }
}
