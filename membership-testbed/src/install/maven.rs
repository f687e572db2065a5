//! Installs servers that are Java programs: the program and its dependencies, as one folder of
//! archives.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Progress, make, output};

/// The plugin that resolves and copies, pinned so that every machine uses the same version.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies";

/// Copies the archives into the folder's `lib`; returns the version.
pub(super) fn install(
    scratch: &Path,
    root: &Path,
    all: &[(&str, &str, &str)],
    progress: Progress<'_>,
) -> Result<String, String> {
    let Some(&(group, artifact, pinned)) = all.first() else {
        return Err("no program is named".to_owned());
    };
    output(Command::new("mvn").arg("--version"))?;
    progress(&format!(
        "downloading {group}:{artifact} {pinned} and its dependencies with Maven"
    ));
    let folder = scratch.join("maven");
    make(&folder)?;
    let dependency = |(group, artifact, version): &(&str, &str, &str)| {
        format!(
            "    <dependency>\n      <groupId>{group}</groupId>\n      <artifactId>{artifact}</artifactId>\n      \
             <version>{version}</version>\n    </dependency>\n"
        )
    };
    let dependencies: String = all.iter().map(dependency).collect();
    let project = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>server</groupId>\n  \
         <artifactId>server</artifactId>\n  <version>1</version>\n  <packaging>pom</packaging>\n  <dependencies>\n{dependencies}  \
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
        .map_err(|why| format!("{group}:{artifact} {pinned} cannot be downloaded ({why})"))?;
    if !libraries.join(format!("{artifact}-{pinned}.jar")).is_file() {
        return Err(format!("Maven downloaded no {artifact}-{pinned}.jar"));
    }
    Ok(pinned.to_owned())
}

/// Maven writes the error to its standard output, in the first line with this prefix.
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
        .unwrap_or("without a message")
        .trim();
    Err(format!("mvn failed: {why}"))
}
