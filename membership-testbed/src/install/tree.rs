//! An installed server: a folder, its programs, and the libraries that were downloaded for them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// The file that marks a complete tree: recipe and version.
const MARK: &str = "backend.txt";
/// The folder of libraries that the machine lacks.
pub(super) const NEEDS: &str = "needs";

/// An installed server.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Its folder.
    pub root: PathBuf,
    /// The version of the package.
    pub version: String,
    /// The number of its recipe.
    pub recipe: u32,
    programs: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
}

impl Tree {
    /// The tree in this folder, if it is complete.
    #[must_use]
    pub fn open(root: &Path) -> Option<Self> {
        let mark = fs::read_to_string(root.join(MARK)).ok()?;
        let mut fields = mark.split_whitespace();
        let (recipe, version) = (fields.next()?.parse().ok()?, fields.next()?.to_owned());
        let mut tree = Self {
            root: root.to_path_buf(),
            version,
            recipe,
            programs: Vec::new(),
            libraries: Vec::new(),
        };
        tree.scan();
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
        tree.scan();
        tree
    }

    /// Marks the folder as complete.
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

    /// The library folders, as a path for the dynamic linker; nothing if there are none.
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

    /// The same tree at another place, after a copy.
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

    /// Finds folders of programs and of libraries. Libraries that were downloaded for a program
    /// never hide those that it contains.
    fn scan(&mut self) {
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
