//! The page: a test of it takes the pictures in a real browser.

use std::path::Path;

use crate::{Failure, cargo};

/// Takes the pictures of the page.
pub(super) fn take(root: &Path, into: &Path) -> Result<(), Failure> {
    let mut test = cargo();
    test.args(["test", "--locked", "-p", "membership-page-tests"])
        .args(["--test", "browser", "--", "--ignored", "--exact"])
        .arg("pictures::of_the_documents")
        .env("MEMBERSHIP_PICTURES_INTO", into)
        .current_dir(root);
    let said = crate::output(&mut test)?;
    match said.contains("1 passed") {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "no picture of the page was taken\n{said}"
        ))),
    }
}
