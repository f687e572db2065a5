//! An installed server: a folder, its programs, and the libraries it was given.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// The file that makes a folder a whole tree: recipe and version.
const MARK: &str = "backend.txt";
/// Where libraries lie that the machine did not have.
pub(super) const NEEDS: &str = "needs";

/// An installed server.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Its folder.
    pub root: PathBuf,
    /// The version of the package.
    pub version: String,
    /// The number of the recipe it was made by.
    pub recipe: u32,
    programs: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
}

impl Tree {
    /// The tree in that folder, if it is one.
    #[must_use]
    pub fn open(root: &Path) -> Option<Self> {
        let mark = fs::read_to_string(root.join(MARK)).ok()?;
        let mut words = mark.split_whitespace();
        let (recipe, version) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        let mut tree = Self {
            root: root.to_path_buf(),
            version,
            recipe,
            programs: Vec::new(),
            libraries: Vec::new(),
        };
        tree.look();
        Some(tree)
    }

    /// A folder that is still being filled.
    pub(super) fn unfinished(root: &Path) -> Self {
        let mut tree = Self {
            root: root.to_path_buf(),
            version: String::new(),
            recipe: 0,
            programs: Vec::new(),
            libraries: Vec::new(),
        };
        tree.look();
        tree
    }

    /// Says that the folder is whole.
    pub(super) fn mark(root: &Path, recipe: u32, version: &str) -> Result<(), String> {
        let path = root.join(MARK);
        fs::write(&path, format!("{recipe} {version}\n"))
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }

    /// One of its programs.
    #[must_use]
    pub fn binary(&self, name: &str) -> Option<PathBuf> {
        self.programs
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    }

    /// The libraries that were brought along, as the dynamic linker wants it; nothing if there are none.
    #[must_use]
    pub fn library_path(&self) -> Option<OsString> {
        (!self.libraries.is_empty()).then(|| {
            self.libraries
                .iter()
                .map(|path| path.as_os_str())
                .collect::<Vec<_>>()
                .join(OsStr::new(":"))
        })
    }

    /// The same tree elsewhere, after somebody copied it.
    #[must_use]
    pub fn moved(&self, root: &Path) -> Self {
        let at = |folder: &PathBuf| {
            folder
                .strip_prefix(&self.root)
                .map_or_else(|_| folder.clone(), |rest| root.join(rest))
        };
        Self {
            root: root.to_path_buf(),
            version: self.version.clone(),
            recipe: self.recipe,
            programs: self.programs.iter().map(at).collect(),
            libraries: self.libraries.iter().map(at).collect(),
        }
    }

    /// Finds folders of programs and of libraries; what was brought along for a program never hides what the program itself brought.
    fn look(&mut self) {
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            let inside_needs = folder.starts_with(self.root.join(NEEDS));
            let mut has_libraries = false;
            for entry in entries.filter_map(Result::ok) {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                } else {
                    has_libraries |= name.starts_with("lib") && name.contains(".so");
                }
            }
            let last = folder
                .file_name()
                .and_then(OsStr::to_str)
                .unwrap_or_default();
            if has_libraries && inside_needs {
                self.libraries.push(folder);
            } else if !inside_needs && matches!(last, "bin" | "sbin") {
                self.programs.push(folder);
            }
        }
        self.programs.sort();
        self.libraries.sort();
    }
}
