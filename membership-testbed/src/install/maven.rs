//! Servers that are programs of Java: they and what they depend on, as one folder of archives.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Progress, make, output};

/// The plugin that resolves and copies; the same one wherever this runs.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies";

/// Puts the archives into the folder's `lib`; answers the version.
pub(super) fn install(
    scratch: &Path,
    root: &Path,
    (group, artifact, pinned): (&str, &str, &str),
    needs: &[(&str, &str)],
    progress: Progress<'_>,
) -> Result<String, String> {
    // Before the download: without them it would be for nothing.
    for (program, argument) in needs.iter().chain(&[("mvn", "--version")]) {
        output(Command::new(program).arg(argument))?;
    }
    progress(&format!(
        "downloading {group}:{artifact} {pinned} and what it depends on with Maven"
    ));
    let folder = scratch.join("maven");
    make(&folder)?;
    let project = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>server</groupId>\n  \
         <artifactId>server</artifactId>\n  <version>1</version>\n  <packaging>pom</packaging>\n  <dependencies>\n    <dependency>\n      \
         <groupId>{group}</groupId>\n      <artifactId>{artifact}</artifactId>\n      <version>{pinned}</version>\n    </dependency>\n  \
         </dependencies>\n</project>\n"
    );
    let path = folder.join("pom.xml");
    fs::write(&path, project)
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    let libraries = root.join("lib");
    let mut maven = Command::new("mvn");
    maven
        .args(["--batch-mode", "--quiet", COPY, "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", libraries.display()));
    run(maven.current_dir(&folder))
        .map_err(|why| format!("{group}:{artifact} {pinned} cannot be had ({why})"))?;
    if !libraries.join(format!("{artifact}-{pinned}.jar")).is_file() {
        return Err(format!("Maven brought no {artifact}-{pinned}.jar"));
    }
    Ok(pinned.to_owned())
}

/// Maven says on its output what went wrong, in the first of its lines that begin so.
fn run(maven: &mut Command) -> Result<(), String> {
    let output = maven
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("the program 'mvn' cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let why = said
        .lines()
        .find_map(|line| line.strip_prefix("[ERROR]"))
        .unwrap_or("it said nothing")
        .trim();
    Err(format!("mvn failed: {why}"))
}
