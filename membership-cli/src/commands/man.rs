//! `membership man`: the manual, as pages for `man`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

use crate::exit::{Exit, Failure};
use crate::session::Session;

/// Print the manual page, or write one page for each command into a folder
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to write the pages: membership.1, membership-status.1, …
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, program: Command, session: &mut Session) -> Result<Exit, Failure> {
    let Some(folder) = &args.into else {
        let page = render(program).map_err(|e| failed(Path::new("standard output"), &e))?;
        session.out.raw(String::from_utf8_lossy(&page));
        return Ok(Exit::Ok);
    };
    std::fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
    let mut program = program;
    program.build();
    let commands = program.get_subcommands().filter(|c| !c.is_hide_set());
    let commands = commands.map(|command| {
        let name = format!("membership-{}", command.get_name());
        command.clone().name(name)
    });
    let pages: Vec<Command> = commands.chain([program.clone()]).collect();
    for page in pages {
        let file = folder.join(format!("{}.1", page.get_name()));
        let text = render(page).map_err(|e| failed(&file, &e))?;
        std::fs::write(&file, text).map_err(|e| failed(&file, &e))?;
        session.out.line(file.display());
    }
    Ok(Exit::Ok)
}

fn render(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}

fn failed(file: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("cannot write {}: {error}", file.display()),
    )
}
